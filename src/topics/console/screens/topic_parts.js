// Partitions and consumer groups of one topic.

import { get, query } from "../lib/api.js";
import { h, replace } from "../lib/dom.js";
import { bytes, count, duration } from "../lib/format.js";
import { me } from "../lib/session.js";
import { curl } from "../lib/snippets.js";
import { dataTable } from "../lib/table.js";
import { card, empty } from "../lib/widgets.js";

export async function partitionsTab(state) {
  const { screen } = state;
  const table = dataTable({
    label: "Partitions",
    key: (each) => each.partition,
    columns: [
      {
        title: "Partition",
        class: "right",
        cell: (each) =>
          h(
            "a",
            { href: `#/topics/${encodeURIComponent(state.name)}?partition=${each.partition}` },
            String(each.partition),
          ),
      },
      { title: "Records", class: "right", cell: (each) => count(each.count) },
      { title: "Bytes", class: "right", cell: (each) => bytes(each.bytes) },
      { title: "Earliest seq", class: "right", cell: (each) => count(each.earliest_seq) },
      { title: "Head seq", class: "right", cell: (each) => count(each.head_seq) },
    ],
  });
  replace(state.body, card("Partitions", { body: table.node }));
  screen.poll(() => {
    const { info } = state;
    const only = {
      partition: 0,
      count: info.count,
      bytes: info.bytes,
      earliest_seq: info.earliest_seq,
      head_seq: info.head_seq,
    };
    table.update(info.partitions?.length ? info.partitions : [only]);
  });
}

export async function groupsTab(state) {
  const { screen, name } = state;
  const table = dataTable({
    label: "Consumer groups",
    key: (each) => each.group_id,
    columns: [
      {
        title: "Group",
        class: "grow",
        cell: (each) =>
          h("a", { href: `#/groups/${encodeURIComponent(name)}/${encodeURIComponent(each.group_id)}` }, each.group_id),
      },
      { title: "Members", class: "right", cell: (each) => count(each.members.length) },
      { title: "Lag", class: "right", cell: (each) => count(each.lag_records) },
      { title: "Behind", class: "right", cell: (each) => duration(each.lag_seconds * 1000) },
    ],
    empty: () =>
      empty(
        "No consumer group reads this topic",
        "A group begins with its first poll. From a shell:",
        curl(
          "POST",
          "/api/topics/consume",
          { topic: name, group_id: "my-group", limit: 10 },
          { key: me.credentials_required },
        ),
      ),
  });
  replace(state.body, card("Consumer groups", { body: table.node }));
  screen.poll(async () =>
    table.update((await get(`/api/groups${query({ topic: name })}`, { signal: screen.signal })).groups),
  );
}
