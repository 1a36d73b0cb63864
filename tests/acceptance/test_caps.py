"""A write larger than the cap of its topic: every record gets a seq, the newest stay, the evicted ones are reported.

The same on every path that writes: append, WebSocket publish, commit of stages, router copies, dead letters.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.acceptance.test_queues import QueueApi
from tests.acceptance.test_routers import RouterApi
from tests.acceptance.topic import TopicApi, refused, seqs_of, succeeded
from topics.testing.http import Api

RECORDS = 30
PATIENCE_SECONDS = 20

Write = Callable[[TopicApi, str], None]


def text(number: int) -> str:
    return f"{number:080}"


TEXTS = [text(number) for number in range(1, RECORDS + 1)]
# 80 characters, two quotes and 24 bytes for the record itself.
RECORD_BYTES = 106
CAPS = [{"cap_records": 3}, {"cap_bytes": 3 * RECORD_BYTES + 50}]


def append(topic: TopicApi, url: str) -> None:
    body = topic.append(*TEXTS)
    assert body["seqs"] == list(range(1, RECORDS + 1))


def publish(topic: TopicApi, url: str) -> None:
    with connect(url.replace("http://", "ws://") + "/v0/ws", compression=None) as socket:
        records = [{"data": each} for each in TEXTS]
        socket.send(json.dumps({"op": "publish", "request_id": 1, "topic": topic.name, "records": records}))
        answer: dict[str, Any] = json.loads(socket.recv(PATIENCE_SECONDS))
        assert answer.get("head_seq") == RECORDS, answer


def commit(topic: TopicApi, url: str) -> None:
    halves = [TEXTS[:12], TEXTS[12:24]]
    stages = [
        topic.api.post(f"/v0/stages?topic={topic.name}", {"records": [{"data": each} for each in some]}).json[
            "stage_id"
        ]
        for some in halves
    ]
    writes = [{"topic": topic.name, "records": [{"data": each} for each in TEXTS[24:]]}]
    body = succeeded(topic.api.post("/v0/commits", {"stages": stages, "writes": writes}))
    assert [(each["first_seq"], each["last_seq"]) for each in body["results"]] == [(1, 12), (13, 24), (25, 30)]


def forward(topic: TopicApi, url: str) -> None:
    router = RouterApi(topic.api, f"{topic.name}.source", topic.name)
    router.create()
    router.source.append(*TEXTS)
    router.settled()


def dead_letter(topic: TopicApi, url: str) -> None:
    queue = QueueApi(topic.api, f"{topic.name}.queue")
    queue.configure(type="queue", max_deliveries=1, dead_letter=topic.name)
    queue.append(*TEXTS)
    jobs = queue.jobs(max=RECORDS)
    queue.settle("nack", *[job["$seq"] for job in jobs])
    assert queue.jobs(max=RECORDS) == []
    assert queue.counters() == (0, 0, RECORDS)


PATHS = [append, publish, commit, forward, dead_letter]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("cap", CAPS, ids=lambda cap: next(iter(cap)))
@pytest.mark.parametrize("write", PATHS, ids=lambda write: write.__name__)
def test_a_write_larger_than_the_cap_leaves_its_newest_records_and_reports_the_evicted_ones(
    topic: TopicApi, server_url: str, write: Write, cap: dict[str, int], durability: str
) -> None:
    if write is dead_letter and "cap_bytes" in cap:
        # The three keys that a dead letter gets in its meta count as well.
        cap = {"cap_bytes": 3 * RECORD_BYTES + 600}
    topic.configure(**cap, durability=durability)
    write(topic, server_url)
    page = topic.diff()
    assert seqs_of(page) == [28, 29, 30]
    assert [record["data"] for record in page["records"]] == TEXTS[-3:]
    tombstone = page["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (1, 27, "cap")
    assert (tombstone["missed_estimate"], tombstone["earliest_seq"], tombstone["head_seq"]) == (27, 28, 30)
    state = topic.state()
    assert (state["head_seq"], state["earliest_seq"], state["count"]) == (30, 28, 3)


@pytest.mark.parametrize("cap", CAPS, ids=lambda cap: next(iter(cap)))
@pytest.mark.parametrize("write", [append, publish, commit], ids=lambda write: write.__name__)
def test_a_write_larger_than_the_cap_of_a_topic_that_rejects_is_topic_full(
    topic: TopicApi, server_url: str, write: Write, cap: dict[str, int]
) -> None:
    topic.configure(**cap, discard="reject")
    topic.append(text(0))
    with pytest.raises(AssertionError, match="topic_full"):
        write(topic, server_url)
    state = topic.state()
    assert (state["head_seq"], state["count"]) == (1, 1)


def test_a_write_larger_than_the_cap_evicts_everything_older(topic: TopicApi) -> None:
    topic.configure(cap_records=4)
    topic.append("a", "b", "c")
    assert topic.append(*range(10))["seqs"] == list(range(4, 14))
    page = topic.diff(1)
    assert [record["data"] for record in page["records"]] == [6, 7, 8, 9]
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (2, 9)


def test_a_record_larger_than_the_whole_cap_gets_a_seq_and_is_evicted_at_once(topic: TopicApi) -> None:
    topic.configure(cap_bytes=200)
    topic.append("small")
    assert topic.append("x" * 300)["seqs"] == [2]
    page = topic.diff()
    assert page["records"] == []
    assert (page["next_from_seq"], page["head_seq"], page["earliest_seq"]) == (2, 2, 3)
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"], page["tombstone"]["reason"]) == (1, 2, "cap")
    assert topic.append("next")["seqs"] == [3]
    assert topic.seqs(2) == [3]


def test_a_first_write_larger_than_the_cap_it_brings_creates_the_topic(topic: TopicApi) -> None:
    body = {"records": [{"data": 1}, {"data": 2}], "config": {"cap_records": 1}}
    assert succeeded(topic.api.post(topic.path, body))["seqs"] == [1, 2]
    assert topic.seqs() == [2]


def test_a_first_write_larger_than_the_cap_it_brings_and_rejects_creates_nothing(topic: TopicApi) -> None:
    body = {"records": [{"data": 1}, {"data": 2}], "config": {"cap_records": 1, "discard": "reject"}}
    refused(topic.api.post(topic.path, body), 422, "topic_full")
    assert not topic.exists()


def test_jobs_of_a_write_larger_than_the_cap_of_its_queue_are_the_newest(queue_topic: QueueApi) -> None:
    queue_topic.configure(cap_records=3)
    queue_topic.append_records(*[{"data": number, "delay_ms": 60_000 if number < 9 else 0} for number in range(10)])
    assert [(job["$seq"], job["data"]) for job in queue_topic.jobs(max=10)] == [(10, 9)]
    assert queue_topic.counters() == (0, 1, 0)


@pytest.fixture
def queue_topic(api: Api, name: str) -> QueueApi:
    queue = QueueApi(api, name)
    queue.configure(type="queue")
    return queue
