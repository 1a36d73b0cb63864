// Overview: how the server is doing, and what needs attention.

import { events, get } from "../lib/api.js";
import { lineChart, sparkline } from "../lib/chart.js";
import { h, icon, replace, setText } from "../lib/dom.js";
import { bytes, count, duration, rate, short } from "../lib/format.js";
import { curl } from "../lib/snippets.js";
import { me } from "../lib/session.js";
import { card, empty, figures } from "../lib/widgets.js";

const SEVERITIES = { critical: "Critical", warning: "Warning", info: "Note" };
// What the row of a warning opens.
const VERBS = {
  dead_letters: "Open dead letters",
  lagging_group: "Open group",
  pipeline: "Open pipeline",
  router: "Open routes",
};
const MAX_ROWS = 6;

const TRENDS = { append: "appended_per_s", read: "read_per_s", lag: "loop_lag_ms", connections: "connections" };

export const title = () => "Overview";

export async function open(screen) {
  const numbers = figures({
    append: "Appended",
    read: "Read",
    lag: "Loop lag",
    connections: "Connections",
    topics: "Topics",
    records: "Records",
    disk: "Disk free",
    memory: "Memory",
  });
  const traffic = lineChart({
    title: "Records per second",
    series: [
      { label: "Appended", key: "appended_per_s" },
      { label: "Read", key: "read_per_s" },
    ],
    format: rate,
  });
  const latency = lineChart({
    title: "Latency",
    series: [
      { label: "Loop lag", key: "loop_lag_ms" },
      { label: "Sync of the log, mean", key: "sync_ms" },
    ],
    format: duration,
    times: true,
  });
  const written = lineChart({
    title: "Log bytes per second",
    series: [{ label: "Written", key: "wal_bytes_per_s" }],
    binary: true,
    format: (value) => `${bytes(value)}/s`,
  });
  const streams = lineChart({
    title: "Connections",
    series: [
      { label: "All", key: "connections" },
      { label: "Live", key: "streams" },
    ],
    format: count,
    counts: true,
  });
  const warnings = h("div");
  const begin = h("div");
  const attention = card("Needs attention", { body: warnings, id: "warnings" });
  const badge = h("span", { class: "badge", hidden: true });
  attention.querySelector("h2").append(badge);
  screen.showWhenLoaded(
    h("div", { class: "head" }, h("h1", {}, "Overview")),
    numbers.node,
    attention,
    begin,
    h("div", { class: "grid cols-2" }, traffic.node, latency.node, written.node, streams.node),
  );
  replace(warnings, h("p", { class: "card-body muted" }, "Loading"));

  screen.poll(async () => {
    const now = await get("/v0/overview", { signal: screen.signal });
    // The figures show the newest sample of the charts. A server that just began has no sample yet.
    const last = now.history.at(-1) ?? now;
    numbers.set("append", rate(last.appended_per_s), `${short(now.records_appended_total)} in total`);
    numbers.set("read", rate(last.read_per_s), `${short(now.records_read_total)} in total`);
    numbers.set("records", short(now.records), bytes(now.bytes));
    numbers.set("disk", bytes(now.disk_free_bytes), `of ${bytes(now.disk_total_bytes)}`);
    numbers.set("memory", bytes(now.memory_bytes), "resident");
    numbers.set("lag", duration(last.loop_lag_ms), `max ${duration(now.loop_lag_max_ms)} in 60 s`);
    numbers.set("connections", count(last.connections), `${count(last.streams)} live`);
    numbers.set("topics", count(now.topics), `up ${duration(now.uptime_ms)}`);
    for (const [key, field] of Object.entries(TRENDS)) {
      numbers.draw(key, sparkline(now.history.map((sample) => sample[field])));
    }
    for (const chart of [traffic, latency, written, streams]) chart.update(now.history);
    setText(badge, count(now.warnings.length));
    badge.hidden = !now.warnings.length;
    events.dispatchEvent(new CustomEvent("warnings", { detail: now.warnings }));
    showWarnings(warnings, now.warnings);
    showBeginning(begin, now.topics);
  });
}

function showWarnings(place, warnings) {
  const rows = warnings.map((each) =>
    h(
      "li",
      {},
      h(
        "a",
        { class: `warning ${each.severity}`, href: target(each) },
        icon(each.severity),
        h("span", { class: "severity" }, SEVERITIES[each.severity]),
        h("span", { class: "what" }, each.message),
        h("span", { class: "verb" }, VERBS[each.kind] ?? "Open health"),
        icon("next"),
      ),
    ),
  );
  const rest = rows.splice(MAX_ROWS);
  const next = rows.length
    ? h(
        "div",
        {},
        h("ul", { class: "warnings" }, rows),
        rest.length
          ? h(
              "details",
              { class: "rest" },
              h("summary", {}, `${count(rest.length)} more`),
              h("ul", { class: "warnings" }, rest),
            )
          : null,
      )
    : h(
        "p",
        { class: "card-body all-good" },
        icon("good"),
        "All good: no failed checkpoints, full disks, dead letters, lagging groups or stopped pipelines.",
      );
  if (place.firstChild?.querySelector?.("details[open]")) next.querySelector("details")?.setAttribute("open", "");
  if (!place.firstChild?.isEqualNode(next)) replace(place, next);
}

/** The screen that shows what a warning is about. */
function target({ kind, topic, group }) {
  const name = encodeURIComponent(topic ?? "");
  if (kind === "dead_letters") return `#/queues/${name}?tab=dead`;
  if (kind === "lagging_group") return `#/groups/${name}/${encodeURIComponent(group)}`;
  if (kind === "pipeline") return "#/pipelines";
  if (kind === "router") return "#/routes";
  return "#/settings?tab=health";
}

function showBeginning(place, topics) {
  if (topics) {
    replace(place);
    return;
  }
  if (place.firstChild) return;
  const line = curl(
    "POST",
    "/v0/topics/hello",
    { records: [{ data: { text: "first record" } }] },
    { key: me.credentials_required },
  );
  replace(
    place,
    card("Begin here", {
      body: empty("There are no topics yet", "A topic is created by its first record. Paste this into a shell:", line),
    }),
  );
}
