// Live reading: server-sent events read with fetch, so that the key goes in a header and never in a URL.

import { ApiError, headers, lost, post, send } from "./api.js";
import { parseExact } from "./json.js";

const RETRY_MS = 1000;

/** Split a stream of server-sent events into { event, data, id } objects. */
export class EventParser {
  constructor() {
    this.rest = "";
    this.lastId = "";
  }

  push(text) {
    this.rest += text;
    const found = [];
    for (;;) {
      const end = this.rest.indexOf("\n\n");
      if (end < 0) return found;
      const event = { event: "message", data: "", id: "" };
      for (const line of this.rest.slice(0, end).split("\n")) {
        const [field, ...value] = line.split(": ");
        const content = value.join(": ");
        if (field === "event") event.event = content;
        else if (field === "data") event.data += (event.data ? "\n" : "") + content;
        else if (field === "id") this.lastId = event.id = content;
      }
      this.rest = this.rest.slice(end + 2);
      if (event.data) found.push(event);
    }
  }
}

/**
 * Follow a topic from now on until `signal` is aborted; `from` says where to begin, otherwise the end of the topic.
 * `onEvent` gets (event name, decoded data), `onState` one of "connecting", "open", "lost".
 */
export async function follow(topic, { partition = 0, from, signal, onEvent, onState }) {
  let session = null;
  let cursor = from;
  const parser = new EventParser();
  while (!signal.aborted) {
    try {
      onState("connecting");
      if (session === null) {
        const start = cursor === undefined ? { tail: true, partition } : { from_seq: cursor, partition };
        session = await post(
          "/v0/watch",
          { topics: { [topic]: start }, include_tags: true, heartbeat_ms: 5000 },
          { signal },
        );
        cursor = session.topics[topic].from_seq;
        parser.lastId = "";
      }
      const more = parser.lastId ? { "Last-Event-ID": parser.lastId } : {};
      const options = { signal, headers: headers({ Accept: "text/event-stream", ...more }), cache: "no-store" };
      const response = await send(session.stream_url, options);
      onState("open");
      for await (const chunk of chunks(response.body)) {
        for (const { event, data } of parser.push(chunk)) {
          const decoded = parseExact(data);
          if (event === "record") cursor = decoded.to_seq;
          onEvent(event, decoded);
          if (event === "topic-deleted") return;
        }
      }
      // The server ended it: it stops, or the connection was closed by hand.
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status && ![404, 429, 503].includes(error.status)) throw error;
      // A session that is not known any more is made again, at the last record that was received.
      session = null;
      if (!(error instanceof ApiError)) lost();
    }
    parser.rest = "";
    if (signal.aborted) return;
    onState("lost");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function* chunks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}
