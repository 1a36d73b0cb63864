// Topics: all of them, searched and sorted by the server; only the rows in view are fetched.

import { get, put, query, topicPath } from "../lib/api.js";
import { sparkline } from "../lib/chart.js";
import { openDialog } from "../lib/dialog.js";
import { h, setText } from "../lib/dom.js";
import { ago, bytes, count, duration, plural, rate, short } from "../lib/format.js";
import { me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { virtualTable } from "../lib/table.js";
import { action, empty, field, select, tag, toast, toastError } from "../lib/widgets.js";

export const title = () => "Topics";

// The dot says how much a crash can cost.
const CLASSES = { fsync: "", disk: "", memory: "warn", ephemeral: "idle" };
const MAX_TREND = 24;

export async function open(screen) {
  let sort = { by: screen.value("sort", "topic"), order: screen.value("order", "asc") };
  const search = h("input", {
    type: "search",
    placeholder: "Filter by name",
    "aria-label": "Filter by name",
    value: screen.value("q"),
  });
  const type = select({ "": "All types", log: "Logs", queue: "Queues" }, screen.value("type"), {
    "aria-label": "Type",
  });
  const total = h("span", { class: "muted num", "data-role": "total" }, "\u00a0");
  // Rates seen since the screen was opened, by topic.
  const trends = new Map();
  const fetchPage = async (offset, limit) => {
    const parameters = { q: search.value.trim(), type: type.value, sort: sort.by, order: sort.order, offset, limit };
    const answer = await get(`/v0/topic-search${query(parameters)}`, { signal: screen.signal });
    for (const each of answer.topics) {
      const trend = trends.get(each.topic) ?? [];
      trends.set(each.topic, [...trend, each.append_per_s].slice(-MAX_TREND));
    }
    return { total: answer.total, items: answer.topics };
  };
  const table = virtualTable({
    label: "Topics",
    columns: [
      {
        title: "Topic",
        sort: "topic",
        class: "grow",
        cell: (each) => h("a", { href: `#/topics/${encodeURIComponent(each.topic)}` }, each.topic),
      },
      {
        title: "Type",
        class: "hide-phone",
        cell: (each) => (each.type === "queue" ? tag("queue", "info") : dim("log")),
      },
      { title: "Rate", sort: "rate", class: "right", cell: (each) => rateCell(each, trends.get(each.topic)) },
      { title: "Records", sort: "count", class: "right", cell: (each) => dim(short(each.count), each.count) },
      { title: "Bytes", sort: "bytes", class: "right", cell: (each) => dim(bytes(each.bytes), each.bytes) },
      { title: "Class", cell: classCell },
      { title: "Partitions", class: "right", cell: (each) => count(each.partitions) },
      {
        title: "Groups",
        class: "right",
        cell: (each) => dim(each.groups ? count(each.groups) : "–", each.groups),
      },
      { title: "Lag", sort: "lag", class: "right", cell: lagCell },
      {
        title: "Lost",
        sort: "lost",
        class: "right",
        cell: (each) => (each.lost ? tag(short(each.lost), "warn") : dim("–")),
      },
      {
        title: "Last write",
        sort: "last_write_ts",
        class: "right",
        cell: (each) => (each.last_write_ts ? ago(each.last_write_ts) : dim("never")),
      },
    ],
    sort,
    onSort: (by) => {
      const first = by === "topic" ? "asc" : "desc";
      sort = { by, order: sort.by === by ? (sort.order === "asc" ? "desc" : "asc") : first };
      table.setSort(sort);
      screen.setValues({ sort: by, order: sort.order });
      table.reset();
    },
    fetchPage,
    onTotal: (value) => setText(total, plural(value, "topic")),
    onError: toastError,
    empty: () =>
      search.value || type.value
        ? empty("Nothing found", "No topic matches the filter.")
        : empty(
            "There are no topics yet",
            "A topic is created by its first record. Paste this into a shell:",
            curl(
              "POST",
              "/v0/topics/hello",
              { records: [{ data: { text: "first record" } }] },
              { key: me.credentials_required },
            ),
          ),
  });
  const changed = () => {
    screen.setValues({ q: search.value.trim(), type: type.value });
    table.reset();
  };
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(changed, 150);
  });
  type.addEventListener("change", changed);

  screen.show(
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Topics"),
      total,
      h(
        "div",
        { class: "actions" },
        search,
        type,
        action("New topic", { kind: "primary", scope: "admin", run: () => create(screen) }),
      ),
    ),
    h("section", { class: "card", "aria-label": "All topics" }, table.node),
  );
  await table.reset();
  screen.poll(() => table.reload(), 3000);
}

/** Text that steps back when the value is zero or unknown. */
const dim = (text, value = 0) => h("span", { class: value ? "" : "zero" }, text);

function rateCell({ append_per_s: now }, trend = []) {
  return h(
    "span",
    { class: "with-spark" },
    trend.some(Boolean) ? sparkline(trend, { width: 56, height: 18 }) : null,
    dim(rate(now), now),
  );
}

const classCell = ({ durability }) =>
  h("span", { class: "class" }, h("span", { class: `dot ${CLASSES[durability]}` }), durability);

function lagCell(each) {
  if (!each.groups) return dim("–");
  if (!each.lag_records) return dim("0");
  return h(
    "span",
    {},
    short(each.lag_records),
    h("span", { class: "zero" }, ` · ${duration(each.lag_seconds * 1000)}`),
  );
}

/** Ask for a new topic or queue, create it and open it. */
export async function create(screen, kind = "log") {
  const name = h("input", {
    type: "text",
    required: true,
    pattern: "[A-Za-z0-9._:\\-]{1,255}",
    spellcheck: "false",
    "data-role": "name",
  });
  const type = select({ log: "Log: many readers, each with its cursor", queue: "Queue: jobs with leases" }, kind);
  const durability = select(
    {
      disk: "disk: written",
      fsync: "fsync: synced",
      memory: "memory: may be spilled",
      ephemeral: "ephemeral: gone with the process",
    },
    "disk",
  );
  const partitions = h("input", { type: "number", min: "1", max: "1024", value: "1" });
  const made = await openDialog(kind === "queue" ? "New queue" : "New topic", {
    body: [
      field("Name", name, "1 to 255 of A-Z a-z 0-9 . _ : -"),
      h(
        "div",
        { class: "fields" },
        field("Type", type),
        field("Durability", durability),
        field("Partitions", partitions),
      ),
    ],
    label: "Create",
    ready: () => name.value !== "",
    submit: () =>
      put(topicPath(name.value), {
        type: type.value,
        durability: durability.value,
        ...(Number(partitions.value) > 1 ? { partitions: Number(partitions.value) } : {}),
      }),
  });
  if (made) {
    toast(made.created ? `Created ${made.topic}.` : `${made.topic} existed and was changed.`);
    screen.navigate(`#/${type.value === "queue" ? "queues" : "topics"}/${encodeURIComponent(made.topic)}`);
  }
}
