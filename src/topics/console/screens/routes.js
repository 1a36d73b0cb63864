// Routers and routes as a graph: topics and tables, and what flows between them.

import { del, get, put } from "../lib/api.js";
import { confirmDestroy, openDialog } from "../lib/dialog.js";
import { h, replace, svg } from "../lib/dom.js";
import { count, plural, rate, short } from "../lib/format.js";
import { layout, NODE_HEIGHT, NODE_WIDTH } from "../lib/graph.js";
import { me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, check, empty, field, moreActions, select, tag, toast } from "../lib/widgets.js";

const STATES = { running: "good", blocked: "bad", backoff: "bad", failed: "bad", waiting: "info", starting: "info" };
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
      { title: "Forwarded", class: "right", cell: (each) => short(each.forwarded_total) },
      { title: "Guarantee", cell: (each) => each.guarantee },
      {
        title: "",
        class: "actions",
        once: true,
        cell: (first, item) =>
          moreActions(
            `More actions of ${first.router}`,
            action("Delete router", {
              kind: "danger",
              scope: "delete",
              name: first.router,
              run: () => drop(item(), () => run()),
            }),
          ),
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
      {
        title: "State",
        cell: (each) => (each.job ? tag(each.job.state, STATES[each.job.state] ?? "") : "no pipeline"),
      },
      { title: "Rate", class: "right", cell: (each) => rate(each.job?.rows_per_s) },
      { title: "Lag", class: "right", cell: (each) => count(each.job?.lag) },
      { title: "Payload", cell: (each) => each.payload_mode },
      {
        title: "Filter",
        class: "grow",
        cell: (each) => (each.filter_expr ? h("code", {}, each.filter_expr) : "all"),
      },
    ],
    empty: () =>
      empty(
        "No table is routed to a topic",
        "Changes of a table become records of a topic. Register a table and add it as a source:",
        curl(
          "PUT",
          "/api/tables/shop.orders",
          { key_columns: ["id"], columns: { id: "bigint", total: "double" } },
          { key: me.credentials_required },
        ),
        curl("POST", "/api/sql", { sql: "CREATE TOPIC shop_orders" }, { key: me.credentials_required }),
        curl(
          "POST",
          "/api/sql",
          { sql: "ALTER TOPIC shop_orders ADD SOURCE shop.orders ON INSERT" },
          { key: me.credentials_required },
        ),
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
    const [some, tables, { pipelines }] = await Promise.all([
      get("/v0/routers?page_size=1000&details=true", options),
      get("/api/routes", options),
      get("/api/pipelines", options),
    ]);
    const jobs = new Map(pipelines.flatMap((each) => each.jobs.map((job) => [job.name, job])));
    for (const each of tables.routes) {
      // A route that replays the changes of its table has a job of its own; the others of a table share one.
      each.job = jobs.get(`route ${each.table_id} #${each.version}`) ?? jobs.get(`route ${each.table_id}`);
    }
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

const edgeLabel = ({ rate: now, lag }) =>
  [now ? rate(now) : "", lag ? `lag ${short(lag)}` : ""].filter(Boolean).join(", ");

const topicLink = (name) => h("a", { href: `#/topics/${encodeURIComponent(name)}` }, name);

function draw(place, routers, routes) {
  const edges = [
    ...routers.map((each) => ({
      from: each.source,
      to: each.dest,
      state: each.state || "running",
      label: edgeLabel(each),
    })),
    ...routes.map((each) => ({
      from: `table ${each.table_id}`,
      to: each.topic_id,
      state: each.job?.state ?? "route",
      label: `${each.op.toLowerCase()} ${edgeLabel({ rate: each.job?.rows_per_s, lag: each.job?.lag })}`.trim(),
    })),
  ];
  if (!edges.length) {
    replace(place, h("p", { class: "muted" }, "Topics that are connected appear here."));
    return;
  }
  const { nodes, links, width, height } = layout(edges.slice(0, MAX_DRAWN), place.clientWidth - 32);
  const lines = links.map(({ edge, path }) =>
    svg("path", { class: `edge ${edge.state}`, d: path, "marker-end": "url(#arrow)" }),
  );
  const labels = links
    .filter(({ edge }) => edge.label)
    .map(({ edge, label }) =>
      svg("text", { class: "edge-label", x: label.x, y: label.y - 7, "text-anchor": "middle" }, edge.label),
    );
  const parts = [...lines, ...labels];
  for (const node of nodes) {
    const table = node.name.startsWith("table ");
    const label = table ? node.name.slice(6) : node.name;
    const box = svg(
      "g",
      { class: `node ${table ? "table" : ""}`, transform: `translate(${node.x} ${node.y})` },
      svg("title", {}, table ? `Table ${label}` : `Topic ${label}`),
      svg("rect", { width: NODE_WIDTH, height: NODE_HEIGHT, rx: 6 }),
      svg("text", { x: 12, y: NODE_HEIGHT / 2 + 4 }, label.length > 24 ? `${label.slice(0, 23)}…` : label),
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
