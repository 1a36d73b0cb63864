// Live: every connection that stays open, how far it is behind, and a way to end one.

import { del, get } from "../lib/api.js";
import { confirmDestroy } from "../lib/dialog.js";
import { h, setText } from "../lib/dom.js";
import { ago, bytes, count, plural } from "../lib/format.js";
import { me } from "../lib/session.js";
import { dataTable } from "../lib/table.js";
import { action, empty, select, tag, toast } from "../lib/widgets.js";

const KINDS = { watch: "Watch stream", socket: "WebSocket", work: "Work stream", session: "Idle session" };

export const title = () => "Live";

export async function open(screen) {
  const kind = select({ "": "All kinds", ...KINDS }, screen.value("kind"), { "aria-label": "Kind" });
  const total = h("span", { class: "muted num" }, "\u00a0");
  const key = me.credentials_required ? ' -H "Authorization: Bearer $TOPICS_TOKEN"' : "";
  const table = dataTable({
    label: "Live connections",
    key: (each) => each.id,
    columns: [
      { title: "Kind", cell: (each) => tag(KINDS[each.kind], each.kind === "session" ? "" : "info") },
      { title: "Key", cell: (each) => each.caller },
      { title: "From", class: "num", cell: (each) => each.peer ?? "–" },
      { title: "Topics", class: "grow", cell: topicsCell },
      {
        title: "Cursor",
        class: "right",
        cell: (each) =>
          each.topics.length === 1 && each.topics[0].cursor !== null ? count(each.topics[0].cursor) : "–",
      },
      {
        title: "Lag",
        class: "right",
        cell: (each) => (each.kind === "work" ? `${count(each.jobs)} jobs` : count(each.lag)),
      },
      { title: "Buffer", class: "right", cell: (each) => bytes(each.buffered_bytes) },
      { title: "Sent", class: "right", cell: (each) => bytes(each.sent_bytes) },
      { title: "Since", class: "right", cell: (each) => ago(each.since_ts) },
      {
        title: "",
        class: "actions",
        once: true,
        cell: (first, item) =>
          action("Disconnect", { kind: "small danger", scope: "admin", run: () => disconnect(item(), () => run()) }),
      },
    ],
    empty: () =>
      empty(
        "No live connections",
        "Watch streams, WebSockets and work streams appear here. This line streams the topic hello, after it has a record:",
        `curl -sS${key} -H 'Content-Type: application/json' -d '{"topics":{"hello":{}}}' '${location.origin}/v0/watch' | sed 's/.*"stream_url":"\\([^"]*\\)".*/\\1/' | xargs -I{} curl -sSN${key} '${location.origin}{}'`,
      ),
  });
  screen.showWhenLoaded(
    h("div", { class: "head" }, h("h1", {}, "Live connections"), total, h("div", { class: "actions" }, kind)),
    h("section", { class: "card", "aria-label": "Open now" }, table.node),
  );
  const run = screen.poll(async () => {
    const answer = await get("/v0/connections", { signal: screen.signal });
    const shown = answer.connections.filter((each) => !kind.value || each.kind === kind.value);
    setText(
      total,
      answer.total > answer.connections.length
        ? `the first ${answer.connections.length} of ${count(answer.total)}`
        : plural(shown.length, "connection"),
    );
    table.update(shown);
  }, 1500);
  kind.addEventListener("change", () => {
    screen.setValues({ kind: kind.value });
    run();
  });
}

function topicsCell({ topics }) {
  const shown = topics
    .slice(0, 3)
    .flatMap(({ topic }, index) => [
      index ? ", " : "",
      h("a", { href: `#/topics/${encodeURIComponent(topic)}` }, topic),
    ]);
  return h("span", {}, shown, topics.length > 3 ? ` and ${topics.length - 3} more` : "");
}

const disconnect = (each, done) =>
  confirmDestroy("Disconnect", {
    what: `This ends 1 connection (${KINDS[each.kind]}) of ${each.caller} with ${plural(each.topics.length, "topic")}. A client that still runs connects again.`,
    name: each.topics.length === 1 ? each.topics[0].topic : each.id,
    label: "Disconnect",
    run: async () => {
      await del(`/v0/connections/${encodeURIComponent(each.id)}`);
      toast("Disconnected.");
      done();
    },
  });
