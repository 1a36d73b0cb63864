// Losses and deletes: which seqs are there, which were lost to a cap, to age or to a power cut, and which were deleted.

import { get, query, topicPath } from "../lib/api.js";
import { h, replace, svg } from "../lib/dom.js";
import { count, time } from "../lib/format.js";
import { dataTable } from "../lib/table.js";
import { card, empty, select, tag } from "../lib/widgets.js";

// Of the 1000 units of the drawing.
const MIN_RANGE = 6;
const KINDS = {
  live: ["Live", "info", "can be read"],
  evicted: ["Dropped", "warn", "by a cap or their age; readers get a tombstone"],
  lost: ["Lost", "bad", "by a power cut or damage; readers get a tombstone"],
  deleted: ["Deleted", "", "on purpose; readers are not informed"],
};

export async function timelineTab(state) {
  const { screen, name } = state;
  const partitions = Object.fromEntries(
    (state.info.partitions ?? []).map((each) => [each.partition, `Partition ${each.partition}`]),
  );
  const partition = select(
    Object.keys(partitions).length ? partitions : { 0: "Partition 0" },
    screen.value("partition", "0"),
    { "aria-label": "Partition" },
  );
  const bar = svg("svg", {
    class: "timeline",
    viewBox: "0 0 1000 28",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": "Ranges of seqs",
  });
  const table = dataTable({
    label: "Ranges",
    key: (each) => `${each.kind} ${each.first_seq}`,
    columns: [
      { title: "What", cell: (each) => tag(KINDS[each.kind][0], KINDS[each.kind][1]) },
      { title: "First seq", class: "right", cell: (each) => count(each.first_seq) },
      { title: "Last seq", class: "right", cell: (each) => count(each.last_seq) },
      { title: "Seqs", class: "right", cell: (each) => count(each.last_seq - each.first_seq + 1) },
      {
        title: "Time",
        class: "num",
        cell: (each) =>
          each.until_ts ? `until ${time(each.until_ts)}` : each.since_ts ? `since ${time(each.since_ts)}` : "–",
      },
      {
        title: "Why",
        class: "grow",
        cell: (each) => (each.reason ? `${each.reason}: ${KINDS[each.kind][2]}` : KINDS[each.kind][2]),
      },
    ],
    empty: () => empty("Nothing was written yet", "Ranges of seqs appear here with the first record."),
  });
  const legend = h(
    "ul",
    { class: "legend" },
    Object.entries(KINDS).map(([kind, [label]]) => h("li", {}, h("span", { class: `swatch range-${kind}` }), label)),
  );
  const more = h("p", { class: "card-body muted", hidden: true }, "Only the newest ranges are listed.");
  replace(
    state.body,
    card("Losses and deletes", {
      actions: [legend, Object.keys(partitions).length ? partition : null],
      body: h("div", {}, h("div", { class: "card-body" }, bar), table.node, more),
    }),
  );
  const run = screen.poll(async () => {
    const answer = await get(
      topicPath(name, `/ranges${query({ partition: partition.value === "0" ? "" : partition.value })}`),
      { signal: screen.signal },
    );
    draw(bar, answer);
    more.hidden = !answer.truncated;
    table.update([...answer.ranges].reverse());
  }, 3000);
  partition.addEventListener("change", () => {
    screen.setValues({ partition: partition.value === "0" ? "" : partition.value });
    run();
  });
}

function draw(bar, { ranges, head_seq: head }) {
  const x = (seq) => ((seq - 1) / Math.max(1, head)) * 1000;
  replace(
    bar,
    ...ranges.map(({ kind, first_seq: first, last_seq: last }) =>
      svg("rect", {
        class: `range-${kind}`,
        // A short range is widened, within the drawing, so that it can be seen.
        x: Math.min(x(first), 1000 - MIN_RANGE),
        y: 0,
        width: Math.max(MIN_RANGE, x(last + 1) - x(first)),
        height: 28,
      }),
    ),
  );
}
