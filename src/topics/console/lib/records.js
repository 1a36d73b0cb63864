// Reading pages of records, newest first as well, and a record's own bytes.

import { headers, post, send, topicPath } from "./api.js";

const MAX_WINDOW = 2_000_000;
const MAX_ROUNDS = 40;
// One search reads at most this many records; the next goes on from there.
const SEARCH_PAGE = 1000;
const MAX_SEARCHED = 20_000;

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

const holds = (record, text) =>
  JSON.stringify([record.data, record.$tag, record.$node, record.meta]).toLowerCase().includes(text);

/**
 * The last `limit` records up to `toSeq` that hold the text in data, tag, node or meta. `low` is the first seq that was looked at:
 * a search of older records goes on below it.
 */
export async function searchBefore(topic, { text, toSeq, limit, ...where }, options) {
  let low = toSeq + 1;
  let searched = 0;
  let found = [];
  let page;
  do {
    page = await readBefore(topic, { toSeq: low - 1, limit: SEARCH_PAGE, ...where }, options);
    found = [...page.records.filter((each) => holds(each, text)), ...found];
    searched += page.records.length;
    low = page.records[0]?.$seq ?? page.earliest_seq;
  } while (low > page.earliest_seq && found.length < limit && searched < MAX_SEARCHED);
  if (found.length > limit) low = found.at(-limit).$seq;
  return { ...page, records: found.slice(-limit), low };
}

/** Up to `limit` records after `fromSeq` that hold the text; `high` is the last seq that was looked at. */
export async function searchAfter(topic, { text, fromSeq, fromTs, limit, ...where }, options) {
  let high = fromSeq ?? 0;
  let since = fromTs;
  let searched = 0;
  let found = [];
  let page;
  do {
    page = await readAfter(topic, { fromSeq: high, fromTs: since, limit: SEARCH_PAGE, ...where }, options);
    found = [...found, ...page.records.filter((each) => holds(each, text))];
    searched += page.records.length;
    high = page.next_from_seq;
    since = undefined;
  } while (high < page.head_seq && found.length < limit && searched < MAX_SEARCHED);
  if (found.length > limit) high = found[limit - 1].$seq;
  return { ...page, records: found.slice(0, limit), high };
}

/** Records as lines of JSON; numbers keep their digits. */
export const jsonLines = (records) =>
  records
    .map(({ $seq, $ts, $tag, $node, meta, data }) =>
      JSON.stringify({ seq: $seq, ts: $ts, tag: $tag, node: $node, meta, data }),
    )
    .join("\n") + "\n";

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
