// Pipelines: each job with its last batch, speed, latency, errors and what it put in quarantine.

import { del, get, post } from "../lib/api.js";
import { confirmDestroy } from "../lib/dialog.js";
import { h, replace } from "../lib/dom.js";
import { ago, count, duration, plural, rate, short } from "../lib/format.js";
import { dataTable } from "../lib/table.js";
import { action, card, empty, moreActions, pairs, tag, toast } from "../lib/widgets.js";

const STATES = {
  running: "good",
  starting: "info",
  waiting: "info",
  stopping: "warn",
  stopped: "",
  failed: "bad",
  lost: "bad",
};

export const title = () => "Pipelines";

export async function open(screen) {
  const body = h("div", { class: "grid" });
  const cards = new Map();
  screen.showWhenLoaded(h("div", { class: "head" }, h("h1", {}, "Pipelines")), body);
  const run = screen.poll(async () => {
    const { pipelines } = await get("/api/pipelines", { signal: screen.signal });
    if (!pipelines.length) {
      cards.clear();
      replace(
        body,
        card("Pipelines", {
          body: empty(
            "No pipeline has reported since the server was started",
            "A pipeline turns table changes into topics and topics into tables, with Spark. Start one beside the server:",
            `topics pipeline run --url ${location.origin}`,
          ),
        }),
      );
      return;
    }
    if (!cards.size) replace(body);
    for (const pipeline of pipelines) {
      if (!cards.has(pipeline.pipeline)) {
        const made = pipelineCard(pipeline.pipeline, () => run());
        cards.set(pipeline.pipeline, made);
        body.append(made.node);
      }
      cards.get(pipeline.pipeline).update(pipeline);
    }
    for (const [name, { node }] of cards) {
      if (!pipelines.some((each) => each.pipeline === name)) {
        node.remove();
        cards.delete(name);
      }
    }
  });
}

function pipelineCard(name, refresh) {
  const about = h("div", { class: "card-body facts" });
  const state = h("span");
  let jobCount = 0;
  const table = dataTable({
    label: `Jobs of ${name}`,
    key: (each) => each.name,
    columns: [
      { title: "Job", cell: (each) => each.name },
      { title: "Kind", cell: (each) => each.kind },
      { title: "State", cell: (each) => tag(each.state, STATES[each.state] ?? "") },
      { title: "Rows", class: "right", cell: (each) => short(each.rows) },
      { title: "Speed", class: "right", cell: (each) => rate(each.rows_per_s) },
      { title: "Lag", class: "right", cell: (each) => short(each.lag) },
      {
        title: "Last batch",
        class: "right",
        cell: (each) => (each.last_batch === null ? "–" : `#${each.last_batch}`),
      },
      { title: "Batch took", class: "right", cell: (each) => duration(each.batch_ms) },
      { title: "Restarts", class: "right", cell: (each) => count(each.restarts) },
      {
        title: "Quarantine",
        class: "right",
        cell: (each) => (quarantined(each) ? tag(count(quarantined(each)), "warn") : "–"),
      },
      { title: "Error", class: "grow wrap error", cell: (each) => each.error ?? "–" },
    ],
    empty: () => empty("No jobs", "The pipeline has no routes and no archives to work on."),
  });
  const node = card(name, {
    actions: [
      state,
      action("Stop", {
        scope: "admin",
        name,
        run: () =>
          confirmDestroy(`Stop the pipeline ${name}`, {
            what: "Its jobs finish their batch and end. Start it again with `topics pipeline run`.",
            name,
            label: "Stop pipeline",
            run: async () => {
              await post(`/api/pipelines/${encodeURIComponent(name)}/stop`);
              toast(`${name} was asked to stop.`);
              refresh();
            },
          }),
      }),
      moreActions(
        `More actions of ${name}`,
        action("Forget", {
          kind: "danger",
          scope: "delete",
          name,
          title: "Remove the last report of a pipeline that does not run any more",
          run: () =>
            confirmDestroy(`Forget the pipeline ${name}`, {
              what: `This removes the last report of ${name} with ${plural(jobCount, "job")}. A pipeline that still runs reports again.`,
              name,
              label: "Forget pipeline",
              run: async () => {
                await del(`/api/pipelines/${encodeURIComponent(name)}`);
                toast(`Forgot the reports of ${name}.`);
                refresh();
              },
            }),
        }),
      ),
    ],
    body: h("div", {}, about, table.node),
  });
  return {
    node,
    update(pipeline) {
      replace(
        state,
        tag(
          pipeline.stop && pipeline.state === "running" ? "asked to stop" : pipeline.state,
          STATES[pipeline.state] ?? "",
        ),
      );
      const speed = pipeline.jobs.reduce((sum, each) => sum + each.rows_per_s, 0);
      replace(
        about,
        pairs([
          ["Reported", ago(pipeline.reported_ts)],
          ["Running since", pipeline.started_ts ? ago(pipeline.started_ts) : "–"],
          ["Spark", pipeline.master ?? "–"],
          ["Jobs", `${plural(pipeline.jobs.length, "job")}, ${rate(speed)} together`],
        ]),
      );
      jobCount = pipeline.jobs.length;
      table.update(pipeline.jobs);
    },
  };
}

const quarantined = ({ notes }) => notes?.quarantined ?? notes?.quarantine ?? notes?.quarantined_rows ?? 0;
