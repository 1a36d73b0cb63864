// Records of a topic by seq, time and tag; one record as a tree, raw, and as code.

import { h, replace, setText } from "../lib/dom.js";
import { count, time } from "../lib/format.js";
import { jsonTree, oneLine } from "../lib/json.js";
import { rawData, readAfter, readBefore } from "../lib/records.js";
import { me } from "../lib/session.js";
import { curl, readAs } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, copyButton, empty, errorBox, pairs, select, toastError } from "../lib/widgets.js";
import { sendRecord } from "./topic_send.js";

const PAGE = 50;

export async function recordsTab(state) {
  const { screen, name } = state;
  const partitions = Object.fromEntries(
    (state.info.partitions ?? []).map((each) => [each.partition, `Partition ${each.partition}`]),
  );
  const partition = select(
    Object.keys(partitions).length ? partitions : { 0: "Partition 0" },
    screen.value("partition", "0"),
    { "aria-label": "Partition" },
  );
  const seq = h("input", {
    type: "number",
    min: "0",
    placeholder: "Seq",
    "aria-label": "From seq",
    value: screen.value("from"),
  });
  const at = h("input", { type: "datetime-local", step: "1", "aria-label": "From time", value: screen.value("at") });
  const filter = h("input", {
    type: "search",
    placeholder: "Tag, or prefix*",
    "aria-label": "Tag",
    value: screen.value("tag"),
  });
  const detail = h("div");
  const position = h("span", { class: "muted small num" }, "\u00a0");
  const table = dataTable({
    label: "Records",
    key: (each) => each.$seq,
    columns: [
      {
        title: "Seq",
        class: "right",
        cell: (each) =>
          h("a", { class: "num", href: `#/topics/${encodeURIComponent(name)}?seq=${each.$seq}` }, String(each.$seq)),
      },
      { title: "Time", class: "num", cell: (each) => time(each.$ts) },
      { title: "Tag", class: "short hide-narrow", cell: (each) => each.$tag ?? "–" },
      { title: "Node", class: "short hide-narrow", cell: (each) => each.$node ?? "–" },
      { title: "Data", class: "grow", cell: (each) => h("span", { class: "payload" }, oneLine(each.data)) },
    ],
    rowClass: (each) => (String(each.$seq) === screen.value("seq") ? "selected" : ""),
    onRow: (each) => choose(each.$seq),
    empty: () =>
      filter.value || seq.value || at.value
        ? empty("No records here", "No record in this range matches. Change the tag, or begin at an earlier seq.")
        : empty(
            "This topic holds no records",
            "Send one with the button above, or from a shell:",
            curl(
              "POST",
              `/v0/topics/${name}`,
              { records: [{ data: { text: "hello" }, tag: "greeting" }] },
              { key: me.credentials_required },
            ),
          ),
  });
  let shown = [];
  let head = 0;
  let earliest = 1;
  // Follows the end of the topic until an older page is chosen.
  let newest = true;
  const selected = Number(screen.value("seq"));

  const options = { signal: screen.signal };
  const where = () => ({ limit: PAGE, filter: filter.value.trim() || undefined, partition: Number(partition.value) });

  async function load(read) {
    const page = await read();
    head = page.head_seq;
    earliest = page.earliest_seq;
    shown = page.records;
    table.update([...shown].reverse());
    setText(
      position,
      shown.length
        ? `${count(shown[0].$seq)} to ${count(shown.at(-1).$seq)} of ${count(earliest)} to ${count(head)}`
        : `head ${count(head)}`,
    );
  }
  const latest = () =>
    load(() => readBefore(name, { toSeq: Math.max(head, headOf(state, partition.value)), ...where() }, options));
  const older = () => {
    newest = false;
    return load(() => readBefore(name, { toSeq: (shown[0]?.$seq ?? head + 1) - 1, ...where() }, options));
  };
  const newer = () => {
    const last = shown.at(-1)?.$seq ?? 0;
    return load(() => readAfter(name, { fromSeq: last, ...where() }, options)).then(() =>
      shown.length < PAGE ? ((newest = true), latest()) : null,
    );
  };
  const begin = async () => {
    screen.setValues({
      from: seq.value,
      at: at.value,
      tag: filter.value.trim(),
      partition: partition.value === "0" ? "" : partition.value,
    });
    newest = !seq.value && !at.value;
    if (at.value) await load(() => readAfter(name, { fromTs: new Date(at.value).getTime(), ...where() }, options));
    else if (seq.value)
      await load(() => readAfter(name, { fromSeq: Math.max(0, Number(seq.value) - 1), ...where() }, options));
    else await latest();
  };
  const safely = (work) => () => work().catch(toastError);
  let timer = 0;
  for (const control of [seq, at, filter, partition]) {
    control.addEventListener("change", safely(begin));
    control.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(safely(begin), 300);
    });
  }

  async function choose(wanted) {
    screen.setValues({ seq: wanted });
    table.update([...shown].reverse());
    try {
      await showDetail(state, detail, wanted, Number(partition.value));
    } catch (error) {
      replace(detail, errorBox(error));
    }
  }

  replace(
    detail,
    h("section", { class: "card" }, h("p", { class: "card-body muted" }, "Choose a record to see it in full.")),
  );
  if (selected && !seq.value) {
    newest = false;
    await load(() => readBefore(name, { toSeq: selected + PAGE / 2, ...where() }, options));
  } else await begin();
  replace(
    state.body,
    h(
      "div",
      { class: "grid split" },
      card("Records", {
        actions: [
          Object.keys(partitions).length ? partition : null,
          seq,
          at,
          filter,
          action("Newest", {
            run: () => {
              seq.value = at.value = "";
              return begin();
            },
          }),
        ],
        body: h(
          "div",
          {},
          h("div", { class: "records" }, table.node),
          h(
            "div",
            { class: "card-body toolbar" },
            action("Older", { run: older }),
            action("Newer", { run: newer }),
            position,
          ),
        ),
      }),
      detail,
    ),
  );
  if (selected) await choose(selected);
  screen.poll(async () => {
    if (newest && headOf(state, partition.value) !== head) await latest();
  }, 1500);
}

const headOf = (state, partition) =>
  (state.info.partitions ?? []).find((each) => String(each.partition) === String(partition))?.head_seq ??
  state.info.head_seq;

async function showDetail(state, place, seq, partition) {
  const { screen, name } = state;
  const page = await readAfter(name, { fromSeq: seq - 1, limit: 1, partition }, { signal: screen.signal });
  const record = page.records[0];
  if (record === undefined || record.$seq !== seq) {
    replace(
      place,
      h(
        "section",
        { class: "card" },
        empty(
          `Record ${seq} is gone`,
          "It was deleted, or lost to a cap or its age. The tab Losses and deletes shows which.",
        ),
      ),
    );
    return;
  }
  const raw = await rawData(name, seq, partition, screen.signal);
  const content = h("div", { class: "card-body" });
  const views = {
    Tree: () => jsonTree(record.data),
    Raw: () => h("pre", { class: "raw payload", tabindex: "0" }, raw ?? JSON.stringify(record.data)),
  };
  for (const [language, text] of Object.entries(readAs(name, seq, partition, me.credentials_required))) {
    views[language] = () =>
      h(
        "div",
        { class: "form" },
        h("pre", { class: "raw payload", tabindex: "0" }, text),
        h(
          "div",
          {},
          copyButton(() => text, `Copy ${language}`),
        ),
      );
  }
  const buttons = Object.keys(views).map((view) =>
    h("button", { type: "button", class: "small", on: { click: () => show(view) } }, view),
  );
  const show = (view) => {
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === view)));
    buttons.forEach((button) => button.classList.toggle("primary", button.textContent === view));
    replace(content, views[view]());
  };
  show("Tree");
  replace(
    place,
    card(`Record ${seq}`, {
      id: "record",
      actions: [
        copyButton(() => raw, "Copy JSON"),
        action("Repeat", {
          kind: "small",
          scope: "write",
          name,
          title: "Send the same record again",
          run: () =>
            sendRecord(
              state.info,
              { data: raw, tag: record.$tag, node: record.$node, meta: record.meta, partition },
              state.refresh,
            ),
        }),
      ],
      body: h(
        "div",
        {},
        h(
          "div",
          { class: "card-body" },
          pairs([
            ["Time", time(record.$ts)],
            ["Partition", String(partition)],
            record.$tag !== undefined ? ["Tag", record.$tag] : null,
            record.$node !== undefined ? ["Node", record.$node] : null,
            record.meta !== undefined ? ["Meta", h("code", {}, JSON.stringify(record.meta))] : null,
          ]),
        ),
        h("div", { class: "card-body toolbar" }, buttons),
        content,
      ),
    }),
  );
}
