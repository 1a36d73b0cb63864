// JSON as a tree that folds, and as text. Numbers keep the digits that were sent.

import { h } from "./dom.js";

const OPEN_DEPTH = 3;
const MAX_CHILDREN = 500;

/** Parse JSON. A number whose digits JavaScript would change becomes a raw value, which JSON.stringify writes as it was sent. */
export const parseExact = (text) =>
  JSON.parse(text, (key, value, context) =>
    typeof value === "number" && context?.source !== undefined && context.source !== String(value) && JSON.rawJSON
      ? JSON.rawJSON(context.source)
      : value,
  );

const isRaw = (value) => JSON.isRawJSON?.(value) ?? false;

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

function branch(value, depth, label = null) {
  if (value === null || typeof value !== "object" || isRaw(value)) return h("span", {}, label, leaf(value));
  const entries = Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!entries.length) return h("span", {}, label, open + close);
  const list = h("ul");
  const fill = () => {
    for (const [key, each] of entries.slice(0, MAX_CHILDREN)) {
      const name = h("span", { class: "key" }, Array.isArray(value) ? `${key}: ` : `${JSON.stringify(key)}: `);
      list.append(h("li", {}, branch(each, depth + 1, name)));
    }
    if (entries.length > MAX_CHILDREN)
      list.append(h("li", { class: "muted" }, `… ${entries.length - MAX_CHILDREN} more; see Raw`));
  };
  const details = h(
    "details",
    { open: depth < OPEN_DEPTH },
    h("summary", {}, label, open, h("span", { class: "muted" }, ` ${entries.length} `), close),
    list,
  );
  // Branches are made when they are first opened: a deep document costs nothing until then.
  if (depth < OPEN_DEPTH) fill();
  else details.addEventListener("toggle", fill, { once: true });
  return details;
}

function leaf(value) {
  const kind = typeof value === "string" ? "string" : typeof value === "number" || isRaw(value) ? "number" : "literal";
  return h("span", { class: kind }, JSON.stringify(value));
}

export const oneLine = (value, most = 300) => {
  const text = typeof value === "string" ? JSON.stringify(value) : (JSON.stringify(value) ?? "");
  return text.length > most ? `${text.slice(0, most)}…` : text;
};
