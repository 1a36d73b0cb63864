// One queue: its jobs by state, with what can be done to them by hand; and its dead letters.

import { get, post, query, topicPath } from "../lib/api.js";
import { lineChart, History } from "../lib/chart.js";
import { confirmDestroy, openDialog } from "../lib/dialog.js";
import { h, replace, setText } from "../lib/dom.js";
import { count, duration, plural, rate, short, time } from "../lib/format.js";
import { jsonTree, oneLine } from "../lib/json.js";
import { readBefore } from "../lib/records.js";
import { forbidden, me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, empty, figures, pairs, tabs, tag, toast } from "../lib/widgets.js";
import { sendRecord } from "./topic_send.js";

const TABS = { in_flight: "In flight", ready: "Ready", delayed: "Delayed", dead: "Dead letters" };
const LETTERS = 100;
// As many as one request may name.
const SEARCHED_LETTERS = 10_000;

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
    height: 112,
  });
  const throughput = lineChart({
    title: "Throughput",
    series: [
      { label: "Sent", key: "sent_per_s" },
      { label: "Done", key: "done_per_s" },
    ],
    format: rate,
    height: 112,
  });
  // Jobs sent and jobs removed since the poll before: a job that is sent raises the head, one that is done lowers the count.
  let before = null;
  const rates = ({ head_seq: head, partitions, count: held }) => {
    const sent = partitions?.length ? partitions.reduce((sum, each) => sum + each.head_seq, 0) : head;
    const now = { at: performance.now(), sent, done: sent - held };
    const seconds = before ? (now.at - before.at) / 1000 : 0;
    const found = seconds
      ? {
          sent_per_s: Math.max(0, now.sent - before.sent) / seconds,
          done_per_s: Math.max(0, now.done - before.done) / seconds,
        }
      : { sent_per_s: null, done_per_s: null };
    before = now;
    return found;
  };
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
    // Above the dead letters the charts of the jobs only take room.
    current === "dead" ? null : h("div", { class: "grid cols-2" }, chart.node, throughput.node),
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
    const samples = history.add({ ts: Date.now(), ...queue, ...rates(info) });
    chart.update(samples);
    throughput.update(samples);
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
    { title: "Deliveries", class: "right", cell: (each) => count(each.deliveries) },
    state === "in_flight" ? { title: "Holder", cell: (each) => each.node } : null,
    state === "in_flight"
      ? { title: "Deadline", class: "num", cell: (each) => `in ${duration(Math.max(0, each.deadline - Date.now()))}` }
      : null,
    state === "delayed"
      ? { title: "Due", class: "num", cell: (each) => `in ${duration(Math.max(0, each.due_ts - Date.now()))}` }
      : null,
    { title: "Tag", class: "short", cell: (each) => each.tag ?? "–" },
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
    const options = { signal: screen.signal, exact: "jobs" };
    const answer = await get(topicPath(name, `/jobs${query({ state, limit: 100 })}`), options);
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
    placeholder: "Search data, tag, reason",
    "aria-label": "Search data, tag and reason",
    value: screen.value("q"),
  });
  const filter = h("input", {
    type: "search",
    placeholder: "Tag, or prefix*",
    "aria-label": "Tag",
    value: screen.value("tag"),
  });
  const note = h("span", { class: "muted small num", "data-role": "letters" }, "\u00a0");
  const path = topicPath(letters, "/redrive");
  // Newest first. Without a search a page of them is read, and more by "Show more"; with one all that one request may move.
  let read = [];
  let wanted = LETTERS;
  let total = 0;
  let last = "";
  const text = () => search.value.trim().toLowerCase();
  const matching = () => read.filter((each) => !text() || searched(each).includes(text()));

  async function move(label, what) {
    const plan = await post(path, { queue: name, ...what, dry_run: true });
    const planned = plan.moved + plan.remaining;
    if (!planned) {
      toast("There is nothing to move.", "bad");
      return;
    }
    const done = await openDialog(`Move ${label} back to ${name}`, {
      body: h(
        "p",
        {},
        `${plural(planned, "job")} will go back to the end of the queue and can be claimed at once. Each is in exactly one place.`,
      ),
      label: `Move ${plural(planned, "job")}`,
      submit: async () => {
        let moved = 0;
        for (;;) {
          const answer = await post(path, { queue: name, ...what });
          moved += answer.moved;
          if (!answer.remaining || !answer.moved) return { moved };
        }
      },
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
      { title: "Dead since", class: "num", cell: (each) => time(each.$ts) },
      { title: "Reason", class: "reason", cell: (each) => reason(each) },
      { title: "Deliveries", class: "right", cell: (each) => count(each.meta?.$dead_letter_deliveries) },
      { title: "Tag", class: "short", cell: (each) => each.$tag ?? "–" },
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
    onRow: (each) => openDialog(`Dead letter ${each.$seq}`, { body: letter(each), wide: true }),
    empty: () =>
      text() || filter.value
        ? empty("Nothing found", "No dead letter matches the filter.")
        : empty(
            "No dead letters",
            `Jobs that are delivered more often than max_deliveries allows appear here, from the topic ${letters}.`,
          ),
  });
  const filtered = () =>
    text() ? { seqs: matching().map((each) => each.$seq) } : filter.value ? { match: filter.value.trim() } : null;
  const moveFiltered = action("Move filtered", {
    scope: "write+delete",
    name: letters,
    unless: () => (filtered() === null ? "Search or give a tag first; Move all moves everything." : ""),
    run: () => move("the filtered jobs", filtered()),
  });
  const more = action("Show more", {
    run: () => {
      wanted += LETTERS;
      last = "";
      refresh();
    },
  });
  const foot = h("div", { class: "card-foot", hidden: true }, more);
  const draw = () => {
    const found = matching();
    const complete = read.length < limit();
    setText(
      note,
      complete
        ? `${plural(found.length, "letter")}${text() ? ` of ${count(read.length)}` : ""}`
        : text()
          ? `${plural(found.length, "letter")} of the newest ${count(read.length)}`
          : `the newest ${count(found.length)}${filter.value ? "" : ` of ${plural(total, "letter")}`}`,
    );
    table.update(found.slice(0, wanted));
    foot.hidden = found.length <= wanted && (complete || Boolean(text()));
    moveFiltered.refresh();
  };
  const limit = () => (text() ? SEARCHED_LETTERS : wanted);
  for (const [control, key] of [
    [search, "q"],
    [filter, "tag"],
  ]) {
    control.addEventListener("input", () => {
      screen.setValues({ [key]: control.value.trim() });
      draw();
      refresh();
    });
  }
  replace(
    body,
    card("Dead letters", {
      actions: [
        note,
        search,
        filter,
        moveFiltered,
        action("Move all", { kind: "primary", scope: "write+delete", name: letters, run: () => move("all jobs", {}) }),
      ],
      body: h("div", { class: "records" }, table.node, foot),
    }),
  );
  const mayRead = !forbidden("read", letters);
  return async () => {
    const now = await counts();
    if (!mayRead) return now;
    // The topic is created by its first letter.
    if (now.dead_letters) {
      const { head_seq: head, count: held } = await get(`${topicPath(letters)}?touch=false`, { signal: screen.signal });
      const state = JSON.stringify([head, held, limit(), filter.value]);
      if (state === last) return now;
      total = held;
      const asked = { toSeq: head, limit: limit(), filter: filter.value.trim() || undefined };
      read = (await readBefore(letters, asked, { signal: screen.signal })).records.reverse();
      last = state;
    } else {
      read = [];
      last = "";
    }
    draw();
    return now;
  };
}

/** What the worker said when it gave the job back. */
const reason = ({ meta }) => meta?.$dead_letter_reason ?? "delivered too often";

const searched = (each) => `${each.$tag ?? ""} ${reason(each)} ${JSON.stringify(each.data)}`.toLowerCase();

const letter = (each) =>
  h(
    "div",
    { class: "form" },
    pairs([
      ["Reason", reason(each)],
      ["Deliveries", count(each.meta?.$dead_letter_deliveries)],
      ["From", each.meta?.$dead_letter_from ?? "–"],
      ["Dead since", time(each.$ts)],
      each.$tag === undefined ? null : ["Tag", each.$tag],
    ]),
    jsonTree(each.data),
  );
