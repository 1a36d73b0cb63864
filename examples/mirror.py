"""A mirror: copy a topic from one server to another, each record once.

    python examples/mirror.py http://127.0.0.1:4000 http://127.0.0.1:5000 orders

Each commit to the target names the producer and the seq that it reaches in the source. The target refuses a batch that it
has, and knows the last one, so the mirror can be killed at any time and started again: nothing is missing or doubled.
With --once it ends when it has caught up.
"""

import sys

from topics.client import Client, RecordIn


def main() -> None:
    source_url, target_url, topic = sys.argv[1:4]
    with Client(source_url) as source, Client(target_url) as target:
        producer = f"mirror:{topic}"
        target.create(topic)
        last = target.last_commit(producer)
        position = 0 if last is None else last.batch
        print(f"continue after seq {position}", flush=True)
        while True:
            wait_ms = 0 if "--once" in sys.argv else 20_000
            page = source.diff(topic, position, include_tags=True, wait_ms=wait_ms, limit=1000)
            if page.tombstone is not None:
                lost = page.tombstone
                print(f"the source has lost {lost.gap_from} to {lost.gap_to} ({lost.reason})", file=sys.stderr)
            if page.records:
                records = [RecordIn(each.data, tag=each.tag, node=each.node) for each in page.records]
                write = {"topic": topic, "records": records}
                target.commit(writes=[write], producer=producer, batch=page.next_from_seq)
                print(f"copied {len(records)} records, to seq {page.next_from_seq}", flush=True)
            position = page.next_from_seq
            if page.caught_up and "--once" in sys.argv:
                return


if __name__ == "__main__":
    main()
