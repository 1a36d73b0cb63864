// Settings of the server, its health, and who uses the console.

import { get, post } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { ago, count, duration } from "../lib/format.js";
import { forbidden, loadMe, me } from "../lib/session.js";
import { dataTable } from "../lib/table.js";
import { card, empty, pairs, tabs, tag } from "../lib/widgets.js";

const TABS = { who: "Who am I", health: "Health", settings: "Settings" };
const SCOPES = {
  read: "Read topics, queues, groups and metrics",
  write: "Append, claim and acknowledge",
  delete: "Delete records, topics and routers",
  admin: "Create and configure, see settings and connections",
  consume: "Move consumer groups",
};

export const title = () => "Settings";

export async function open(screen) {
  const current = TABS[screen.value("tab")] ? screen.value("tab") : "who";
  const body = h("div", { class: "grid" });
  screen.show(
    h("div", { class: "head" }, h("h1", {}, "Settings")),
    tabs(TABS, current, (key) => `#/settings?tab=${key}`),
    body,
  );
  await { who, health, settings }[current](screen, body);
}

async function who(screen, body) {
  await loadMe({ signal: screen.signal });
  const rows = Object.entries(SCOPES).map(([scope, text]) => ({ scope, text, granted: me.scopes.includes(scope) }));
  const table = dataTable({
    label: "Scopes",
    key: (each) => each.scope,
    columns: [
      { title: "Scope", cell: (each) => h("code", {}, each.scope) },
      { title: "Granted", cell: (each) => (each.granted ? tag("yes", "good") : tag("no", "bad")) },
      { title: "Allows", class: "grow wrap", cell: (each) => each.text },
    ],
  });
  table.update(rows);
  replace(
    body,
    card("Who am I", {
      body: h(
        "div",
        { class: "card-body" },
        pairs([
          ["Name", me.name],
          [
            "Credentials",
            me.credentials_required ? "required" : "not required: every client of this server may do everything",
          ],
          ["Names", me.prefixes.length ? `only those that begin with ${me.prefixes.join(" or ")}` : "all"],
          me.expires_ts ? ["Token ends", `in ${duration(Math.max(0, me.expires_ts - Date.now()))}`] : null,
        ]),
      ),
    }),
    card("Scopes", { body: table.node }),
  );
}

async function health(screen, body) {
  const reasons = dataTable({
    label: "Conditions",
    key: (each) => `${each.condition} ${each.subject}`,
    columns: [
      { title: "Condition", cell: (each) => tag(each.condition, "bad") },
      { title: "Reason", class: "grow wrap", cell: (each) => each.reason },
      { title: "File", cell: (each) => each.subject ?? "–" },
      { title: "Since", class: "right", cell: (each) => ago(each.since_ms) },
      { title: "Failures", class: "right", cell: (each) => count(each.failures) },
    ],
    empty: () => empty("Nothing fails", "Checkpoints, the disk and all segments are in order."),
  });
  const about = h("div", { class: "card-body" });
  replace(body, card("Server", { body: about }), card("Conditions", { body: reasons.node }));
  screen.poll(async () => {
    const options = { signal: screen.signal };
    const [ready, alive] = await Promise.all([get("/v0/ready", options), get("/v0/health", options)]);
    replace(
      about,
      pairs([
        ["State", ready.degraded ? tag("degraded", "bad") : tag("ready", "good")],
        ["Version", alive.version],
        ["Up", duration(alive.uptime_ms)],
        ["API reference", h("a", { href: "/docs" }, "/docs")],
        ["OpenAPI", h("a", { href: "/openapi.json" }, "/openapi.json")],
      ]),
    );
    reasons.update(ready.reasons ?? []);
  }, 3000);
}

async function settings(screen, body) {
  const reason =
    forbidden("read+admin") ||
    (me.prefixes.length ? "Settings concern the whole server: they need a key without prefixes." : "");
  if (reason) {
    replace(body, card("Settings", { body: empty("Not for this key", reason) }));
    return;
  }
  const answer = await post(
    "/api/sql",
    { sql: "SELECT name, place, value FROM system.settings" },
    { signal: screen.signal },
  );
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter settings" });
  const table = dataTable({
    label: "Settings",
    key: ([name]) => name,
    columns: [
      { title: "Variable", cell: ([name]) => h("code", {}, name) },
      { title: "server.toml", cell: ([, place]) => h("code", {}, place) },
      {
        title: "Value",
        class: "grow",
        cell: ([, , value]) => (value === null ? h("span", { class: "muted" }, "not set") : h("code", {}, value)),
      },
    ],
    empty: () => empty("Nothing found", "No setting has this in its name."),
  });
  const draw = () =>
    table.update(
      answer.rows.filter(([name, place]) => `${name} ${place}`.toLowerCase().includes(search.value.toLowerCase())),
    );
  search.addEventListener("input", draw);
  replace(body, card("Settings", { actions: [search], body: table.node }));
  draw();
}
