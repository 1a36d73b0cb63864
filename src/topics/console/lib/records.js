// Reading pages of records, newest first as well, and a record's own bytes.

import { headers, post, send, topicPath } from "./api.js";

const MAX_WINDOW = 2_000_000;
const MAX_ROUNDS = 40;

/** Up to `limit` records after `fromSeq`. */
export function readAfter(topic, { fromSeq, fromTs, limit, filter, partition = 0 }, options) {
  const body = { from_seq: fromSeq ?? 0, limit, include_tags: true, partition };
  if (fromTs !== undefined) body.from_ts = fromTs;
  if (filter) body.filter = filter;
  return post(topicPath(topic, "/diff"), body, { exact: "records", ...options });
}

/**
 * The last `limit` records up to `toSeq`, oldest first. Reads windows of seqs backwards, each larger than the one before:
 * where most records are deleted, or few match the filter, a few requests are enough.
 */
export async function readBefore(topic, { toSeq, limit, filter, partition = 0 }, options) {
  let window = limit;
  let end = toSeq;
  let found = [];
  let page = null;
  for (let round = 0; round < MAX_ROUNDS && end > 0 && found.length < limit; round += 1) {
    let from = Math.max(0, end - window);
    const part = [];
    do {
      const body = {
        from_seq: from,
        to_seq: end,
        limit: 10_000,
        include_tags: true,
        partition,
        ...(filter ? { filter } : {}),
      };
      page = await post(topicPath(topic, "/diff"), body, { exact: "records", ...options });
      part.push(...page.records);
      if (page.next_from_seq <= from) break;
      from = page.next_from_seq;
    } while (from < end && part.length < 10 * limit);
    if (from < end && part.length >= 10 * limit) {
      // The window holds far more than is needed, and its newest records were not read: try a smaller one.
      window = Math.max(limit, Math.floor(window / 8));
      continue;
    }
    found = [...part, ...found];
    const start = Math.max(0, end - window);
    if (start < page.earliest_seq) break;
    end = start;
    window = Math.min(MAX_WINDOW, part.length ? window * 2 : window * 8);
  }
  return { records: found.slice(-limit), head_seq: page?.head_seq ?? 0, earliest_seq: page?.earliest_seq ?? 1 };
}

/** The payload of one record as it was sent, byte for byte: numbers keep their digits. */
export async function rawData(topic, seq, partition, signal) {
  const response = await send(topicPath(topic, "/diff"), {
    method: "POST",
    signal,
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify({ from_seq: seq - 1, to_seq: seq, limit: 1, include_meta: false, partition }),
  });
  const text = await response.text();
  // Quotes inside strings are escaped, so these two can only be the field and the end of the list.
  const start = text.indexOf(',"data":');
  const end = text.lastIndexOf('}],"next_from_seq":');
  return start < 0 || end < start ? null : text.slice(start + 8, end);
}
