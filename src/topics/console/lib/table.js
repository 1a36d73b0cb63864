// Tables: rows are kept by key and only cells that differ are touched; long lists are fetched and drawn as they scroll.

import { h, replace, setContent } from "./dom.js";

export const ROW_HEIGHT = 36;
const PAGE_ROWS = 100;
const OVERSCAN = 10;

/**
 * columns: [{ title, cell(item), class, sort, once }]. `cell` returns text or a node; `once` keeps the first one, for cells with
 * buttons, which get a function that returns the current item.
 */
export function dataTable({ label, columns, key, empty, onRow, rowClass, sort, onSort }) {
  const body = h("tbody");
  const head = header(columns, sort, onSort);
  const table = h("table", {}, h("caption", { class: "visually-hidden" }, label), h("thead", {}, head.row), body);
  const wrap = h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": label }, table);
  const place = h("div", {}, wrap);
  const rows = new Map();
  let loaded = false;

  function update(items) {
    if (!items.length && empty) {
      if (!loaded || place.firstChild === wrap) replace(place, empty());
      rows.clear();
      loaded = true;
      body.replaceChildren();
      return;
    }
    if (place.firstChild !== wrap) replace(place, wrap);
    loaded = true;
    const seen = new Set();
    items.forEach((item, index) => {
      const id = String(key(item));
      seen.add(id);
      let row = rows.get(id);
      if (row === undefined) {
        row = makeRow(columns, item, onRow);
        rows.set(id, row);
      }
      row.set(item);
      if (rowClass) row.node.className = rowClass(item);
      if (body.children[index] !== row.node) body.insertBefore(row.node, body.children[index] ?? null);
    });
    for (const [id, row] of rows) {
      if (!seen.has(id)) {
        row.node.remove();
        rows.delete(id);
      }
    }
  }

  return { node: place, update, setSort: head.setSort };
}

function header(columns, sort, onSort) {
  const cells = columns.map((column) => {
    const sortable = column.sort && onSort;
    const label = column.title || h("span", { class: "visually-hidden" }, column.name ?? "Actions");
    const content = sortable
      ? h(
          "button",
          { type: "button", on: { click: () => onSort(column.sort) } },
          label,
          h("span", { "aria-hidden": "true" }),
        )
      : label;
    return h("th", { scope: "col", class: column.class }, content);
  });
  const setSort = ({ by, order }) => {
    columns.forEach((column, index) => {
      if (!column.sort || !onSort) return;
      const current = column.sort === by;
      if (current) cells[index].setAttribute("aria-sort", order === "desc" ? "descending" : "ascending");
      else cells[index].removeAttribute("aria-sort");
      cells[index].querySelector("span").textContent = current ? (order === "desc" ? "↓" : "↑") : "";
    });
  };
  if (sort) setSort(sort);
  return { row: h("tr", {}, cells), setSort };
}

function makeRow(columns, first, onRow) {
  let item = first;
  const cells = columns.map((column) =>
    h("td", { class: column.class }, column.once ? column.cell(first, () => item) : null),
  );
  const node = h("tr", {}, cells);
  if (onRow) {
    node.addEventListener("click", (event) => event.target.closest("a, button, input") || onRow(item));
    node.addEventListener("keydown", (event) => {
      if (event.target !== node || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      onRow(item);
    });
  }
  return {
    node,
    set(next) {
      item = next;
      columns.forEach((column, index) => {
        if (column.once) return;
        const content = next === null ? h("span", { class: "skeleton" }, "……………") : column.cell(next, () => item);
        setContent(cells[index], content);
        if (!(content instanceof Node)) cells[index].title = String(content ?? "");
      });
      // Tab stops at a row only where nothing in it can be reached otherwise; j and k reach every row.
      if (onRow) node.tabIndex = node.querySelector("a, button") ? -1 : 0;
    },
  };
}

/**
 * A table of any length. `fetchPage(offset, limit)` answers { total, items }; only the rows in view are in the page, and only
 * their pages are fetched. `reload()` fetches what is in view again, `reset()` begins again.
 */
export function virtualTable({ label, columns, fetchPage, empty, onTotal = () => {}, onError, sort, onSort }) {
  const head = header(columns, sort, onSort);
  const above = h("td", { colspan: columns.length });
  const below = h("td", { colspan: columns.length });
  const body = h("tbody");
  const table = h("table", {}, h("caption", { class: "visually-hidden" }, label), h("thead", {}, head.row), body);
  const wrap = h("div", { class: "table-wrap virtual", tabindex: "0", role: "region", "aria-label": label }, table);
  const place = h("div", {}, wrap);
  const pages = new Map();
  const pool = [];
  let total = 0;
  let generation = 0;
  let scheduled = false;

  async function fetchOne(page, force) {
    const known = pages.get(page);
    if (known && (known.loading || !force)) return;
    pages.set(page, { items: known?.items, loading: true });
    const mine = generation;
    try {
      const answer = await fetchPage(page * PAGE_ROWS, PAGE_ROWS);
      if (mine !== generation) return;
      pages.set(page, { items: answer.items, loading: false });
      if (answer.total !== total || !place.dataset.loaded) {
        total = answer.total;
        place.dataset.loaded = "yes";
        onTotal(total);
        showEmpty();
      }
      draw();
    } catch (error) {
      if (mine !== generation) return;
      pages.set(page, { items: known?.items, loading: false });
      onError(error);
    }
  }

  function showEmpty() {
    const wanted = total ? wrap : empty();
    if (total ? place.firstChild !== wrap : true) replace(place, wanted);
  }

  function visible() {
    const first = Math.max(0, Math.floor(wrap.scrollTop / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(total, Math.ceil((wrap.scrollTop + window.innerHeight) / ROW_HEIGHT) + OVERSCAN);
    return [first, last];
  }

  function draw() {
    scheduled = false;
    const [first, last] = visible();
    const wanted = [];
    for (let index = first; index < last; index += 1) {
      const page = Math.floor(index / PAGE_ROWS);
      wanted.push(pages.get(page)?.items?.[index % PAGE_ROWS] ?? null);
      fetchOne(page, false);
    }
    while (pool.length < wanted.length) pool.push(makeRow(columns, null));
    wanted.forEach((item, index) => pool[index].set(item));
    above.style.height = `${first * ROW_HEIGHT}px`;
    below.style.height = `${Math.max(0, total - last) * ROW_HEIGHT}px`;
    const nodes = pool.slice(0, wanted.length).map((row) => row.node);
    if (body.children.length !== nodes.length + 2) {
      body.replaceChildren(
        h("tr", { class: "spacer", "aria-hidden": "true" }, above),
        ...nodes,
        h("tr", { class: "spacer", "aria-hidden": "true" }, below),
      );
    }
    table.setAttribute("aria-rowcount", String(total + 1));
  }

  wrap.addEventListener("scroll", () => {
    if (!scheduled) {
      scheduled = true;
      requestAnimationFrame(draw);
    }
  });

  return {
    node: place,
    setSort: head.setSort,
    reset() {
      generation += 1;
      pages.clear();
      wrap.scrollTop = 0;
      return fetchOne(0, true);
    },
    async reload() {
      const [first, last] = visible();
      const shown = new Set([Math.floor(first / PAGE_ROWS), Math.floor(Math.max(first, last - 1) / PAGE_ROWS)]);
      for (const page of pages.keys()) if (!shown.has(page)) pages.delete(page);
      await Promise.all([...shown].map((page) => fetchOne(page, true)));
    },
  };
}
