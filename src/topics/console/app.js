// The frame around the screens: navigation, search, keys, theme, the state of the connection, and signing in.

import { ApiError, events, get, lost, query, setCredential, signedIn } from "./lib/api.js";
import { openDialog } from "./lib/dialog.js";
import { h, icon, replace, setText } from "./lib/dom.js";
import { count, duration } from "./lib/format.js";
import { Screen } from "./lib/screen.js";
import { forbidden, loadMe, me } from "./lib/session.js";
import { errorBox, iconButton, toast } from "./lib/widgets.js";
import { signIn } from "./screens/sign_in.js";

// In the order of the side bar, with the second key of "g" and the key.
const NAVIGATION = [
  ["/", "Overview", "overview", "o"],
  ["/topics", "Topics", "topics", "t"],
  ["/queues", "Queues", "queues", "q"],
  ["/groups", "Groups", "groups", "g"],
  ["/routes", "Routes", "routes", "r"],
  ["/pipelines", "Pipelines", "pipelines", "p"],
  ["/live", "Live", "live", "l"],
  ["/sql", "SQL", "sql", "s"],
  ["/settings", "Settings", "settings", "e"],
];
// Patterns of screens; `:name` matches one part of the path. A screen is loaded when it is opened first.
const SCREENS = [
  ["/", () => import("./screens/overview.js")],
  ["/topics", () => import("./screens/topics.js")],
  ["/topics/:topic", () => import("./screens/topic.js")],
  ["/queues", () => import("./screens/queues.js")],
  ["/queues/:topic", () => import("./screens/queue.js")],
  ["/groups", () => import("./screens/groups.js")],
  ["/groups/:topic/:group", () => import("./screens/groups.js")],
  ["/routes", () => import("./screens/routes.js")],
  ["/pipelines", () => import("./screens/pipelines.js")],
  ["/live", () => import("./screens/live.js")],
  ["/sql", () => import("./screens/sql.js")],
  ["/settings", () => import("./screens/settings.js")],
];
const THEMES = { light: "dark", dark: "system", system: "light" };
const SEARCH_DELAY_MS = 120;
const CHORD_MS = 1200;

const main = document.getElementById("main");
let screen = null;
let asking = false;

// Places

function place() {
  const [path, parameters = ""] = location.hash.slice(1).split("?");
  return [path || "/", new URLSearchParams(parameters)];
}

/** The parts of a path; none when the address is not valid. */
function decoded(parts) {
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return [];
  }
}

function match(path) {
  const parts = decoded(path.split("/"));
  for (const [pattern, load] of SCREENS) {
    const wanted = pattern.split("/");
    if (wanted.length !== parts.length) continue;
    const names = {};
    if (
      wanted.every((part, index) =>
        part.startsWith(":") ? ((names[part.slice(1)] = parts[index]), true) : part === parts[index],
      )
    ) {
      return [load, names];
    }
  }
  return [null, {}];
}

export function navigate(hash) {
  if (location.hash === hash) open();
  else location.hash = hash;
}

async function open() {
  if (asking) return;
  const [path, parameters] = place();
  screen?.abort.abort();
  document.body.classList.remove("menu-open");
  document.querySelector(".scrim")?.remove();
  const [load, names] = match(path);
  const top = `/${path.split("/")[1] ?? ""}`;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.path === top) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  // Another address may be opened while this one waits: it has a screen of its own, and ends this one.
  const opened = new Screen(main, path, parameters, navigate);
  screen = opened;
  if (load === null) {
    opened.show(
      h("h1", {}, "No such screen"),
      h("p", {}, "The address names no screen. ", h("a", { href: "#/" }, "Go to the overview"), "."),
    );
    return;
  }
  try {
    const [module] = await Promise.all([loaded(load), me.known ? null : identify()]);
    if (opened.signal.aborted) return;
    document.title = `${module.title(names)} · topics`;
    await module.open(opened, names);
    loadAll();
  } catch (error) {
    if (opened.signal.aborted || error.name === "AbortError" || error.status === 401) return;
    opened.show(errorBox(error));
    if (error.code === "offline" || error.status === 503) {
      events.addEventListener("online", open, { once: true, signal: opened.signal });
    }
  }
}

async function loaded(load) {
  try {
    return await load();
  } catch {
    lost();
    throw new ApiError(0, "offline", "The server does not answer.");
  }
}

/** Load the screens that were not opened yet, so that they open at once, also while the server restarts. */
function loadAll() {
  for (const [, load] of SCREENS) load().catch(() => {});
}

// Identity

async function identify() {
  await loadMe();
  const signOut = () => {
    setCredential(null);
    me.known = false;
    open();
  };
  const free = !me.credentials_required;
  const title = free ? "Every client that reaches this server may do everything" : `Scopes: ${me.scopes.join(", ")}`;
  replace(
    document.getElementById("who"),
    h(
      "a",
      { class: `who ${free ? "open-access" : ""}`, href: "#/settings", title },
      free ? icon("unlocked") : null,
      free ? "Open access" : me.name,
    ),
    signedIn() ? h("button", { class: "small", type: "button", on: { click: signOut } }, "Sign out") : null,
  );
  showVersion();
}

async function askToSignIn(reason) {
  if (asking) return;
  asking = true;
  screen?.abort.abort();
  const expired = signedIn();
  setCredential(null);
  me.known = false;
  replace(document.getElementById("who"), h("span", {}, "Not signed in"));
  document.title = "Sign in · topics";
  await signIn(main, expired ? reason : "");
  asking = false;
  open();
}

// Frame

function drawFrame() {
  replace(
    document.getElementById("nav"),
    h(
      "ul",
      {},
      NAVIGATION.map(([path, label, name, key]) =>
        h(
          "li",
          {},
          h(
            "a",
            { href: `#${path}`, "data-path": path, title: `g ${key}` },
            icon(name),
            label,
            path === "/" ? h("span", { class: "badge", id: "warning-count", hidden: true }) : null,
          ),
        ),
      ),
    ),
  );
  replace(
    document.getElementById("foot"),
    h("div", { class: "connection", id: "connection" }, h("span", { class: "dot idle" }), h("span", {}, "Connecting")),
    h("div", { class: "connection", id: "who" }),
    h("div", { class: "muted", id: "version" }, "\u00a0"),
  );
  const menu = iconButton("menu", "Menu", toggleMenu);
  menu.classList.add("menu-button");
  replace(
    document.getElementById("topbar"),
    menu,
    searchBox(),
    h(
      "div",
      { class: "topbar-actions" },
      iconButton("theme", "Theme: light, dark or that of the system", nextTheme),
      iconButton("help", "Keyboard shortcuts (?)", showKeys),
    ),
  );
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
}

function toggleMenu() {
  if (!document.body.classList.toggle("menu-open")) {
    document.querySelector(".scrim")?.remove();
    return;
  }
  document.body.append(
    h("button", { class: "scrim", type: "button", "aria-label": "Close the menu", on: { click: toggleMenu } }),
  );
  document.querySelector("#nav a").focus();
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "system";
  const next = THEMES[now];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("topics.theme", next);
  } catch {
    // Storage can be blocked: the choice lasts as long as the page.
  }
  toast(`Theme: ${next}.`);
}

function setConnection(kind, text) {
  const area = document.getElementById("connection");
  area.firstChild.className = `dot ${kind}`;
  setText(area.lastChild, text);
}

async function showVersion() {
  try {
    const health = await get("/v0/health");
    setConnection("", "Connected");
    setText(document.getElementById("version"), `topics ${health.version}, up ${duration(health.uptime_ms)}`);
    if (me.known && !forbidden("read")) {
      const { warnings } = await get("/v0/overview");
      events.dispatchEvent(new CustomEvent("warnings", { detail: warnings }));
    }
  } catch {
    // The events below say what happened.
  }
}

// The number of warnings, beside the overview in the side bar.
events.addEventListener("warnings", ({ detail: warnings }) => {
  const badge = document.getElementById("warning-count");
  badge.hidden = !warnings.length;
  badge.classList.toggle(
    "critical",
    warnings.some((each) => each.severity === "critical"),
  );
  badge.title = `${count(warnings.length)} need attention`;
  setText(badge, count(warnings.length));
});
events.addEventListener("unauthorized", ({ detail }) => askToSignIn(detail));
events.addEventListener("offline", () => {
  setConnection("bad", "Connection lost");
  replace(
    document.getElementById("banner"),
    h("div", { class: "banner" }, "Connection lost. What you see may be old; the console reconnects by itself."),
  );
});
events.addEventListener("online", ({ detail }) => {
  const text = detail.restarted
    ? `Reconnected. The server was restarted ${duration(detail.uptime)} ago.`
    : `Reconnected after ${duration(detail.outage)}.`;
  const note = h("div", { class: "banner good" }, text);
  replace(document.getElementById("banner"), note);
  setTimeout(() => note.remove(), 8000);
  showVersion();
});

// Search

function searchBox() {
  const input = h("input", {
    type: "search",
    id: "search",
    placeholder: "Search topics",
    "aria-label": "Search topics",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "results",
    "aria-autocomplete": "list",
    autocomplete: "off",
  });
  const results = h("div", {
    class: "results",
    id: "results",
    role: "listbox",
    "aria-label": "Topics found",
    hidden: true,
  });
  let timer = 0;
  let found = [];
  let chosen = 0;

  const close = () => {
    results.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const go = (index) => {
    const name = found[index]?.topic;
    if (!name) return;
    close();
    input.value = "";
    input.blur();
    navigate(`#/topics/${encodeURIComponent(name)}`);
  };
  const mark = () => {
    [...results.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === chosen)));
    if (found.length) input.setAttribute("aria-activedescendant", `result-${chosen}`);
    results.children[chosen]?.scrollIntoView({ block: "nearest" });
  };
  const look = async () => {
    const text = input.value.trim();
    if (!text) {
      close();
      return;
    }
    try {
      const answer = await get(`/v0/topic-search${query({ q: text, limit: 12 })}`);
      if (input.value.trim() !== text) return;
      found = answer.topics;
      chosen = 0;
      replace(
        results,
        ...found.map((each, index) =>
          h(
            "div",
            {
              role: "option",
              id: `result-${index}`,
              on: { mousedown: (event) => event.preventDefault(), click: () => go(index) },
            },
            h("span", {}, each.topic),
            h("span", { class: "muted" }, `${each.type}, ${count(each.count)}`),
          ),
        ),
        found.length ? null : h("div", { role: "option", "aria-disabled": "true" }, "No topic has this in its name"),
      );
      results.hidden = false;
      input.setAttribute("aria-expanded", "true");
      mark();
    } catch {
      close();
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, SEARCH_DELAY_MS);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.max(0, Math.min(found.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      mark();
    } else if (event.key === "Enter") {
      go(chosen);
    } else if (event.key === "Escape") {
      input.value = "";
      input.blur();
    }
  });
  return h("div", { class: "search" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/"), results);
}

// Keys

function showKeys() {
  const row = (keys, text) => [
    h(
      "span",
      {},
      keys.map((key) => h("kbd", {}, key)),
    ),
    h("span", {}, text),
  ];
  openDialog("Keyboard shortcuts", {
    body: h(
      "div",
      { class: "keys" },
      row(["/"], "Search topics"),
      NAVIGATION.flatMap(([, label, , key]) => row(["g", key], label)),
      row(["j", "k"], "Next and previous row"),
      row(["Enter"], "Open the row"),
      row(["t"], "Change the theme"),
      row(["?"], "This list"),
      row(["Esc"], "Close"),
    ),
  });
}

function moveInRows(step) {
  const rows = [...main.querySelectorAll("tbody tr")].filter(
    (row) => row.offsetParent !== null && (row.hasAttribute("tabindex") || row.querySelector("a[href]")),
  );
  if (!rows.length) return;
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.max(0, Math.min(rows.length - 1, now + step))];
  (next.hasAttribute("tabindex") ? next : next.querySelector("a[href]")).focus();
}

let chord = 0;
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (Date.now() - chord < CHORD_MS) {
    chord = 0;
    const target = NAVIGATION.find(([, , , key]) => key === event.key);
    if (target) {
      event.preventDefault();
      navigate(`#${target[0]}`);
    }
    return;
  }
  if (event.key === "g") chord = Date.now();
  else if (event.key === "/") {
    event.preventDefault();
    document.getElementById("search").focus();
  } else if (event.key === "?") showKeys();
  else if (event.key === "t") nextTheme();
  else if (event.key === "j") moveInRows(1);
  else if (event.key === "k") moveInRows(-1);
});

window.addEventListener("hashchange", open);
drawFrame();
open();
showVersion();
setInterval(() => document.hidden || showVersion(), 30_000);
