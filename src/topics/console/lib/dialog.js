// Dialogs: a form, and the confirmation of what cannot be undone.

import { h, replace } from "./dom.js";
import { errorBox, field } from "./widgets.js";

/**
 * Open a dialog with a form. `submit` may raise: the dialog then stays open and shows the error.
 * Resolves to what `submit` returned, or to undefined when the dialog was closed.
 */
export function openDialog(title, { body, submit, label = "Save", danger = false, wide = false, ready = () => true }) {
  return new Promise((resolve) => {
    const problem = h("div");
    const button = h("button", { class: `primary ${danger ? "danger" : ""}`, type: "submit" }, label);
    const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, submit ? "Cancel" : "Close");
    let result;
    const form = h(
      "form",
      {
        method: "dialog",
        on: {
          input: () => (button.disabled = !ready()),
          submit: async (event) => {
            event.preventDefault();
            if (!submit || !ready()) return;
            button.disabled = true;
            try {
              result = await submit();
              dialog.close();
            } catch (error) {
              replace(problem, errorBox(error));
            }
            button.disabled = !ready();
          },
        },
      },
      h("h2", { id: "dialog-title" }, title),
      body,
      problem,
      h("div", { class: "actions" }, cancel, submit ? button : null),
    );
    const dialog = h(
      "dialog",
      {
        class: wide ? "wide" : "",
        "aria-labelledby": "dialog-title",
        on: {
          close: () => {
            dialog.remove();
            resolve(result);
          },
        },
      },
      form,
    );
    button.disabled = !ready();
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Ask before something is destroyed: shows what goes, and wants its name typed. */
export function confirmDestroy(title, { what, name, label, run }) {
  const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false", "data-role": "confirm-name" });
  return openDialog(title, {
    body: [h("p", {}, what), field(`Type ${name} to confirm`, typed)],
    label,
    danger: true,
    ready: () => typed.value === name,
    submit: run,
  });
}
