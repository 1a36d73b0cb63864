// JSON as a tree that folds, and as text.

import { h } from "./dom.js";

const OPEN_DEPTH = 2;
const MAX_CHILDREN = 500;

export function jsonTree(value, depth = 0) {
  const node = h("div", {
    class: "json",
    tabindex: depth ? null : "0",
    role: depth ? null : "group",
    "aria-label": depth ? null : "JSON tree",
  });
  node.append(branch(value, depth));
  return node;
}

function branch(value, depth) {
  if (value === null || typeof value !== "object") return leaf(value);
  const entries = Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return h("span", {}, open + close);
  const list = h("ul");
  const fill = () => {
    for (const [key, each] of entries.slice(0, MAX_CHILDREN)) {
      list.append(
        h(
          "li",
          {},
          h("span", { class: "key" }, Array.isArray(value) ? `${key}: ` : `${JSON.stringify(key)}: `),
          branch(each, depth + 1),
        ),
      );
    }
    if (entries.length > MAX_CHILDREN)
      list.append(h("li", { class: "muted" }, `… ${entries.length - MAX_CHILDREN} more; see Raw`));
  };
  const details = h(
    "details",
    { open: depth < OPEN_DEPTH },
    h("summary", {}, open, h("span", { class: "muted" }, ` ${entries.length} `), close),
    list,
  );
  // Branches are made when they are first opened: a deep document costs nothing until then.
  if (depth < OPEN_DEPTH) fill();
  else details.addEventListener("toggle", fill, { once: true });
  return details;
}

function leaf(value) {
  const kind = typeof value === "string" ? "string" : typeof value === "number" ? "number" : "literal";
  return h("span", { class: kind }, JSON.stringify(value));
}

export const oneLine = (value, most = 300) => {
  const text = typeof value === "string" ? JSON.stringify(value) : (JSON.stringify(value) ?? "");
  return text.length > most ? `${text.slice(0, most)}…` : text;
};
