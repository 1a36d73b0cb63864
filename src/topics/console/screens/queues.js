// Queues: what waits, what is leased, what was given up.

import { get, query } from "../lib/api.js";
import { h, setText } from "../lib/dom.js";
import { count, duration, plural, rate } from "../lib/format.js";
import { me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { virtualTable } from "../lib/table.js";
import { action, empty, tag, toastError } from "../lib/widgets.js";
import { create } from "./topics.js";

export const title = () => "Queues";

export async function open(screen) {
  let sort = { by: screen.value("sort", "topic"), order: screen.value("order", "asc") };
  const search = h("input", {
    type: "search",
    placeholder: "Filter by name",
    "aria-label": "Filter by name",
    value: screen.value("q"),
  });
  const total = h("span", { class: "muted num" }, "\u00a0");
  const link = (name) => `#/queues/${encodeURIComponent(name)}`;
  const table = virtualTable({
    label: "Queues",
    columns: [
      { title: "Queue", sort: "topic", class: "grow", cell: (each) => h("a", { href: link(each.topic) }, each.topic) },
      { title: "Ready", class: "right", cell: (each) => count(each.queue.ready) },
      { title: "Delayed", class: "right", cell: (each) => count(each.queue.delayed) },
      { title: "In flight", class: "right", cell: (each) => count(each.queue.in_flight) },
      { title: "Oldest", class: "right", cell: (each) => duration(each.queue.oldest_age_ms) },
      { title: "In", sort: "rate", class: "right", cell: (each) => rate(each.append_per_s) },
      { title: "Done", class: "right", cell: (each) => rate(each.remove_per_s) },
      {
        title: "Dead letters",
        class: "right",
        cell: (each) => (each.queue.dead_letters ? tag(count(each.queue.dead_letters), "warn") : "0"),
      },
    ],
    sort,
    onSort: (by) => {
      sort = {
        by,
        order:
          sort.by === by && sort.order === "asc" ? "desc" : sort.by === by ? "asc" : by === "topic" ? "asc" : "desc",
      };
      table.setSort(sort);
      screen.setValues({ sort: by, order: sort.order });
      table.reset();
    },
    fetchPage: async (offset, limit) => {
      const parameters = { q: search.value.trim(), type: "queue", sort: sort.by, order: sort.order, offset, limit };
      const answer = await get(`/v0/topic-search${query(parameters)}`, { signal: screen.signal });
      return { total: answer.total, items: answer.topics };
    },
    onTotal: (value) => setText(total, plural(value, "queue")),
    onError: toastError,
    empty: () =>
      search.value
        ? empty("Nothing found", "No queue matches the filter.")
        : empty(
            "There are no queues yet",
            "A queue is a topic of type queue. Paste this into a shell:",
            curl(
              "PUT",
              "/v0/topics/jobs",
              { type: "queue", max_deliveries: 5, dead_letter: "jobs.dead" },
              { key: me.credentials_required },
            ),
          ),
  });
  let timer = 0;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      screen.setValues({ q: search.value.trim() });
      table.reset();
    }, 150);
  });
  screen.show(
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Queues"),
      total,
      h(
        "div",
        { class: "actions" },
        search,
        action("New queue", { kind: "primary", scope: "admin", run: () => create(screen, "queue") }),
      ),
    ),
    h("section", { class: "card", "aria-label": "All queues" }, table.node),
  );
  await table.reset();
  screen.poll(() => table.reload(), 2000);
}
