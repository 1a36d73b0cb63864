// Live tail: records as they arrive, with pause.

import { h, replace, setText } from "../lib/dom.js";
import { count, plural, time } from "../lib/format.js";
import { jsonTree, oneLine } from "../lib/json.js";
import { follow } from "../lib/live.js";
import { openDialog } from "../lib/dialog.js";
import { me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, empty, errorBox, select, tag } from "../lib/widgets.js";

const MAX_ROWS = 500;
const STATES = { connecting: ["warn", "Connecting"], open: ["good", "Live"], lost: ["bad", "Reconnecting"] };

export async function tailTab(state) {
  const { screen, name } = state;
  const status = h("span", {}, tag("Connecting", "warn"));
  const waiting = h("span", { class: "muted num", "data-role": "arrived" }, "\u00a0");
  const partitions = Object.fromEntries(
    (state.info.partitions ?? []).map((each) => [each.partition, `Partition ${each.partition}`]),
  );
  const partition = select(
    Object.keys(partitions).length ? partitions : { 0: "Partition 0" },
    screen.value("partition", "0"),
    { "aria-label": "Partition" },
  );
  let rows = [];
  let held = [];
  let arrived = 0;
  let paused = false;
  let scheduled = false;
  let reading = new AbortController();

  const table = dataTable({
    label: "Live records",
    key: (each) => each.key,
    columns: [
      { title: "Seq", class: "right num", cell: (each) => each.seq },
      { title: "Time", class: "num", cell: (each) => (each.ts ? time(each.ts) : "–") },
      { title: "Tag", class: "short", cell: (each) => each.tag ?? "–" },
      {
        title: "Data",
        class: "grow",
        cell: (each) => (each.lost ? tag(each.lost, "warn") : h("span", { class: "payload" }, oneLine(each.data))),
      },
    ],
    onRow: (each) => each.lost || openDialog(`Record ${each.seq}`, { body: jsonTree(each.data), wide: true }),
    empty: () =>
      empty(
        "Waiting for records",
        "What is appended from now on appears here. From a shell:",
        curl(
          "POST",
          `/v0/topics/${name}`,
          { records: [{ data: { text: "hello" } }] },
          { key: me.credentials_required },
        ),
      ),
  });
  const pause = action("Pause", {
    run: () => {
      paused = !paused;
      setText(pause, paused ? "Resume" : "Pause");
      if (!paused) {
        rows = [...held.reverse(), ...rows].slice(0, MAX_ROWS);
        held = [];
        arrived = 0;
      }
      draw();
    },
  });

  function draw() {
    scheduled = false;
    if (!paused) table.update(rows);
    setText(waiting, paused ? `${plural(arrived, "record")} arrived while paused` : `${count(rows.length)} shown`);
  }
  function add(items) {
    if (paused) {
      arrived += items.length;
      held = [...held, ...items].slice(-MAX_ROWS);
    } else rows = [...items.reverse(), ...rows].slice(0, MAX_ROWS);
    if (!scheduled) {
      scheduled = true;
      requestAnimationFrame(draw);
    }
  }
  function onEvent(event, data) {
    if (event === "record") {
      add(
        data.records.map((each) => ({ key: each.$seq, seq: each.$seq, ts: each.$ts, tag: each.$tag, data: each.data })),
      );
    } else if (event === "tombstone") {
      add([{ key: `lost ${data.gap_from}`, seq: `${data.gap_from}–${data.gap_to}`, lost: `lost: ${data.reason}` }]);
    } else if (event === "topic-deleted") replace(status, tag("Topic deleted", "bad"));
  }
  function start() {
    reading.abort();
    reading = new AbortController();
    const signal = AbortSignal.any([reading.signal, screen.signal]);
    follow(name, {
      partition: Number(partition.value),
      signal,
      onEvent,
      onState: (next) => replace(status, tag(STATES[next][1], STATES[next][0])),
    }).catch((error) => replace(state.body, errorBox(error)));
  }
  partition.addEventListener("change", () => {
    rows = [];
    held = [];
    screen.setValues({ partition: partition.value === "0" ? "" : partition.value });
    draw();
    start();
  });

  replace(
    state.body,
    card("Live tail", {
      actions: [
        status,
        waiting,
        Object.keys(partitions).length ? partition : null,
        pause,
        action("Clear", {
          run: () => {
            rows = [];
            draw();
          },
        }),
      ],
      body: h("div", { class: "records" }, table.node),
    }),
  );
  draw();
  start();
}
