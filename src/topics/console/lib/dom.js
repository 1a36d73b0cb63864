// Elements. Text reaches the page as text nodes only: no function here or elsewhere parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element: h("a", { class: "tag", href, on: { click } }, "text", otherNode).
 * Properties that are null, undefined or false are left out; `style` is an object of CSS properties.
 */
export function h(tag, properties = {}, ...children) {
  return build(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return build(document.createElementNS(SVG, tag), properties, children);
}

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    } else if (name === "style") {
      for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
    } else if (name === "value" || name === "checked" || name === "disabled") {
      element[name] = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Set the text of an element, and touch the page only when it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Put `next` in the place of the content of `element`, unless it looks the same already. */
export function setContent(element, next) {
  const node = next instanceof Node ? next : document.createTextNode(String(next ?? ""));
  const now = element.childNodes;
  if (now.length === 1 && now[0].isEqualNode(node)) return;
  element.replaceChildren(node);
}

const ICONS = {
  overview: "M3 13h6V3H3zM15 21h6V11h-6zM3 21h6v-4H3zM15 7h6V3h-6z",
  topics: "M4 6h16M4 12h12M4 18h8",
  queues: "M4 5h16v4H4zM4 11h11v3H4zM4 17h7v3H4z",
  groups: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2 20c0-3 3-5 6-5s6 2 6 5M17 11a2.5 2.5 0 1 0 0-5M17 15c3 0 5 2 5 5",
  routes:
    "M5 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM19 20a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM7 6h6a3 3 0 0 1 3 3v0M5 8v7a3 3 0 0 0 3 3h9M16 6l0 3",
  pipelines: "M3 8h5v8H3zM16 8h5v8h-5zM8 12h8",
  live: "M2 12h4l3-8 5 16 3-8h5",
  sql: "M12 8c4 0 8-1 8-3s-4-3-8-3-8 1-8 3 4 3 8 3zM4 5v14c0 2 4 3 8 3s8-1 8-3V5M4 12c0 2 4 3 8 3s8-1 8-3",
  settings: "M4 7h10M18 7h2M4 17h2M10 17h10M16 9a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 19a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  menu: "M4 6h16M4 12h16M4 18h16",
  theme: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  help: "M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 17.5v.5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  critical: "M12 3l9.5 17h-19zM12 10v4M12 17v.01",
  warning: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 8v5M12 16v.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8v.01",
  good: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM8 12l3 3 5-6",
  unlocked: "M6 11h12v9H6zM9 11V7a3 3 0 0 1 5.8-1",
  next: "M9 6l6 6-6 6",
};

export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}
