"""What must be true at the end: nothing acknowledged is lost, no seq was assigned twice, every gap is explained."""

from typing import Any

from tools.soak.actors import JobProducer, LogWriter, Worker, call, wait_until
from topics.testing.http import Api


def check_log(api: Api, writer: LogWriter, *, may_lose: bool) -> list[str]:
    """Compare a topic with what its writer noted. Only a topic with a cap, a TTL or class ephemeral may lose records."""
    problems = []
    records, lost = read_all(api, writer.topic)
    if lost and not may_lose:
        problems.append(f"{writer.topic}: a tombstone {lost[0]} although nothing may be lost")
    for seq, text in writer.acknowledged.items():
        if seq in records:
            if not str(records[seq]).startswith(text):
                problems.append(f"{writer.topic}: seq {seq} has other data than was written")
            if seq in writer.deleted:
                problems.append(f"{writer.topic}: deleted seq {seq} is there")
        elif seq not in writer.maybe_deleted and not any([first <= seq <= end for first, end in lost]):
            problems.append(f"{writer.topic}: acknowledged seq {seq} is missing without a tombstone")
    return problems[:20]


def check_queue(api: Api, producer: JobProducer, workers: list[Worker]) -> list[str]:
    """Every produced job is finished once or still in the queue."""
    left = set(read_all(api, producer.queue)[0])
    finished: set[int] = set()
    problems = []
    for worker in workers:
        twice = finished & worker.finished
        if twice:
            problems.append(f"{producer.queue}: jobs {sorted(twice)[:5]} were acknowledged by two workers")
        finished |= worker.finished
    back = left & finished
    if back:
        problems.append(f"{producer.queue}: finished jobs {sorted(back)[:5]} are in the queue")
    return problems


def check_router(api: Api, source: str, dest: str) -> list[str]:
    """The destination has a copy of every record of the source that was not deleted before it was forwarded."""
    head = call(api, "GET", f"/v0/topics/{source}")["head_seq"]
    # Copies are made in the background.
    wait_until(lambda: call(api, "GET", "/v0/routers/soak")["lag"] == 0, 60, "the router did not catch up")
    originals = [str(data) for data in read_all(api, source)[0].values()]
    copies = {str(data) for data in read_all(api, dest)[0].values()}
    missing = [text for text in originals if text not in copies]
    return [f"{dest}: {len(missing)} of {head} records were not forwarded"] if missing else []


def read_all(api: Api, topic: str) -> tuple[dict[int, Any], list[tuple[int, int]]]:
    """Every record by seq, and the ranges that tombstones report."""
    records: dict[int, Any] = {}
    lost: list[tuple[int, int]] = []
    cursor = last = 0
    while True:
        page = call(api, "POST", f"/v0/topics/{topic}/diff", {"from_seq": cursor, "limit": 1000})
        if page["tombstone"] is not None:
            lost.append((page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]))
        for record in page["records"]:
            assert record["$seq"] > last, f"{topic}: seq {record['$seq']} after {last}"
            last = record["$seq"]
            records[last] = record["data"]
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            return records, lost
