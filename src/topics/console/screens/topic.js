// One topic: its figures, and a tab for each thing to see or do.

import { del, get, topicPath } from "../lib/api.js";
import { sparkline } from "../lib/chart.js";
import { confirmDestroy } from "../lib/dialog.js";
import { h, replace } from "../lib/dom.js";
import { ago, bytes, count, duration, plural, rate, time } from "../lib/format.js";
import { action, figures, moreActions, tabs, tag, toast } from "../lib/widgets.js";
import { archiveTab } from "./topic_archive.js";
import { configTab } from "./topic_config.js";
import { groupsTab, partitionsTab } from "./topic_parts.js";
import { recordsTab } from "./topic_records.js";
import { sendRecord } from "./topic_send.js";
import { tailTab } from "./topic_tail.js";
import { timelineTab } from "./topic_timeline.js";

const TABS = {
  records: ["Records", recordsTab],
  tail: ["Live tail", tailTab],
  timeline: ["Losses and deletes", timelineTab],
  partitions: ["Partitions", partitionsTab],
  groups: ["Groups", groupsTab],
  archive: ["Archive", archiveTab],
  config: ["Configuration", configTab],
};

export const title = ({ topic }) => topic;

export async function open(screen, { topic }) {
  const current = TABS[screen.value("tab")] ? screen.value("tab") : "records";
  let info = await get(`${topicPath(topic)}?touch=false`, { signal: screen.signal });
  const name = info.topic;
  const body = h("div", { class: "grid" });
  const numbers = figures({
    rate: "Rate",
    records: "Records",
    bytes: "Bytes",
    head: "Head seq",
    write: "Last write",
    read: "Last read",
  });
  const labels = Object.fromEntries(Object.entries(TABS).map(([key, [label]]) => [key, label]));
  const state = {
    screen,
    name,
    get info() {
      return info;
    },
    body,
    refresh: () => run(),
  };
  screen.show(
    h(
      "div",
      { class: "head" },
      h("a", { class: "crumb", href: "#/topics" }, "Topics"),
      h("span", { class: "crumb", "aria-hidden": "true" }, "/"),
      h("h1", {}, name),
      tag(info.type, info.type === "queue" ? "info" : ""),
      tag(info.config.durability),
      info.partitions?.length ? tag(plural(info.partitions.length, "partition")) : null,
      h(
        "div",
        { class: "actions" },
        info.type === "queue"
          ? h("a", { class: "button", href: `#/queues/${encodeURIComponent(name)}` }, "Open as queue")
          : null,
        action("Send a record", {
          kind: "primary",
          scope: "write",
          name,
          run: () => sendRecord(info, {}, () => state.refresh()),
        }),
        moreActions(
          "More actions",
          action("Delete topic", { kind: "danger", scope: "delete", name, run: () => drop(screen, info) }),
        ),
      ),
    ),
    numbers.node,
    tabs(labels, current, (key) => `#/topics/${encodeURIComponent(name)}?tab=${key}`),
    body,
  );

  let before = null;
  const rates = [];
  const moment = (ts) => (ts ? `at ${time(ts).slice(0, -4)}` : "\u00a0");
  const run = screen.poll(async () => {
    info = await get(`${topicPath(name)}?touch=false`, { signal: screen.signal });
    const now = performance.now();
    const heads = info.partitions?.length
      ? info.partitions.reduce((sum, each) => sum + each.head_seq, 0)
      : info.head_seq;
    if (before) rates.push(((heads - before.heads) * 1000) / (now - before.now));
    numbers.set("rate", rate(rates.at(-1)), "records appended");
    before = { heads, now };
    numbers.set(
      "records",
      count(info.count),
      [
        info.config.cap_records ? `cap ${count(info.config.cap_records)}` : "no cap",
        info.config.ttl_ms ? `kept ${duration(info.config.ttl_ms)}` : "",
      ]
        .filter(Boolean)
        .join(", "),
    );
    numbers.set("bytes", bytes(info.bytes), info.config.cap_bytes ? `cap ${bytes(info.config.cap_bytes)}` : "no cap");
    numbers.set(
      "head",
      count(info.head_seq),
      info.partitions?.length ? "of partition 0" : `earliest ${count(info.earliest_seq)}`,
    );
    numbers.set("write", info.last_write_ts ? ago(info.last_write_ts) : "never", moment(info.last_write_ts));
    numbers.set("read", info.last_read_ts ? ago(info.last_read_ts) : "never", moment(info.last_read_ts));
    numbers.draw("rate", sparkline(rates.slice(-40)));
  });
  replace(body);
  await TABS[current][1](state);
}

async function drop(screen, info) {
  await confirmDestroy(`Delete ${info.topic}`, {
    what: `This deletes the topic with ${plural(info.count, "record")} (${bytes(info.bytes)}), its consumer groups, and the routers from and to it. It cannot be undone.`,
    name: info.topic,
    label: "Delete topic",
    run: async () => {
      const answer = await del(topicPath(info.topic));
      const routers = answer.routers_removed.length ? ` Routers removed: ${answer.routers_removed.join(", ")}.` : "";
      toast(`Deleted ${info.topic}.${routers}`);
      screen.navigate("#/topics");
    },
  });
}
