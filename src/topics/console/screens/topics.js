// Topics: all of them, searched and sorted by the server; only the rows in view are fetched.

import { get, put, query, topicPath } from "../lib/api.js";
import { openDialog } from "../lib/dialog.js";
import { h, setText } from "../lib/dom.js";
import { ago, bytes, count, duration, plural, rate, short } from "../lib/format.js";
import { me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { virtualTable } from "../lib/table.js";
import { action, card, empty, field, select, tag, toast, toastError } from "../lib/widgets.js";

export const title = () => "Topics";

const CLASSES = { fsync: "good", disk: "info", memory: "", ephemeral: "warn" };

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
  const fetchPage = async (offset, limit) => {
    const parameters = { q: search.value.trim(), type: type.value, sort: sort.by, order: sort.order, offset, limit };
    const answer = await get(`/v0/topic-search${query(parameters)}`, { signal: screen.signal });
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
        class: "hide-narrow",
        cell: (each) => (each.type === "queue" ? tag("queue", "info") : tag("log")),
      },
      { title: "Rate", sort: "rate", class: "right", cell: (each) => rate(each.append_per_s) },
      { title: "Records", sort: "count", class: "right", cell: (each) => short(each.count) },
      { title: "Bytes", sort: "bytes", class: "right", cell: (each) => bytes(each.bytes) },
      { title: "Class", class: "hide-narrow", cell: (each) => tag(each.durability, CLASSES[each.durability]) },
      { title: "Partitions", class: "right hide-narrow", cell: (each) => count(each.partitions) },
      { title: "Groups", class: "right hide-narrow", cell: (each) => (each.groups ? count(each.groups) : "–") },
      { title: "Lag", sort: "lag", class: "right hide-narrow", cell: lagCell },
      {
        title: "Lost",
        sort: "lost",
        class: "right hide-narrow",
        cell: (each) => (each.lost ? tag(short(each.lost), "warn") : "–"),
      },
      {
        title: "Last write",
        sort: "last_write_ts",
        class: "right hide-narrow",
        cell: (each) => (each.last_write_ts ? ago(each.last_write_ts) : "–"),
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
        action("New topic", { kind: "primary", scope: "admin", run: () => create(screen) }),
      ),
    ),
    card("All topics", { actions: [search, type], body: table.node }),
  );
  await table.reset();
  screen.poll(() => table.reload(), 3000);
}

function lagCell(each) {
  if (!each.groups) return "–";
  return each.lag_records ? `${short(each.lag_records)} (${duration(each.lag_seconds * 1000)})` : "0";
}

async function create(screen) {
  const name = h("input", {
    type: "text",
    required: true,
    pattern: "[A-Za-z0-9._:\\-]{1,255}",
    spellcheck: "false",
    "data-role": "name",
  });
  const type = select({ log: "Log: many readers, each with its cursor", queue: "Queue: jobs with leases" }, "log");
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
  const made = await openDialog("New topic", {
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
    screen.navigate(`#/topics/${encodeURIComponent(made.topic)}`);
  }
}
