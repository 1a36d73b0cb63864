// The same request as a line for the shell, as Python and as SQL.

const origin = () => location.origin;
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

/** A curl line; where the server requires a key it reads it from $TOPICS_TOKEN. */
export function curl(method, path, body, { key = false } = {}) {
  const parts = ["curl -sS"];
  if (method !== "GET" && !(method === "POST" && body !== undefined)) parts.push(`-X ${method}`);
  if (key) parts.push('-H "Authorization: Bearer $TOPICS_TOKEN"');
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return [...parts, quoted(origin() + path)].join(" ");
}

/** How the archive of a topic and what is live are read as one history: for the shell and as Python. */
export const historyAs = (topic) => ({
  shell: `topics read ${topic} --history --url ${origin()}`,
  Python: [
    "from topics.archive import read_records",
    "from topics.client import Client",
    "",
    `with Client("${origin()}") as client:`,
    `    for record in read_records(client, ${JSON.stringify(topic)}):`,
    "        print(record.seq, record.data)",
  ].join("\n"),
});

const SINGLE = /^[\w.:-]+$/;
const sqlName = (name) => (SINGLE.test(name) && !/[:.-]/.test(name) ? name : `"${name}"`);
const sqlText = (text) => `'${text.replaceAll("'", "''")}'`;

export const dropGroup = (topic, group) => `DROP CONSUMER GROUP ${sqlText(group)} ON ${sqlName(topic)}`;

export function readAs(topic, seq, partition, key) {
  const body = { from_seq: seq - 1, limit: 1, include_tags: true, ...(partition ? { partition } : {}) };
  return {
    curl: curl("POST", `/v0/topics/${encodeURIComponent(topic)}/diff`, body, { key }),
    Python: [
      "from topics.client import Client",
      "",
      `with Client("${origin()}") as client:`,
      `    page = client.diff(${JSON.stringify(topic)}, from_seq=${seq - 1}, limit=1, include_tags=True${partition ? `, partition=${partition}` : ""})`,
      "    print(page.records[0])",
    ].join("\n"),
    // Without GROUP: the statement reads and remembers nothing.
    SQL: `CONSUME FROM ${sqlName(topic)} PARTITION ${partition} FROM OFFSET ${seq} LIMIT 1`,
  };
}
