// Consumer groups: lag in records and seconds, members and partitions, and seeking with a preview.

import { get, post, query } from "../lib/api.js";
import { History, lineChart } from "../lib/chart.js";
import { confirmDestroy, openDialog } from "../lib/dialog.js";
import { h, replace, setText } from "../lib/dom.js";
import { ago, count, duration, plural, short, time } from "../lib/format.js";
import { me } from "../lib/session.js";
import { curl, dropGroup } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, empty, field, figures, moreActions, select, tag, toast } from "../lib/widgets.js";

export const title = ({ topic, group }) => (group ? `${group} of ${topic}` : "Groups");

export const open = (screen, names) => (names.group ? openGroup(screen, names) : openList(screen));

function lagTag({ lag_records: lag, lag_seconds: seconds }) {
  if (!lag) return tag("caught up", "good");
  return tag(`${short(lag)} behind`, seconds > 60 ? "bad" : "warn");
}

async function openList(screen) {
  const search = h("input", {
    type: "search",
    placeholder: "Filter by topic or group",
    "aria-label": "Filter by topic or group",
    value: screen.value("q"),
  });
  const total = h("span", { class: "muted num" }, "\u00a0");
  const table = dataTable({
    label: "Consumer groups",
    key: (each) => `${each.topic} ${each.group_id}`,
    columns: [
      {
        title: "Group",
        cell: (each) =>
          h(
            "a",
            { href: `#/groups/${encodeURIComponent(each.topic)}/${encodeURIComponent(each.group_id)}` },
            each.group_id,
          ),
      },
      {
        title: "Topic",
        class: "grow",
        cell: (each) => h("a", { href: `#/topics/${encodeURIComponent(each.topic)}` }, each.topic),
      },
      { title: "State", cell: lagTag },
      { title: "Lag", class: "right", cell: (each) => count(each.lag_records) },
      { title: "Behind", class: "right", cell: (each) => duration(each.lag_seconds * 1000) },
      { title: "Members", class: "right", cell: (each) => count(each.members.length) },
      { title: "Partitions", class: "right", cell: (each) => count(each.partitions.length) },
      { title: "Last ack", class: "right", cell: (each) => ago(each.updated_ts) },
    ],
    empty: () =>
      search.value
        ? empty("Nothing found", "No group matches the filter.")
        : empty(
            "There are no consumer groups yet",
            "A group begins with its first poll of a topic. Paste this into a shell:",
            curl(
              "POST",
              "/v0/topics/hello",
              { records: [{ data: { text: "first record" } }] },
              { key: me.credentials_required },
            ),
            curl(
              "POST",
              "/api/topics/consume",
              { topic: "hello", group_id: "my-group", limit: 10 },
              { key: me.credentials_required },
            ),
          ),
  });
  screen.showWhenLoaded(
    h("div", { class: "head" }, h("h1", {}, "Consumer groups"), total, h("div", { class: "actions" }, search)),
    h("section", { class: "card", "aria-label": "All groups" }, table.node),
  );
  const run = screen.poll(async () => {
    const answer = await get(`/api/groups${query({ q: search.value.trim(), limit: 500 })}`, { signal: screen.signal });
    setText(
      total,
      answer.total > answer.groups.length
        ? `the ${answer.groups.length} with most lag of ${count(answer.total)}`
        : plural(answer.total, "group"),
    );
    table.update(answer.groups);
  });
  search.addEventListener("input", () => {
    screen.setValues({ q: search.value.trim() });
    run();
  });
}

async function openGroup(screen, { topic, group: id }) {
  const numbers = figures({
    state: "State",
    lag: "Lag",
    behind: "Behind",
    members: "Members",
    partitions: "Partitions",
    ack: "Last ack",
  });
  const history = new History();
  const chart = lineChart({
    title: "Lag in records",
    series: [{ label: "Lag", key: "lag_records" }],
    format: short,
    counts: true,
    height: 140,
  });
  const seconds = lineChart({
    title: "Lag in time",
    series: [{ label: "Behind", key: "lag_ms" }],
    format: duration,
    times: true,
    height: 140,
  });
  const partitions = dataTable({
    label: "Partitions",
    key: (each) => each.partition_id,
    columns: [
      { title: "Partition", class: "right", cell: (each) => String(each.partition_id) },
      { title: "Owner", class: "grow", cell: (each) => each.consumer_id ?? "–" },
      { title: "Next offset", class: "right", cell: (each) => count(each.next_offset) },
      { title: "Last offset", class: "right", cell: (each) => count(each.last_offset) },
      { title: "Lag", class: "right", cell: (each) => count(each.lag_records) },
      { title: "Behind", class: "right", cell: (each) => duration(each.lag_seconds * 1000) },
    ],
    empty: () => empty("No positions yet", "The group has not polled a partition."),
  });
  const members = dataTable({
    label: "Members",
    key: (each) => each.consumer_id,
    columns: [
      { title: "Member", class: "grow", cell: (each) => each.consumer_id },
      { title: "Partitions", cell: (each) => each.partitions.join(", ") || "none" },
      {
        title: "Session",
        class: "num",
        cell: (each) => (each.polling ? "polls now" : `ends in ${duration(each.expires_in_ms)}`),
      },
      {
        title: "",
        class: "actions",
        once: true,
        cell: (first, item) =>
          action("End session", {
            kind: "small danger",
            scope: "read+write",
            name: topic,
            run: () =>
              confirmDestroy(`End the session of ${item().consumer_id}`, {
                what: `Its ${plural(item().partitions.length, "partition")} go to the other members. A member that still runs joins again with its next poll.`,
                name: item().consumer_id,
                label: "End session",
                run: async () => {
                  await post("/api/topics/leave", { topic, group_id: id, consumer_id: item().consumer_id });
                  toast(`Ended the session of ${item().consumer_id}.`);
                  run();
                },
              }),
          }),
      },
    ],
    empty: () => empty("No live members", "Polls without consumer_id do not count as members."),
  });
  screen.showWhenLoaded(
    h(
      "div",
      { class: "head" },
      h("a", { class: "crumb", href: "#/groups" }, "Groups"),
      h("span", { class: "crumb", "aria-hidden": "true" }, "/"),
      h("h1", {}, id),
      h("span", { class: "muted" }, "of ", h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic)),
      h(
        "div",
        { class: "actions" },
        action("Seek", { kind: "primary", scope: "read+write", name: topic, run: () => seek(topic, id, () => run()) }),
        moreActions(
          "More actions",
          action("Drop group", { kind: "danger", scope: "delete", name: topic, run: () => drop(screen, topic, id) }),
        ),
      ),
    ),
    numbers.node,
    h("div", { class: "grid cols-2" }, chart.node, seconds.node),
    h(
      "div",
      { class: "grid cols-2" },
      card("Partitions", { body: partitions.node }),
      card("Members", { body: members.node }),
    ),
  );
  const run = screen.poll(async () => {
    const answer = await get(`/api/groups${query({ topic, group: id })}`, { signal: screen.signal });
    const group = answer.groups[0];
    if (!group) {
      screen.pending = null;
      screen.show(empty(`There is no group ${id}`, `The topic ${topic} has no such group. It may have been dropped.`));
      screen.abort.abort();
      return;
    }
    numbers.set("state", group.lag_records ? "behind" : "caught up", `of ${topic}`);
    numbers.set("lag", count(group.lag_records), "records");
    numbers.set("behind", duration(group.lag_seconds * 1000), "age of the next record");
    numbers.set("members", count(group.members.length), "live sessions");
    numbers.set("partitions", count(group.partitions.length), "with a position");
    numbers.set(
      "ack",
      ago(group.updated_ts),
      group.updated_ts ? `at ${time(group.updated_ts).slice(0, -4)}` : "\u00a0",
    );
    const samples = history.add({ ts: Date.now(), lag_records: group.lag_records, lag_ms: group.lag_seconds * 1000 });
    chart.update(samples);
    seconds.update(samples);
    partitions.update(group.partitions);
    members.update(group.members);
  }, 1500);
}

async function drop(screen, topic, id) {
  const { groups } = await get(`/api/groups${query({ topic, group: id })}`, { signal: screen.signal });
  const { partitions = [], members = [] } = groups[0] ?? {};
  await confirmDestroy(`Drop the group ${id} of ${topic}`, {
    what: `This forgets ${plural(partitions.length, "position")} and ends ${plural(members.length, "session")}. Records stay. A consumer that still runs begins a new group with its next poll.`,
    name: id,
    label: "Drop group",
    run: async () => {
      await post("/api/sql", { sql: dropGroup(topic, id) });
      toast(`Dropped the group ${id} of ${topic}.`);
      screen.navigate("#/groups");
    },
  });
}

async function seek(topic, id, done) {
  const where = select(
    { Earliest: "The beginning", Latest: "The end", Offset: "An offset", Timestamp: "A time" },
    "Earliest",
    { "data-role": "where" },
  );
  const offset = h("input", { type: "number", min: "0", value: "1" });
  const moment = h("input", { type: "datetime-local", step: "1" });
  const partition = h("input", { type: "number", min: "0", placeholder: "All" });
  const offsetField = field("Offset", offset);
  const momentField = field("Time", moment);
  const plan = h("div", { role: "status" });
  const request = () => {
    const to =
      where.value === "Offset"
        ? { Offset: Number(offset.value) }
        : where.value === "Timestamp"
          ? { Timestamp: new Date(moment.value).getTime() }
          : where.value;
    return { topic, group_id: id, to, ...(partition.value === "" ? {} : { partition_id: Number(partition.value) }) };
  };
  const preview = async () => {
    offsetField.hidden = where.value !== "Offset";
    momentField.hidden = where.value !== "Timestamp";
    if (where.value === "Timestamp" && !moment.value) {
      replace(plan, h("p", { class: "muted" }, "Choose a time."));
      return;
    }
    try {
      const answer = await post("/api/topics/seek", { ...request(), dry_run: true });
      const lines = answer.partitions.map(
        (each) =>
          `Partition ${each.partition_id}: from ${each.previous_offset ?? "none"} to ${each.next_offset}, then ${plural(each.lag_records, "record")} behind`,
      );
      replace(
        plan,
        h(
          "div",
          { class: "note-box" },
          h("strong", {}, "Nothing is changed yet. After the seek:"),
          h(
            "ul",
            {},
            lines.map((line) => h("li", {}, line)),
          ),
        ),
      );
    } catch (error) {
      replace(plan, h("div", { class: "note-box warn" }, `${error.message} ${error.next ?? ""}`));
    }
  };
  for (const control of [where, offset, moment, partition]) control.addEventListener("input", preview);
  preview();
  const moved = await openDialog(`Seek ${id} of ${topic}`, {
    body: [
      h(
        "div",
        { class: "fields" },
        field("Go on from", where),
        offsetField,
        momentField,
        field("Partition", partition),
      ),
      plan,
    ],
    label: "Seek",
    submit: () => post("/api/topics/seek", request()),
  });
  if (moved) {
    toast(`Moved ${plural(moved.partitions.length, "partition")} of ${id}.`);
    done();
  }
}
