// Records of a topic by seq, time and tag; one record as a tree, raw, and as code.

import { get } from "../lib/api.js";
import { h, replace, setText } from "../lib/dom.js";
import { count, time } from "../lib/format.js";
import { jsonTree, oneLine } from "../lib/json.js";
import { jsonLines, rawData, readAfter, readBefore, searchAfter, searchBefore } from "../lib/records.js";
import { forbidden, me } from "../lib/session.js";
import { curl, historyAs, readAs } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import {
  action,
  card,
  copyButton,
  download,
  empty,
  errorBox,
  pairs,
  segments,
  select,
  snippet,
  toastError,
} from "../lib/widgets.js";
import { sendRecord } from "./topic_send.js";

const PAGE = 50;
// Records above the one that the address names.
const NEWER_SHOWN = 6;

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
  const goTo = select(
    { newest: "Newest", oldest: "Oldest", seq: "Seq", time: "Time" },
    screen.value("at") ? "time" : screen.value("from") ? (screen.value("from") === "1" ? "oldest" : "seq") : "newest",
    { "aria-label": "Go to" },
  );
  const at = h("input", { type: "datetime-local", step: "1", "aria-label": "From time", value: screen.value("at") });
  const filter = h("input", {
    type: "search",
    placeholder: "Tag, or prefix*",
    "aria-label": "Tag",
    value: screen.value("tag"),
  });
  const contains = h("input", {
    type: "search",
    placeholder: "Search data",
    "aria-label": "Search data, tag, node and meta",
    value: screen.value("q"),
  });
  const detail = h("div", { class: "detail" });
  const position = h("span", { class: "muted small num" }, "\u00a0");
  const table = dataTable({
    label: "Records",
    key: (each) => each.$seq,
    columns: [
      {
        title: "Seq",
        class: "right",
        cell: (each) => h("a", { class: "num", href: screen.address({ seq: each.$seq }) }, String(each.$seq)),
      },
      { title: "Time", class: "num", cell: (each) => time(each.$ts) },
      { title: "Tag", class: "short", cell: (each) => each.$tag ?? "–" },
      { title: "Data", class: "grow", cell: (each) => h("span", { class: "payload" }, oneLine(each.data)) },
    ],
    rowClass: (each) => (String(each.$seq) === screen.value("seq") ? "selected" : ""),
    onRow: (each) => choose(each.$seq),
    empty: () =>
      filter.value || contains.value || seq.value || at.value
        ? empty("No records here", "No record in this range matches. Change the filter, or begin at an earlier seq.")
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
  // The first and the last seq that the page covers: a search may find fewer records than it looks at.
  let low = 1;
  let high = 0;
  let head = 0;
  let earliest = 1;
  // Follows the end of the topic until an older page is chosen.
  let newest = true;
  const selected = Number(screen.value("seq"));

  const options = { signal: screen.signal };
  const where = () => ({
    limit: PAGE,
    filter: filter.value.trim() || undefined,
    text: contains.value.trim().toLowerCase() || undefined,
    partition: Number(partition.value),
  });

  /** Read a page in one direction, `place` says from where; with a text, search for it. */
  async function load(read, search, place) {
    const asked = { ...where(), ...place };
    if (asked.text) setText(position, "Searching");
    const page = await (asked.text ? search : read)(name, asked, options);
    head = page.head_seq;
    earliest = page.earliest_seq;
    shown = page.records;
    low = page.low ?? shown[0]?.$seq ?? (place.toSeq ?? head) + 1;
    high = page.high ?? (asked.text ? place.toSeq : shown.at(-1)?.$seq) ?? 0;
    table.update([...shown].reverse());
    setText(position, describe(asked.text));
    save.refresh();
  }
  const describe = (text) =>
    text
      ? `${count(shown.length)} found in ${count(low)} to ${count(Math.min(high, head))} of ${count(earliest)} to ${count(head)}`
      : shown.length
        ? `${count(low)} to ${count(high)} of ${count(earliest)} to ${count(head)}`
        : `head ${count(head)}`;
  const before = (toSeq) => load(readBefore, searchBefore, { toSeq });
  const after = (place) => load(readAfter, searchAfter, place);
  const latest = () => before(Math.max(head, headOf(state, partition.value)));
  const older = () => {
    newest = false;
    return before(low - 1);
  };
  const newer = async () => {
    await after({ fromSeq: high });
    if (shown.length < PAGE && !where().text) {
      newest = true;
      await latest();
    }
  };
  const save = action("Download", {
    title: "The records that are listed, as lines of JSON",
    unless: () => (shown.length ? "" : "No records are listed."),
    run: () => download(`${name}.jsonl`, "application/jsonl", jsonLines(shown)),
  });
  const begin = async () => {
    screen.setValues({
      from: seq.value,
      at: at.value,
      tag: filter.value.trim(),
      q: contains.value.trim(),
      partition: partition.value === "0" ? "" : partition.value,
    });
    newest = !seq.value && !at.value;
    if (at.value) await after({ fromTs: new Date(at.value).getTime() });
    else if (seq.value) await after({ fromSeq: Math.max(0, Number(seq.value) - 1) });
    else await latest();
  };
  const safely = (work) => () => work().catch(toastError);
  const showInputs = () => {
    seq.hidden = goTo.value !== "seq";
    at.hidden = goTo.value !== "time";
  };
  goTo.addEventListener("change", () => {
    seq.value = goTo.value === "oldest" ? "1" : "";
    at.value = "";
    showInputs();
    if (goTo.value === "newest" || goTo.value === "oldest") safely(begin)();
    else (goTo.value === "seq" ? seq : at).focus();
  });
  showInputs();
  let timer = 0;
  for (const control of [seq, at, filter, contains, partition]) {
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
    await before(selected + NEWER_SHOWN);
  } else await begin();
  replace(
    state.body,
    h(
      "div",
      { class: "grid split" },
      card("Records", {
        actions: [
          Object.keys(partitions).length ? partition : null,
          h("label", { class: "go-to" }, "Go to", goTo),
          seq,
          at,
          filter,
          contains,
        ],
        body: h(
          "div",
          {},
          h("div", { class: "records" }, table.node),
          h(
            "div",
            { class: "card-foot" },
            action("Newer", { run: newer }),
            action("Older", { run: older }),
            position,
            save,
          ),
        ),
      }),
      detail,
    ),
  );
  if (selected) await choose(selected);
  screen.poll(async () => {
    // A search is not repeated with every record that arrives.
    if (newest && !where().text && headOf(state, partition.value) !== head) await latest();
  }, 1500);
}

const headOf = (state, partition) =>
  (state.info.partitions ?? []).find((each) => String(each.partition) === String(partition))?.head_seq ??
  state.info.head_seq;

/** Where a record that is gone can still be: in the archive of the topic. */
async function archived(screen, name, seq, partition) {
  if (forbidden("read", name)) return null;
  const { archives } = await get("/api/archives", { signal: screen.signal });
  const archive = archives.find((each) => each.topic === name);
  if (!archive) return null;
  const has = archive.archived.some((each) => each.partition === partition && each.next_seq > seq);
  return h(
    "div",
    { class: "form" },
    h(
      "p",
      {},
      has ? "The archive of this topic has copied it. Read it from there:" : "The archive of this topic may hold it:",
    ),
    snippet(historyAs(name).shell),
  );
}

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
          h("a", { href: screen.address({ tab: "timeline", seq: "" }) }, "Open losses and deletes"),
          await archived(screen, name, seq, partition),
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
  replace(content, views.Tree());
  const switcher = segments("View", Object.keys(views), "Tree", (view) => replace(content, views[view]()));
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
        h("div", { class: "card-body view-switch" }, switcher),
        content,
      ),
    }),
  );
}
