// SQL: statements about topics, groups and routes; SELECT over the system tables.

import { post } from "../lib/api.js";
import { h, replace, setText } from "../lib/dom.js";
import { duration, plural, time } from "../lib/format.js";
import { dataTable } from "../lib/table.js";
import { action, card, copy, download, errorBox } from "../lib/widgets.js";

const STORED = "topics.sql";
const MAX_HISTORY = 50;
const MAX_ROWS = 2000;
const TABLES = {
  "system.topics": "SELECT topic_id, type, count, bytes, durability\nFROM system.topics\nORDER BY bytes DESC\nLIMIT 50",
  "system.consumer_groups": "SELECT * FROM system.consumer_groups ORDER BY lag_records DESC",
  "system.topic_offsets": "SELECT * FROM system.topic_offsets",
  "system.queues": "SELECT * FROM system.queues",
  "system.routers": "SELECT * FROM system.routers",
  "system.topic_routes": "SELECT * FROM system.topic_routes",
  "system.tables": "SELECT * FROM system.tables",
  "system.archives": "SELECT * FROM system.archives",
  "system.pipelines": "SELECT * FROM system.pipelines",
  "system.settings": "SELECT * FROM system.settings",
};

export const title = () => "SQL";

/** A value as a field of a CSV file. Texts that a spreadsheet would run as a formula get a quote in front. */
function csvField(value) {
  let text =
    value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const toCsv = ({ columns, rows }) => [columns, ...rows].map((row) => row.map(csvField).join(",")).join("\r\n");

export async function open(screen) {
  const editor = h("textarea", {
    rows: "6",
    spellcheck: "false",
    "aria-label": "SQL statement",
    value: screen.value("q", TABLES["system.topics"]),
  });
  const output = h("div");
  const status = h("span", { class: "muted num", role: "status" }, "Ctrl+Enter runs the statement");
  const past = h("ul", { class: "grid past" });
  let result = null;
  const stored = read();

  async function run() {
    const sql = editor.value.trim();
    if (!sql) return;
    screen.setValues({ q: sql }, { push: sql !== screen.value("q") });
    setText(status, "Running");
    const began = performance.now();
    try {
      result = await post("/api/sql", { sql }, { signal: screen.signal, exact: "rows" });
      setText(
        status,
        `${result.message ?? plural(result.rows.length, "row")} in ${duration(performance.now() - began)}`,
      );
      replace(output, resultTable(result));
      keep(stored, sql);
      drawHistory();
    } catch (error) {
      if (error.name === "AbortError") return;
      result = null;
      setText(status, "Failed");
      replace(output, h("div", { class: "card-body" }, errorBox(error)));
    }
    copyCsv.refresh();
    saveCsv.refresh();
  }
  // Buttons that need a result.
  const noResult = () => (result ? "" : "Run a statement first.");
  const copyCsv = action("Copy CSV", { unless: noResult, run: () => copy(toCsv(result)) });
  const saveCsv = action("Download CSV", {
    unless: noResult,
    run: () => download("topics.csv", "text/csv", toCsv(result)),
  });
  const put = (text) => {
    editor.value = text;
    editor.focus();
  };
  function drawHistory() {
    replace(
      past,
      stored.map(({ sql, ts }) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "plain", title: sql, on: { click: () => put(sql) } },
            h("code", {}, sql.slice(0, 60).replaceAll("\n", " ")),
          ),
          h("span", { class: "muted small" }, ` ${time(ts)}`),
        ),
      ),
      stored.length ? null : h("li", { class: "muted" }, "Statements that ran appear here."),
    );
  }
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  screen.show(
    h("div", { class: "head" }, h("h1", {}, "SQL")),
    h(
      "div",
      { class: "grid split wide-left" },
      h(
        "div",
        { class: "grid" },
        card("Statement", {
          actions: [status, action("Run", { kind: "primary", run })],
          body: h("div", { class: "card-body" }, editor),
        }),
        card("Result", {
          id: "result",
          actions: [copyCsv, saveCsv],
          body: output,
        }),
      ),
      h(
        "div",
        { class: "grid" },
        card("Tables", {
          body: h(
            "div",
            { class: "card-body toolbar" },
            Object.entries(TABLES).map(([name, sql]) =>
              h("button", { type: "button", class: "small", on: { click: () => put(sql) } }, name),
            ),
          ),
        }),
        card("History", { body: h("div", { class: "card-body" }, past) }),
      ),
    ),
  );
  replace(output, h("p", { class: "card-body muted" }, "The result appears here."));
  drawHistory();
  if (screen.value("q")) await run();
}

function resultTable({ columns, rows, message }) {
  if (!columns.length) return h("p", { class: "card-body" }, message ?? "Done.");
  const shown = rows.slice(0, MAX_ROWS).map((row, index) => ({ row, index }));
  const table = dataTable({
    label: "Result",
    key: (each) => each.index,
    columns: columns.map((name, index) => ({
      title: name,
      class: typeof rows[0]?.[index] === "number" ? "right" : "",
      cell: ({ row }) =>
        row[index] === null
          ? h("span", { class: "muted" }, "null")
          : typeof row[index] === "object"
            ? JSON.stringify(row[index])
            : String(row[index]),
    })),
    empty: () => h("p", { class: "card-body muted" }, "No rows."),
  });
  table.update(shown);
  const cut =
    rows.length > MAX_ROWS
      ? h("p", { class: "card-body muted" }, `Only the first ${MAX_ROWS} rows are shown; the CSV has all.`)
      : null;
  return h("div", {}, table.node, cut);
}

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(STORED)) ?? [];
  } catch {
    return [];
  }
}

function keep(stored, sql) {
  const at = stored.findIndex((each) => each.sql === sql);
  if (at >= 0) stored.splice(at, 1);
  stored.unshift({ sql, ts: Date.now() });
  stored.splice(MAX_HISTORY);
  try {
    sessionStorage.setItem(STORED, JSON.stringify(stored));
  } catch {
    // Storage can be blocked: the history lasts as long as the screen.
  }
}
