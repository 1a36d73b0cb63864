// What a screen gets: its place in the page, its part of the URL, and polling that ends when it is left.

import { events, isOnline } from "./api.js";
import { replace } from "./dom.js";
import { errorBox } from "./widgets.js";

export class Screen {
  constructor(root, path, parameters, navigate) {
    this.root = root;
    this.path = path;
    this.parameters = parameters;
    this.navigate = navigate;
    this.abort = new AbortController();
    this.pending = null;
  }

  get signal() {
    return this.abort.signal;
  }

  /** Show these nodes as the content of the screen. */
  show(...nodes) {
    replace(this.root, ...nodes);
  }

  /** Show these nodes when the first poll has filled them: nothing moves under the eyes of the reader. */
  showWhenLoaded(...nodes) {
    this.pending = nodes;
  }

  reveal() {
    if (this.pending) this.show(...this.pending);
    this.pending = null;
  }

  /** The value of a parameter in the URL. */
  value(name, otherwise = "") {
    return this.parameters.get(name) ?? otherwise;
  }

  /** The address of this screen with these parameters changed. */
  address(values) {
    const parameters = new URLSearchParams(this.parameters);
    for (const [name, value] of Object.entries(values)) {
      if (value === "" || value === null || value === undefined) parameters.delete(name);
      else parameters.set(name, value);
    }
    const text = parameters.toString();
    return `#${this.path}${text ? `?${text}` : ""}`;
  }

  /** Change parameters in the URL without leaving the screen; `push` adds an entry to the history. */
  setValues(values, { push = false } = {}) {
    const url = this.address(values);
    this.parameters = new URLSearchParams(url.split("?")[1] ?? "");
    if (push) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  }

  /**
   * Call `load` now and every `ms` while the screen is open, the page is visible and the server answers.
   * Answers a function that calls it at once. An error of the first call is shown in place of the screen.
   */
  poll(load, ms = 2000) {
    let timer = 0;
    let first = true;
    let running = false;
    let again = false;
    const run = async () => {
      if (this.signal.aborted) return;
      if (running) {
        again = true;
        return;
      }
      clearTimeout(timer);
      running = true;
      try {
        if (isOnline() && (first || !document.hidden)) {
          await load();
          first = false;
          if (!this.signal.aborted) this.reveal();
        }
      } catch (error) {
        if (error.name === "AbortError" || this.signal.aborted) return;
        if (error.status === 401) return;
        if (first && error.code !== "offline") {
          this.show(errorBox(error));
          return;
        }
      } finally {
        running = false;
      }
      if (again) {
        again = false;
        run();
        return;
      }
      if (!this.signal.aborted) timer = setTimeout(run, ms);
    };
    const now = () => run();
    events.addEventListener("online", now, { signal: this.signal });
    document.addEventListener("visibilitychange", () => document.hidden || run(), { signal: this.signal });
    this.signal.addEventListener("abort", () => clearTimeout(timer));
    run();
    return run;
  }
}
