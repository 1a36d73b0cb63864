// Archive: where the history of a topic is copied to, and how far that is.

import { del, get, put, topicPath } from "../lib/api.js";
import { confirmDestroy, openDialog } from "../lib/dialog.js";
import { h, replace } from "../lib/dom.js";
import { ago, count, duration } from "../lib/format.js";
import { me } from "../lib/session.js";
import { curl, historyAs } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { action, card, empty, field, pairs, snippet, toast } from "../lib/widgets.js";

export async function archiveTab(state) {
  const { screen, name } = state;
  const body = h("div");
  const actions = h("div", { class: "toolbar" });
  replace(state.body, card("Archive", { actions, body }));
  const table = dataTable({
    label: "Progress by partition",
    key: (each) => `${each.epoch} ${each.partition}`,
    columns: [
      { title: "Partition", class: "right", cell: (each) => String(each.partition) },
      { title: "Archived below seq", class: "right", cell: (each) => count(each.next_seq) },
      { title: "Still to copy", class: "right", cell: (each) => count(each.behind) },
      { title: "Epoch", class: "right", cell: (each) => String(each.epoch) },
    ],
    empty: () => empty("Nothing is copied yet", "The table is filled by a running pipeline: `topics pipeline run`."),
  });
  const facts = h("div", { class: "card-body facts" });
  const history = historyAs(name);
  const reading = h(
    "div",
    { class: "card-body form" },
    h("h3", {}, "Read the archive and what is live as one history"),
    snippet(history.shell),
    snippet(history.Python),
  );
  const run = screen.poll(async () => {
    const { archives } = await get("/api/archives", { signal: screen.signal });
    const archive = archives.find((each) => each.topic === name) ?? null;
    replace(
      actions,
      action(archive ? "Change" : "Archive this topic", {
        scope: "admin",
        name,
        run: () => edit(name, archive, () => run()),
      }),
      archive
        ? action("Stop archiving", { kind: "danger", scope: "delete", name, run: () => clear(name, () => run()) })
        : null,
    );
    if (archive === null) {
      replace(
        body,
        empty(
          "This topic is not archived",
          "An archive keeps every record in a Delta table, also those that a cap or their age removes here. From a shell:",
          curl("PUT", topicPath(name, "/archive"), { uri: `archive/${name}` }, { key: me.credentials_required }),
        ),
      );
      return;
    }
    const heads = Object.fromEntries((state.info.partitions ?? []).map((each) => [each.partition, each.head_seq]));
    const places = archive.archived.map((each) => ({
      ...each,
      behind: Math.max(0, (heads[each.partition] ?? state.info.head_seq) + 1 - each.next_seq),
    }));
    const about = pairs([
      ["Table", h("code", {}, archive.uri)],
      ["Version", archive.table_version === null ? "none yet" : String(archive.table_version)],
      ["Freshness", duration(archive.freshness_ms)],
      ["Compaction", archive.compact_interval_ms ? `every ${duration(archive.compact_interval_ms)}` : "never"],
      ["Unused files", archive.vacuum_hours ? `removed after ${archive.vacuum_hours} h` : "kept"],
      ["Last progress", archive.updated_ts ? ago(archive.updated_ts) : "none yet"],
    ]);
    table.update(places);
    if (!reading.isConnected) replace(body, facts, table.node, reading);
    replace(facts, about);
  }, 3000);
}

async function edit(name, archive, done) {
  const uri = h("input", { type: "text", value: archive?.uri ?? `archive/${name}`, required: true });
  const freshness = h("input", {
    type: "number",
    min: "1",
    max: "600",
    value: String((archive?.freshness_ms ?? 10_000) / 1000),
  });
  const saved = await openDialog(`Archive ${name}`, {
    body: [
      field("Delta table (path or URI)", uri),
      field("Freshness in seconds", freshness, "How old a record may be before it is in the table."),
    ],
    submit: () => put(topicPath(name, "/archive"), { uri: uri.value, freshness_ms: Number(freshness.value) * 1000 }),
  });
  if (saved) {
    toast(`${name} is archived to ${saved.uri}.`);
    done();
  }
}

const clear = (name, done) =>
  confirmDestroy(`Stop archiving ${name}`, {
    what: "New records are no longer copied. The table and its files stay.",
    name,
    label: "Stop archiving",
    run: async () => {
      await del(topicPath(name, "/archive"));
      toast(`${name} is no longer archived.`);
      done();
    },
  });
