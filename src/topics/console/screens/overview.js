// Overview: how the server is doing, and what needs attention.

import { get } from "../lib/api.js";
import { lineChart } from "../lib/chart.js";
import { h, replace } from "../lib/dom.js";
import { bytes, count, duration, rate, short } from "../lib/format.js";
import { curl } from "../lib/snippets.js";
import { me } from "../lib/session.js";
import { card, empty, figures, tag } from "../lib/widgets.js";

const KINDS = { critical: ["bad", "Critical"], warning: ["warn", "Warning"], info: ["info", "Note"] };

export const title = () => "Overview";

export async function open(screen) {
  const numbers = figures({
    append: "Records appended",
    read: "Records read",
    records: "Records live",
    disk: "Disk",
    memory: "Memory",
    lag: "Loop lag now",
    connections: "Connections",
    topics: "Topics",
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
  screen.showWhenLoaded(
    h("div", { class: "head" }, h("h1", {}, "Overview")),
    numbers.node,
    card("Needs attention", { body: warnings, id: "warnings" }),
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
    numbers.set("disk", bytes(now.disk_free_bytes), `free of ${bytes(now.disk_total_bytes)}`);
    numbers.set("memory", bytes(now.memory_bytes), "resident");
    numbers.set("lag", duration(last.loop_lag_ms), `max ${duration(now.loop_lag_max_ms)} in 60 s`);
    numbers.set("connections", count(last.connections), `${count(last.streams)} live`);
    numbers.set("topics", count(now.topics), `up ${duration(now.uptime_ms)}`);
    for (const chart of [traffic, latency, written, streams]) chart.update(now.history);
    showWarnings(warnings, now.warnings);
    showBeginning(begin, now.topics);
  });
}

function showWarnings(place, warnings) {
  const rows = warnings.map((each) => {
    const [kind, label] = KINDS[each.severity];
    return h(
      "li",
      {},
      tag(label, kind),
      h("span", { class: "what" }, each.message),
      h("a", { href: target(each) }, "Look"),
    );
  });
  const next = rows.length
    ? h("ul", { class: "warnings" }, rows)
    : h(
        "p",
        { class: "card-body" },
        tag("All good", "good"),
        " No failed checkpoints, full disks, dead letters, lagging groups or stopped pipelines.",
      );
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
