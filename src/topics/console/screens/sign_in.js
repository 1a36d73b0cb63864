// Signing in with a key, or with the name and the password of a user.

import { ApiError, setCredential } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { loadMe } from "../lib/session.js";
import { errorBox, field } from "../lib/widgets.js";

/** Resolves when the server has accepted a credential. `reason` says why the last one was refused. */
export function signIn(root, reason) {
  return new Promise((resolve) => {
    const key = h("input", { type: "password", autocomplete: "current-password", required: true, "data-role": "key" });
    const user = h("input", { type: "text", autocomplete: "username", "data-role": "user" });
    const password = h("input", { type: "password", autocomplete: "current-password", "data-role": "password" });
    const problem = h("div");

    const attempt = (work) => async (event) => {
      event.preventDefault();
      replace(problem);
      try {
        await work();
        resolve();
      } catch (error) {
        setCredential(null);
        replace(problem, errorBox(error));
      }
    };
    const withKey = attempt(async () => {
      setCredential(key.value.trim());
      await loadMe();
    });
    const withPassword = attempt(async () => {
      const response = await fetch("/api/auth/login", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ username: user.value, password: password.value }),
      });
      const answer = await response.json();
      if (!response.ok) throw new ApiError(response.status, answer.error.code, answer.error.message);
      setCredential(answer.access_token);
      await loadMe();
    });

    replace(
      root,
      h(
        "div",
        { class: "sign-in grid" },
        h("h1", {}, "Sign in"),
        reason ? h("div", { class: "note-box warn", role: "alert" }, `You were signed out: ${reason}.`) : null,
        problem,
        h(
          "section",
          { class: "card" },
          h(
            "form",
            { class: "form card-body", on: { submit: withKey } },
            h("h2", {}, "With an API key or a token"),
            field("Key", key, "It is kept in this tab only, and sent as a header."),
            h("button", { class: "primary", type: "submit" }, "Sign in"),
          ),
        ),
        h(
          "section",
          { class: "card" },
          h(
            "form",
            { class: "form card-body", on: { submit: withPassword } },
            h("h2", {}, "As a user"),
            field("Name", user),
            field("Password", password),
            h("button", { type: "submit" }, "Sign in as user"),
          ),
        ),
      ),
    );
    key.focus();
  });
}
