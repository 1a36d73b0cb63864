// Configuration: what a change would drop is shown before it is saved. Deletes of records are here as well.

import { get, post, put, topicPath } from "../lib/api.js";
import { confirmDestroy, openDialog } from "../lib/dialog.js";
import { h, replace, setText } from "../lib/dom.js";
import { bytes, count, duration, plural } from "../lib/format.js";
import { action, card, check, field, select, toast } from "../lib/widgets.js";

const NUMBERS = {
  ttl_ms: ["Keep for (ms)", "0 for no limit"],
  cap_records: ["Cap of records", "0 for no cap"],
  cap_bytes: ["Cap of bytes", "0 for no cap"],
  idempotency_window_ms: ["Idempotency window (ms)", "How long keys are remembered"],
};
const QUEUE_NUMBERS = {
  lease_ms: ["Lease (ms)", "100 to 86,400,000"],
  max_deliveries: ["Deliveries before dead letter", "0 for no limit"],
  claim_jitter_ms: ["Claim window (ms)", "At most 5,000"],
};
// How a number is shown beside its hint, by the unit at the end of its name.
const READINGS = { ms: duration, bytes };
const FLAGS = {
  auto_create: "Writes may create it",
  auto_priority: "Automatic priority",
  dedupe_node: "Reads may leave out nodes",
};

export async function configTab(state) {
  const { screen, name } = state;
  const { config } = await get(`${topicPath(name)}?touch=false`, { signal: screen.signal });
  const queue = config.type === "queue";
  const controls = {};
  const number = ([key, [label, hint]]) => {
    const control = h("input", { type: "number", min: "0", value: String(config[key]), name: key });
    controls[key] = control;
    const node = field(label, control, hint);
    const read = READINGS[key.split("_").at(-1)];
    const explain = () =>
      setText(
        node.querySelector(".hint"),
        read && control.value > 0 ? `${read(Number(control.value))}. ${hint}` : hint,
      );
    control.addEventListener("input", explain);
    explain();
    return node;
  };
  const flag = ([key, label]) =>
    check(label, (controls[key] = h("input", { type: "checkbox", checked: config[key], name: key })));
  controls.durability = select(
    { fsync: "fsync", disk: "disk", memory: "memory", ephemeral: "ephemeral" },
    config.durability,
    { name: "durability" },
  );
  controls.discard = select({ old: "Drop the oldest", reject: "Reject the write" }, config.discard, {
    name: "discard",
  });
  controls.priority = h("input", {
    type: "number",
    value: config.priority === null ? "" : String(config.priority),
    name: "priority",
  });
  controls.dead_letter = h("input", { type: "text", value: config.dead_letter ?? "", name: "dead_letter" });
  const outcome = h("div", { role: "status" });

  /** The fields that differ from the current configuration. */
  function changes() {
    const changed = {};
    for (const [key, control] of Object.entries(controls)) {
      if (!control.isConnected) continue;
      let value = control.type === "checkbox" ? control.checked : control.value;
      if (control.type === "number") value = value === "" ? null : Number(value);
      if (key === "dead_letter") value = value.trim() || null;
      if (value !== config[key]) changed[key] = value;
    }
    return changed;
  }
  const save = async () => {
    const change = changes();
    if (!Object.keys(change).length) {
      toast("Nothing was changed.");
      return;
    }
    const plan = await put(`${topicPath(name)}?dry_run=true`, change);
    const store = async () => {
      await put(topicPath(name), change);
      toast("The configuration was saved.");
      await configTab(state);
      state.refresh();
    };
    if (!plan.evicts_records) {
      await store();
      return;
    }
    await confirmDestroy(`Change the configuration of ${name}`, {
      what: drops(plan),
      name,
      label: `Save and drop ${plural(plan.evicts_records, "record")}`,
      run: store,
    });
  };
  const drops = (plan) =>
    `This change drops ${plural(plan.evicts_records, "record")} (${bytes(plan.evicts_bytes)}) at once, for good.`;
  const preview = async () => {
    const plan = await put(`${topicPath(name)}?dry_run=true`, changes());
    const message = plan.evicts_records ? drops(plan) : "This change drops no records.";
    replace(outcome, h("div", { class: `note-box ${plan.evicts_records ? "warn" : ""}` }, message));
  };

  const tagText = h("input", {
    type: "text",
    placeholder: "Tag, or prefix*",
    "aria-label": "Tag of records to delete",
  });
  const before = h("input", {
    type: "number",
    min: "1",
    placeholder: "Before seq",
    "aria-label": "Delete records before this seq",
  });
  const partition = h("input", { type: "number", min: "0", value: "0", "aria-label": "Partition to delete from" });
  replace(
    state.body,
    card("Configuration", {
      actions: [
        action("Preview", { scope: "admin", name, run: preview }),
        action("Save", { kind: "primary", scope: "admin", name, run: save }),
      ],
      body: h(
        "div",
        { class: "card-body form" },
        h(
          "div",
          { class: "fields" },
          field("Durability", controls.durability, "When a write is acknowledged"),
          Object.entries(NUMBERS).map(number),
          field("At a cap", controls.discard),
          field("Priority", controls.priority, "Empty for automatic"),
          queue ? Object.entries(QUEUE_NUMBERS).map(number) : null,
          queue ? field("Dead-letter topic", controls.dead_letter, "Empty for none") : null,
        ),
        h(
          "div",
          { class: "toolbar" },
          Object.entries(FLAGS).map(flag),
          queue ? flag(["leases_durable", "Leases survive a restart"]) : null,
        ),
        outcome,
      ),
    }),
    card("Delete records", {
      body: h(
        "div",
        { class: "card-body form" },
        h(
          "p",
          { class: "muted" },
          "Records are deleted for good, without a tombstone. The count is shown before anything is deleted.",
        ),
        h(
          "div",
          { class: "form-row" },
          field("By tag", tagText),
          field("Before seq", before),
          state.info.partitions?.length ? field("Partition", partition) : null,
          action("Count and delete", {
            kind: "danger",
            scope: "delete",
            name,
            run: () => remove(state, tagText, before, partition),
          }),
        ),
      ),
    }),
  );
}

async function remove(state, tagText, before, partition) {
  const { name } = state;
  const body = { partition: Number(partition.value) };
  if (tagText.value) body.match = tagText.value;
  if (before.value) body.before_seq = Number(before.value);
  if (!tagText.value && !before.value) {
    toast("Give a tag, a seq, or both.", "bad");
    return;
  }
  const plan = await post(topicPath(name, "/delete"), { ...body, dry_run: true });
  if (!plan.deleted) {
    await openDialog("Nothing to delete", { body: h("p", {}, "No record matches.") });
    return;
  }
  await confirmDestroy(`Delete ${plural(plan.deleted, "record")} of ${name}`, {
    what: `${plural(plan.deleted, "record")} of ${count(state.info.count)} match and will be deleted for good.`,
    name,
    label: `Delete ${plural(plan.deleted, "record")}`,
    run: async () => {
      const done = await post(topicPath(name, "/delete"), body);
      toast(`Deleted ${plural(done.deleted, "record")}.`);
      state.refresh();
    },
  });
}
