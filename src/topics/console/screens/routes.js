// Routers and routes as a graph: topics and tables, and what flows between them.

import { del, get, put } from "../lib/api.js";
import { confirmDestroy, openDialog } from "../lib/dialog.js";
import { h, replace, svg } from "../lib/dom.js";
import { count, plural, rate, short } from "../lib/format.js";
import { layout, NODE_HEIGHT, NODE_WIDTH } from "../lib/graph.js";
import { me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, check, empty, field, select, tag, toast } from "../lib/widgets.js";

const STATES = { running: "good", blocked: "bad", backoff: "bad" };
const MAX_DRAWN = 200;

export const title = () => "Routes";

export async function open(screen) {
  const graph = h("div", {
    class: "table-wrap card-body",
    tabindex: "0",
    role: "region",
    "aria-label": "Graph of routers and routes",
  });
  const before = new Map();
  const routers = dataTable({
    label: "Routers",
    key: (each) => each.router,
    columns: [
      { title: "Router", cell: (each) => each.router },
      { title: "From", cell: (each) => topicLink(each.source) },
      { title: "To", cell: (each) => topicLink(each.dest) },
      { title: "State", cell: (each) => tag(each.state || "running", STATES[each.state] ?? "") },
      { title: "Rate", class: "right", cell: (each) => rate(each.rate) },
      { title: "Lag", class: "right", cell: (each) => count(each.lag) },
      { title: "Forwarded", class: "right hide-narrow", cell: (each) => short(each.forwarded_total) },
      { title: "Guarantee", class: "hide-narrow", cell: (each) => each.guarantee },
      {
        title: "",
        class: "actions",
        once: true,
        cell: (first, item) =>
          action("Delete", {
            kind: "small danger",
            scope: "delete",
            name: first.router,
            run: () => drop(item(), () => run()),
          }),
      },
    ],
    empty: () =>
      empty(
        "There are no routers yet",
        "A router copies the records of one topic to another. Paste this into a shell:",
        curl(
          "PUT",
          "/v0/routers/copy",
          { source: "hello", dest: "hello.copy", from: "earliest" },
          { key: me.credentials_required },
        ),
      ),
  });
  const routes = dataTable({
    label: "Routes from tables",
    key: (each) => `${each.topic_id} ${each.version}`,
    columns: [
      { title: "Table", cell: (each) => each.table_id },
      { title: "Changes", cell: (each) => each.op },
      { title: "To", cell: (each) => topicLink(each.topic_id) },
      { title: "Payload", class: "hide-narrow", cell: (each) => each.payload_mode },
      {
        title: "Filter",
        class: "grow hide-narrow",
        cell: (each) => (each.filter_expr ? h("code", {}, each.filter_expr) : "all"),
      },
    ],
    empty: () =>
      empty(
        "No table is routed to a topic",
        "Add a source with SQL: ALTER TOPIC orders ADD SOURCE shop.orders ON INSERT",
      ),
  });
  screen.showWhenLoaded(
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Routers and routes"),
      h(
        "div",
        { class: "actions" },
        action("New router", { kind: "primary", scope: "admin", run: () => create(() => run()) }),
      ),
    ),
    card("Graph", { body: graph }),
    card("Routers", { body: routers.node }),
    card("Routes from tables", { body: routes.node }),
  );
  const run = screen.poll(async () => {
    const options = { signal: screen.signal };
    const [some, tables] = await Promise.all([get("/v0/routers?page_size=1000&details=true", options), get("/api/routes", options)]);
    const now = performance.now();
    for (const each of some.routers) {
      const last = before.get(each.router);
      each.rate = last ? ((each.forwarded_total - last.forwarded) * 1000) / (now - last.now) : null;
      before.set(each.router, { forwarded: each.forwarded_total, now });
    }
    routers.update(some.routers);
    routes.update(tables.routes);
    draw(graph, some.routers, tables.routes);
  });
}

const topicLink = (name) => h("a", { href: `#/topics/${encodeURIComponent(name)}` }, name);

function draw(place, routers, routes) {
  const edges = [
    ...routers.map((each) => ({
      from: each.source,
      to: each.dest,
      state: each.state || "running",
      label: `${each.rate === null ? "" : `${rate(each.rate)} `}${each.lag ? `lag ${short(each.lag)}` : ""}`.trim(),
    })),
    ...routes.map((each) => ({ from: `table ${each.table_id}`, to: each.topic_id, state: "route", label: each.op })),
  ];
  if (!edges.length) {
    replace(place, h("p", { class: "muted" }, "Topics that are connected appear here."));
    return;
  }
  const { nodes, links, width, height } = layout(edges.slice(0, MAX_DRAWN));
  const parts = links.flatMap(({ edge, path, middle }) => [
    svg("path", { class: `edge ${edge.state}`, d: path, "marker-end": "url(#arrow)" }),
    edge.label
      ? svg("text", { class: "edge-label", x: middle.x, y: middle.y - 6, "text-anchor": "middle" }, edge.label)
      : null,
  ]);
  for (const node of nodes) {
    const table = node.name.startsWith("table ");
    const label = table ? node.name.slice(6) : node.name;
    const box = svg(
      "g",
      { class: `node ${table ? "table" : ""}`, transform: `translate(${node.x} ${node.y})` },
      svg("title", {}, table ? `Table ${label}` : `Topic ${label}`),
      svg("rect", { width: NODE_WIDTH, height: NODE_HEIGHT, rx: 6 }),
      svg("text", { x: 12, y: NODE_HEIGHT / 2 + 4 }, label.length > 26 ? `${label.slice(0, 25)}…` : label),
    );
    parts.push(
      table ? box : svg("a", { href: `#/topics/${encodeURIComponent(label)}`, "aria-label": `Topic ${label}` }, box),
    );
  }
  const marker = svg(
    "defs",
    {},
    svg(
      "marker",
      { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" },
      svg("path", { d: "M0 0L8 4L0 8z", fill: "context-stroke" }),
    ),
  );
  const drawing = svg(
    "svg",
    {
      class: "graph",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "group",
      "aria-label": plural(edges.length, "connection"),
    },
    marker,
    parts,
  );
  if (!place.firstChild?.isEqualNode(drawing)) replace(place, drawing);
}

async function create(done) {
  const name = h("input", { type: "text", required: true, spellcheck: "false", "data-role": "router" });
  const source = h("input", { type: "text", required: true, spellcheck: "false", "data-role": "source" });
  const dest = h("input", { type: "text", required: true, spellcheck: "false", "data-role": "dest" });
  const filter = h("input", { type: "text", placeholder: "All records" });
  const guarantee = select({ at_least_once: "At least once", exactly_once: "Exactly once" }, "at_least_once");
  const earliest = h("input", { type: "checkbox" });
  const made = await openDialog("New router", {
    body: [
      h(
        "div",
        { class: "fields" },
        field("Name", name),
        field("From topic", source),
        field("To topic", dest, "Created if it does not exist"),
      ),
      h("div", { class: "fields" }, field("Tag, or prefix*", filter), field("Guarantee", guarantee)),
      check("Also forward what the source holds now", earliest),
    ],
    label: "Create",
    ready: () => Boolean(name.value && source.value && dest.value),
    submit: () =>
      put(`/v0/routers/${encodeURIComponent(name.value)}`, {
        source: source.value,
        dest: dest.value,
        guarantee: guarantee.value,
        from: earliest.checked ? "earliest" : "latest",
        ...(filter.value ? { filter: filter.value } : {}),
      }),
  });
  if (made) {
    toast(`Router ${made.router} forwards ${made.source} to ${made.dest}.`);
    done();
  }
}

const drop = (router, done) =>
  confirmDestroy(`Delete the router ${router.router}`, {
    what: `${router.source} is no longer forwarded to ${router.dest}. ${plural(router.lag, "seq")} it has yet to look at are not forwarded. Records that were forwarded stay.`,
    name: router.router,
    label: "Delete router",
    run: async () => {
      await del(`/v0/routers/${encodeURIComponent(router.router)}`);
      toast(`Deleted the router ${router.router}.`);
      done();
    },
  });
