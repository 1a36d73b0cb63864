"""A search index: the change feed of a table into SQLite FTS5.

    topics append changes:docs '{"id": 1, "text": "the quick brown fox"}' '{"id": 1, "deleted": true}'
    python examples/search.py http://127.0.0.1:4000 index.sqlite --once
    python examples/search.py http://127.0.0.1:4000 index.sqlite --search quick

The position in the topic is written in the same transaction as the documents, so the index has each change once, also
after a crash. Without --once it goes on with new changes.
"""

import sqlite3
import sys

from topics.client import Client, Record

TOPIC = "changes:docs"
SCHEMA = """
    CREATE VIRTUAL TABLE IF NOT EXISTS docs USING fts5(text);
    CREATE TABLE IF NOT EXISTS position (seq INTEGER);
    INSERT INTO position SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM position);
"""


def main() -> None:
    url, path = sys.argv[1:3]
    index = sqlite3.connect(path)
    index.executescript(SCHEMA)
    if "--search" in sys.argv:
        for row in index.execute("SELECT rowid, text FROM docs WHERE docs MATCH ? ORDER BY rank", [sys.argv[-1]]):
            print(f"{row[0]}: {row[1]}")
        return
    (seq,) = index.execute("SELECT seq FROM position").fetchone()
    with Client(url) as client:
        topic = client.topic(TOPIC)
        for item in topic.read(seq) if "--once" in sys.argv else topic.follow(from_seq=seq):
            with index:
                if isinstance(item, Record):
                    apply(index, item)
                else:
                    print(f"changes {item.gap_from} to {item.gap_to} are lost; build the index again", file=sys.stderr)


def apply(index: sqlite3.Connection, change: Record) -> None:
    """Apply one change and remember it, in the transaction of the caller."""
    index.execute("DELETE FROM docs WHERE rowid = ?", [change.data["id"]])
    if not change.data.get("deleted"):
        index.execute("INSERT INTO docs (rowid, text) VALUES (?, ?)", [change.data["id"], change.data["text"]])
    index.execute("UPDATE position SET seq = ?", [change.seq])


if __name__ == "__main__":
    main()
