"""POST /v0/heads: one request waits for any of many partitions."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded
from topics.testing.http import Answer

# What must not happen would take this long; what must happen takes milliseconds.
LONG_MS = 30_000


def heads(topic: TopicApi, known: dict[str, Any], **fields: Any) -> Any:
    return succeeded(topic.api.post("/v0/heads", {"topics": known, **fields}))["topics"]


def waiting(topic: TopicApi, known: dict[str, Any]) -> Future[Answer]:
    """A request that waits, in a thread of its own."""
    threads = ThreadPoolExecutor(1)
    future = threads.submit(lambda: topic.api.post("/v0/heads", {"topics": known, "wait_ms": LONG_MS}))
    threads.shutdown(wait=False)
    return future


def test_heads_of_the_partitions_that_were_asked_for(topic: TopicApi) -> None:
    topic.configure(partitions=3)
    topic.append(1, 2, partition=2)
    found = heads(topic, {topic.name: {"0": 0, "2": 0}})
    assert found == {topic.name: {"epoch": topic.state()["epoch"], "heads": {"0": 0, "2": 2}}}


def test_describe_answers_where_every_partition_begins_and_ends(topic: TopicApi) -> None:
    topic.configure(partitions=2, cap_records=3)
    topic.append(1, 2, 3, 4, 5, partition=1)
    found = heads(topic, {topic.name: {}, "nowhere": {}}, describe=True)
    described = {"type": "log", "heads": {"0": 0, "1": 5}, "earliest": {"0": 1, "1": 3}}
    assert found == {topic.name: {"epoch": topic.state()["epoch"], **described}, "nowhere": None}
    refused(
        topic.api.post("/v0/heads", {"topics": {topic.name: {}}, "describe": True, "wait_ms": 1}),
        400,
        "invalid_request",
    )
    many = {f"t{number}": {} for number in range(501)}
    refused(topic.api.post("/v0/heads", {"topics": many, "describe": True}), 400, "invalid_request")


def test_absent_topic_is_answered_at_once(topic: TopicApi) -> None:
    topic.configure(partitions=2)
    found = heads(topic, {topic.name: {"0": 0, "5": 0}, "nowhere": {"0": 0}}, wait_ms=LONG_MS)
    assert found["nowhere"] is None
    assert found[topic.name]["heads"] == {"0": 0, "5": None}


@pytest.mark.parametrize("known", [{"0": 1, "1": 3}, {"0": 1, "1": 0}, {"0": 5, "1": 1}])
def test_a_head_that_differs_is_answered_at_once(topic: TopicApi, known: dict[str, int]) -> None:
    topic.configure(partitions=2)
    for number in (0, 1):
        topic.append(number, partition=number)
    assert heads(topic, {topic.name: known}, wait_ms=LONG_MS)[topic.name]["heads"] == {"0": 1, "1": 1}


def test_an_append_to_any_of_the_partitions_answers(topic: TopicApi) -> None:
    topic.configure(partitions=3)
    other = TopicApi(topic.api, f"{topic.name}.other")
    other.configure()
    future = waiting(topic, {topic.name: {"0": 0, "1": 0, "2": 0}, other.name: {"0": 0}})
    topic.append("new", partition=2)
    answer = succeeded(future.result(20))["topics"]
    assert answer[topic.name]["heads"] == {"0": 0, "1": 0, "2": 1}
    assert answer[other.name]["heads"] == {"0": 0}


def test_a_topic_that_is_dropped_answers(topic: TopicApi) -> None:
    topic.configure()
    future = waiting(topic, {topic.name: {"0": 0}})
    topic.drop()
    assert succeeded(future.result(20))["topics"] == {topic.name: None}


def test_an_append_to_another_partition_does_not_end_the_wait(topic: TopicApi) -> None:
    topic.configure(partitions=2)
    future = waiting(topic, {topic.name: {"0": 0}})
    topic.append("elsewhere", partition=1)
    topic.append("here", partition=0)
    assert succeeded(future.result(20))["topics"][topic.name]["heads"] == {"0": 1}


def test_the_wait_is_over_when_its_time_is(topic: TopicApi) -> None:
    topic.configure()
    assert heads(topic, {topic.name: {"0": 0}}, wait_ms=30)[topic.name]["heads"] == {"0": 0}
    assert heads(topic, {}, wait_ms=30) == {}


@pytest.mark.parametrize(
    "topics",
    [{"bad name!": {"0": 0}}, {"t": {"x": 0}}, {"t": {"-1": 0}}, {"t": [0]}, {f"t{n}": {} for n in range(10_001)}],
)
def test_malformed_questions_are_bad_requests(topic: TopicApi, topics: dict[str, Any]) -> None:
    refused(topic.api.post("/v0/heads", {"topics": topics}), 400, "invalid_request")
