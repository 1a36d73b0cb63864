// One queue: its jobs by state, with what can be done to them by hand; and its dead letters.

import { get, post, query, topicPath } from "../lib/api.js";
import { lineChart, History } from "../lib/chart.js";
import { confirmDestroy, openDialog } from "../lib/dialog.js";
import { h, replace, setText } from "../lib/dom.js";
import { count, duration, plural, short, time } from "../lib/format.js";
import { jsonTree, oneLine } from "../lib/json.js";
import { forbidden, me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, empty, figures, tabs, tag, toast } from "../lib/widgets.js";
import { sendRecord } from "./topic_send.js";

const TABS = { in_flight: "In flight", ready: "Ready", delayed: "Delayed", dead: "Dead letters" };
const LETTERS = 200;

export const title = ({ topic }) => `Queue ${topic}`;

export async function open(screen, { topic: name }) {
  const current = TABS[screen.value("tab")] ? screen.value("tab") : "in_flight";
  let info = await get(`${topicPath(name)}?touch=false`, { signal: screen.signal });
  if (info.type !== "queue") {
    screen.show(
      empty(
        `${name} is not a queue`,
        "It is a log. ",
        h("a", { href: `#/topics/${encodeURIComponent(name)}` }, "Open it as a topic"),
      ),
    );
    return;
  }
  const numbers = figures({
    ready: "Ready",
    delayed: "Delayed",
    in_flight: "In flight",
    oldest: "Oldest job",
    dead: "Dead letters",
    deliveries: "Deliveries",
  });
  const history = new History();
  const chart = lineChart({
    title: "Jobs",
    series: [
      { label: "Ready", key: "ready" },
      { label: "In flight", key: "in_flight" },
      { label: "Delayed", key: "delayed" },
    ],
    format: short,
    counts: true,
    height: 132,
  });
  const body = h("div", { class: "grid" });
  screen.show(
    h(
      "div",
      { class: "head" },
      h("a", { class: "crumb", href: "#/queues" }, "Queues"),
      h("span", { class: "crumb", "aria-hidden": "true" }, "/"),
      h("h1", {}, name),
      tag(info.config.durability),
      h(
        "div",
        { class: "actions" },
        h("a", { class: "button", href: `#/topics/${encodeURIComponent(name)}` }, "Open as topic"),
        action("Send a job", { kind: "primary", scope: "write", name, run: () => sendRecord(info, {}, () => run()) }),
      ),
    ),
    numbers.node,
    chart.node,
    tabs(TABS, current, (key) => `#/queues/${encodeURIComponent(name)}?tab=${key}`),
    body,
  );
  const show =
    current === "dead"
      ? deadLetters(screen, name, info, body, () => run())
      : jobs(screen, name, current, body, () => run());
  const run = screen.poll(async () => {
    info = await get(`${topicPath(name)}?touch=false`, { signal: screen.signal });
    const { config } = info;
    const queue = await show(info);
    numbers.set("ready", count(queue.ready), "can be claimed");
    numbers.set("delayed", count(queue.delayed), "claimable later");
    numbers.set("in_flight", count(queue.in_flight), `lease ${duration(config.lease_ms)}`);
    numbers.set("oldest", duration(queue.oldest_age_ms), "since it was sent");
    numbers.set(
      "dead",
      count(queue.dead_letters),
      config.dead_letter ? `in ${config.dead_letter}` : "no dead-letter topic",
    );
    numbers.set("deliveries", config.max_deliveries ? `at most ${config.max_deliveries}` : "no limit", "of one job");
    chart.update(history.add({ ts: Date.now(), ...queue }));
  }, 1500);
}

// Jobs

function jobs(screen, name, state, body, refresh) {
  const path = (verb) => topicPath(name, `/${verb}`);
  const one = (each) => ({ node: each.node, seqs: [each.seq], lease_ids: [each.lease_id], partition: each.partition });
  const perform = (verb, more, done) => async (each) => {
    const answer = await post(path(verb), { ...one(each), ...more });
    if (answer.skipped.length) toast("The lease has ended meanwhile; nothing was changed.", "bad");
    else toast(done(each));
    refresh();
  };
  const ack = perform("ack", {}, (each) => `Job ${each.seq} is finished.`);
  const release = perform("nack", {}, (each) => `Job ${each.seq} is back in the queue.`);
  const extend = perform("extend", { lease_ms: 60_000 }, (each) => `The lease of job ${each.seq} ends in 60 s.`);
  const finish = (each) =>
    confirmDestroy(`Finish job ${each.seq}`, {
      what: `The job is leased to ${each.node}. Finishing it deletes 1 job; its worker is not asked.`,
      name: String(each.seq),
      label: "Finish job",
      run: () => ack(each),
    });
  const columns = [
    {
      title: "Seq",
      class: "right num",
      cell: (each) =>
        h(
          "a",
          { href: `#/topics/${encodeURIComponent(name)}?seq=${each.seq}&partition=${each.partition}` },
          String(each.seq),
        ),
    },
    { title: "Age", class: "right", cell: (each) => duration(Date.now() - each.ts) },
    { title: "Deliveries", class: "right hide-narrow", cell: (each) => count(each.deliveries) },
    state === "in_flight" ? { title: "Holder", cell: (each) => each.node } : null,
    state === "in_flight"
      ? { title: "Deadline", class: "num", cell: (each) => `in ${duration(Math.max(0, each.deadline - Date.now()))}` }
      : null,
    state === "delayed"
      ? { title: "Due", class: "num", cell: (each) => `in ${duration(Math.max(0, each.due_ts - Date.now()))}` }
      : null,
    { title: "Tag", class: "short hide-narrow", cell: (each) => each.tag ?? "–" },
    { title: "Data", class: "grow", cell: (each) => h("span", { class: "payload" }, oneLine(each.data)) },
    state === "in_flight"
      ? {
          title: "",
          class: "actions",
          once: true,
          cell: (first, item) =>
            h(
              "span",
              { class: "button-row" },
              action("Extend", {
                kind: "small",
                scope: "write",
                name,
                title: "Let the lease end 60 s from now",
                run: () => extend(item()),
              }),
              action("Release", {
                kind: "small",
                scope: "write",
                name,
                title: "Return the job to the queue now",
                run: () => release(item()),
              }),
              action("Finish", {
                kind: "small danger",
                scope: "write",
                name,
                title: "Acknowledge and delete the job",
                run: () => finish(item()),
              }),
            ),
        }
      : null,
  ].filter(Boolean);
  const hints = {
    in_flight: [
      "No job is leased",
      "Claim one as a worker would:",
      curl("POST", path("claim"), { node: "worker-1", max: 1 }, { key: me.credentials_required }),
    ],
    ready: [
      "No job can be claimed",
      "Send one:",
      curl(
        "POST",
        topicPath(name),
        { records: [{ data: { task: "resize", id: 1 } }] },
        { key: me.credentials_required },
      ),
    ],
    delayed: [
      "No job is delayed",
      "Send one that can be claimed in a minute:",
      curl(
        "POST",
        topicPath(name),
        { records: [{ data: { task: "later" }, delay_ms: 60000 }] },
        { key: me.credentials_required },
      ),
    ],
  };
  const table = dataTable({
    label: TABS[state],
    key: (each) => `${each.partition} ${each.seq} ${each.lease_id ?? ""}`,
    columns,
    onRow: (each) => openDialog(`Job ${each.seq}`, { body: jsonTree(each.data), wide: true }),
    empty: () => empty(...hints[state]),
  });
  const note = h("span", { class: "muted small" }, "\u00a0");
  replace(body, card(TABS[state], { actions: [note], body: h("div", { class: "records" }, table.node) }));
  return async () => {
    const answer = await get(topicPath(name, `/jobs${query({ state, limit: 100 })}`), { signal: screen.signal });
    setText(
      note,
      answer.total > answer.jobs.length ? `The first ${count(answer.jobs.length)} of ${count(answer.total)}` : "\u00a0",
    );
    table.update(answer.jobs);
    return answer.counts;
  };
}

// Dead letters

function deadLetters(screen, name, first, body, refresh) {
  const counts = async () => (await get(topicPath(name, "/jobs?limit=1"), { signal: screen.signal })).counts;
  const letters = first.config.dead_letter;
  if (!letters) {
    replace(
      body,
      card("Dead letters", {
        body: empty(
          "This queue has no dead-letter topic",
          "Jobs are delivered again without limit. Set a limit and a topic for what fails:",
          curl(
            "PUT",
            topicPath(name),
            { max_deliveries: 5, dead_letter: `${name}.dead` },
            { key: me.credentials_required },
          ),
        ),
      }),
    );
    return counts;
  }
  const search = h("input", {
    type: "search",
    placeholder: "Search data and tags",
    "aria-label": "Search data and tags",
    value: screen.value("q"),
  });
  const filter = h("input", {
    type: "search",
    placeholder: "Tag, or prefix*",
    "aria-label": "Tag",
    value: screen.value("tag"),
  });
  const note = h("span", { class: "muted small num", "data-role": "letters" }, "\u00a0");
  let shown = [];
  const path = topicPath(letters, "/redrive");
  const matching = (each) =>
    !search.value ||
    `${each.$tag ?? ""} ${JSON.stringify(each.data)}`.toLowerCase().includes(search.value.toLowerCase());

  async function move(label, what) {
    const plan = await post(path, { queue: name, ...what, dry_run: true });
    if (!plan.moved) {
      toast("There is nothing to move.", "bad");
      return;
    }
    const done = await openDialog(`Move ${label} back to ${name}`, {
      body: h(
        "p",
        {},
        `${plural(plan.moved, "job")} will go back to the end of the queue and can be claimed at once. Each is in exactly one place.`,
      ),
      label: `Move ${plural(plan.moved, "job")}`,
      submit: () => post(path, { queue: name, ...what }),
    });
    if (done) toast(`Moved ${plural(done.moved, "job")} back to ${name}.`);
    refresh();
  }
  const table = dataTable({
    label: "Dead letters",
    key: (each) => each.$seq,
    columns: [
      {
        title: "Seq",
        class: "right num",
        cell: (each) => h("a", { href: `#/topics/${encodeURIComponent(letters)}?seq=${each.$seq}` }, String(each.$seq)),
      },
      { title: "Dead since", class: "num hide-narrow", cell: (each) => time(each.$ts) },
      { title: "From", class: "hide-narrow", cell: (each) => each.meta?.$dead_letter_from ?? "–" },
      { title: "Reason", cell: (each) => tag(reason(each), "warn") },
      { title: "Tag", class: "short hide-narrow", cell: (each) => each.$tag ?? "–" },
      { title: "Data", class: "grow", cell: (each) => h("span", { class: "payload" }, oneLine(each.data)) },
      {
        title: "",
        class: "actions",
        once: true,
        cell: (letter, item) =>
          action("Move back", {
            kind: "small",
            scope: "write+delete",
            name,
            run: () => move(`job ${item().$seq}`, { seqs: [item().$seq] }),
          }),
      },
    ],
    onRow: (each) => openDialog(`Dead letter ${each.$seq}`, { body: jsonTree(each.data), wide: true }),
    empty: () =>
      empty(
        "No dead letters",
        `Jobs that are delivered more often than max_deliveries allows appear here, from the topic ${letters}.`,
      ),
  });
  const draw = () => {
    const rows = shown.filter(matching);
    setText(
      note,
      `${plural(rows.length, "letter")}${rows.length === shown.length ? "" : ` of ${count(shown.length)}`}`,
    );
    table.update(rows);
  };
  search.addEventListener("input", () => {
    screen.setValues({ q: search.value });
    draw();
  });
  filter.addEventListener("input", () => {
    screen.setValues({ tag: filter.value });
    refresh();
  });
  const filtered = () =>
    search.value
      ? { seqs: shown.filter(matching).map((each) => each.$seq) }
      : filter.value
        ? { match: filter.value }
        : {};
  replace(
    body,
    card("Dead letters", {
      actions: [
        note,
        search,
        filter,
        action("Move filtered", {
          scope: "write+delete",
          name: letters,
          run: () => move("the filtered jobs", filtered()),
        }),
        action("Move all", { kind: "primary", scope: "write+delete", name: letters, run: () => move("all jobs", {}) }),
      ],
      body: h("div", { class: "records" }, table.node),
    }),
  );
  const mayRead = !forbidden("read", letters);
  return async () => {
    if (!mayRead) return counts();
    try {
      const page = { limit: LETTERS, include_tags: true, ...(filter.value ? { filter: filter.value } : {}) };
      shown = (await post(topicPath(letters, "/diff"), page, { signal: screen.signal })).records.reverse();
    } catch (error) {
      if (error.status !== 404) throw error;
      shown = [];
    }
    draw();
    return counts();
  };
}

/** Why a job is a dead letter: what its worker said, and how often it was delivered. */
function reason({ meta }) {
  const deliveries = meta?.$dead_letter_deliveries;
  const delivered = deliveries === undefined ? "" : `delivered ${plural(deliveries, "time")}`;
  return [meta?.$dead_letter_reason, delivered].filter(Boolean).join(", ") || "unknown";
}
