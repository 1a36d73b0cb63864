// Small parts that every screen uses: tags, figures, snippets, empty states, errors, messages, buttons.

import { h, icon, replace, setText } from "./dom.js";
import { forbidden } from "./session.js";

const TOAST_MS = 6000;

export const tag = (text, kind = "") => h("span", { class: `tag ${kind}` }, text);

/** Figures side by side: figures({ append: "Appends" }) has `set(key, value, note)`, and `draw(key, node)` for a trend beside it. */
export function figures(labels) {
  const parts = Object.entries(labels).map(([key, label]) => {
    const value = h("span", {}, "–");
    const note = h("span", { class: "note" }, "\u00a0");
    const trend = h("span", { class: "trend" });
    const node = h("div", { class: "figure" }, h("dt", {}, label), h("dd", {}, value, note, trend));
    return { key, value, note, trend, node };
  });
  const node = h(
    "dl",
    { class: `figures figures-${parts.length}` },
    parts.map((part) => part.node),
  );
  return {
    node,
    set(key, value, note = "\u00a0") {
      const part = parts.find((each) => each.key === key);
      setText(part.value, value);
      setText(part.note, note);
      part.value.title = value;
    },
    draw(key, drawing) {
      replace(parts.find((each) => each.key === key).trend, drawing);
    },
  };
}

/** Text with a button that copies it. */
export function snippet(text, label = "Copy") {
  return h(
    "div",
    { class: "snippet" },
    h("pre", {}, text),
    copyButton(() => text, label),
  );
}

export function copyButton(read, label = "Copy", kind = "small") {
  return h(
    "button",
    {
      class: kind,
      type: "button",
      on: {
        click: async (event) => {
          event.stopPropagation();
          await copy(read());
        },
      },
    },
    label,
  );
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    // Pages over plain HTTP to another machine have no clipboard: show the text for copying by hand.
    toast(text);
  }
}

/** Let the browser save a text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** What a list shows when it has nothing: what it is, and a line that works when it is pasted. */
export function empty(title, text, ...lines) {
  return h(
    "div",
    { class: "empty" },
    h("h2", {}, title),
    h("p", {}, text),
    lines.map((line) => (line instanceof Node ? line : snippet(line))),
  );
}

export function errorBox(error) {
  const next = error.next ?? "Reload the page. If it happens again, report it with the text above.";
  return h(
    "div",
    { class: "error-box", role: "alert" },
    h("strong", {}, error.message),
    next ? h("span", { class: "next" }, next) : null,
  );
}

export function toast(message, kind = "good") {
  const area = document.getElementById("toasts");
  const node = h("div", { class: `toast ${kind}` }, message);
  area.append(node);
  setTimeout(() => node.remove(), TOAST_MS);
}

export function toastError(error) {
  if (error.name === "AbortError") return;
  toast(`${error.message} ${error.next ?? ""}`.trim(), "bad");
}

/**
 * A button for an action. Where the key lacks the scope, or `unless()` gives a reason, it is disabled and says why;
 * its `refresh()` asks again. It ignores clicks while the action runs.
 */
export function action(label, { run, scope, name, unless = () => "", kind = "", title = "" } = {}) {
  const reason = () => (scope ? forbidden(scope, name) : "") || unless();
  let running = false;
  const button = h(
    "button",
    {
      type: "button",
      class: kind,
      on: {
        click: async (event) => {
          event.stopPropagation();
          if (reason()) {
            toast(reason(), "bad");
            return;
          }
          if (running) return;
          running = true;
          try {
            await run(event);
          } catch (error) {
            toastError(error);
          } finally {
            running = false;
          }
        },
      },
    },
    label,
  );
  button.refresh = () => {
    button.title = reason() || title;
    button.setAttribute("aria-disabled", String(Boolean(reason())));
  };
  button.refresh();
  return button;
}

export function field(label, control, hint) {
  return h(
    "label",
    { class: "field" },
    h("span", {}, label),
    control,
    hint ? h("span", { class: "hint" }, hint) : null,
  );
}

export function check(label, control) {
  return h("label", { class: "check" }, control, h("span", {}, label));
}

export function select(options, value, properties = {}) {
  return h(
    "select",
    properties,
    Object.entries(options).map(([key, label]) => h("option", { value: key, selected: key === String(value) }, label)),
  );
}

export function pairs(entries) {
  return h(
    "dl",
    { class: "pairs" },
    entries.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

export function card(title, { actions = [], body, id } = {}) {
  return h(
    "section",
    { class: "card", id, "aria-label": title },
    h("div", { class: "card-head" }, h("h2", {}, title), h("div", { class: "actions" }, actions)),
    body,
  );
}

export function tabs(items, current, href) {
  const links = Object.entries(items).map(([key, label]) =>
    h("a", { href: href(key), "aria-current": key === current ? "page" : null }, label),
  );
  const node = h("nav", { class: "tabs", "aria-label": "Parts of this screen" }, links);
  // On a narrow page the tabs scroll: show the current one.
  const shown = links[Object.keys(items).indexOf(current)];
  requestAnimationFrame(() => {
    node.scrollLeft = shown.offsetLeft - links[0].offsetLeft - 24;
  });
  return node;
}

/** Buttons of which one is pressed: the views of one thing. `choose` gets the label. */
export function segments(label, options, current, choose) {
  const buttons = options.map((option) =>
    h(
      "button",
      { type: "button", "aria-pressed": String(option === current), on: { click: () => press(option) } },
      option,
    ),
  );
  const press = (option) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === option));
    choose(option);
  };
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

/** A button that opens a list of further actions, each made by `action()`. */
export function moreActions(label, ...actions) {
  const list = h("div", { class: "menu", popover: "auto" }, actions);
  const button = iconButton("more", label, () => list.togglePopover({ source: button }));
  list.addEventListener("beforetoggle", () => {
    const at = button.getBoundingClientRect();
    list.style.setProperty("top", `${at.bottom + 4}px`);
    list.style.setProperty("right", `${document.documentElement.clientWidth - at.right}px`);
  });
  list.addEventListener("click", () => list.hidePopover());
  return h("span", { class: "more" }, button, list);
}

export function iconButton(name, label, run) {
  return h(
    "button",
    { class: "icon-only plain", type: "button", title: label, "aria-label": label, on: { click: run } },
    icon(name),
  );
}

export { replace };
