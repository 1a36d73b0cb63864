"""POST /v0/topics/:topic/diff: a reader at a cursor gets what comes after it, and always knows where to go on."""

import json
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused, seqs_of

# The cursor


def test_a_reader_gets_everything_after_its_cursor(topic: TopicApi) -> None:
    topic.append("a", "b", "c")
    body = topic.diff(1)
    assert body["topic"] == topic.name
    assert [(record["$seq"], record["data"]) for record in body["records"]] == [(2, "b"), (3, "c")]
    assert (body["next_from_seq"], body["head_seq"], body["earliest_seq"]) == (3, 3, 1)
    assert (body["caught_up"], body["lag"], body["tombstone"]) == (True, 0, None)
    assert body["performance"]["records_scanned"] == 2


def test_without_a_cursor_reading_begins_at_the_first_record(topic: TopicApi) -> None:
    topic.append(1, 2)
    answer = topic.api.post(f"{topic.path}/diff", {})
    assert seqs_of(answer.json) == [1, 2]


def test_a_reader_at_the_head_is_at_the_tail(topic: TopicApi) -> None:
    topic.append(1, 2)
    body = topic.diff(2)
    assert (body["records"], body["next_from_seq"], body["caught_up"], body["tombstone"]) == ([], 2, True, None)


def test_an_empty_topic_is_caught_up(topic: TopicApi) -> None:
    topic.configure()
    body = topic.diff()
    assert (body["records"], body["next_from_seq"], body["head_seq"], body["earliest_seq"]) == ([], 0, 0, 1)
    assert (body["caught_up"], body["tombstone"], body["lag"]) == (True, None, 0)


def test_reading_never_creates_a_topic(topic: TopicApi) -> None:
    answer = refused(topic.api.post(f"{topic.path}/diff", {"wait_ms": 5000}), 404, "topic_not_found")
    assert answer.detail["topic"] == topic.name
    assert not topic.exists()


def test_reading_changes_nothing_for_the_next_reader(topic: TopicApi) -> None:
    topic.append(1, 2, 3)
    first, second = topic.diff(1), topic.diff(1)
    del first["performance"], second["performance"]
    assert first == second


def test_pages_follow_each_other_without_gap_or_repeat(topic: TopicApi) -> None:
    for n in range(60):
        topic.append(*range(n % 7 + 1))
    head = topic.state()["head_seq"]
    for limit in (1, 2, 7, 100, 1000):
        assert [record["$seq"] for record in topic.read_all(limit=limit)] == list(range(1, head + 1))


def test_lag_counts_what_is_behind_the_cursor(topic: TopicApi) -> None:
    topic.append(*range(10))
    body = topic.diff(2, limit=3)
    assert (seqs_of(body), body["next_from_seq"], body["lag"], body["caught_up"]) == ([3, 4, 5], 5, 5, False)


# The limit


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 256),
        ({"limit": 0}, 256),
        ({"limit": 1}, 1),
        ({"limit": 257}, 257),
        ({"limit": 1000}, 1000),
        ({"limit": 1001}, 1000),
        ({"limit": 4_294_967_295}, 1000),
        ({"limit": 2**64 - 1}, 1000),
    ],
)
def test_limit_has_a_default_and_is_clamped(topic: TopicApi, fields: dict[str, int], expected: int) -> None:
    topic.append(*range(1100))
    body = topic.diff(**fields)
    assert seqs_of(body) == list(range(1, expected + 1))
    assert body["next_from_seq"] == expected


def test_limit_counts_delivered_records_not_skipped_ones(topic: TopicApi) -> None:
    for n in range(20):
        topic.append_records({"data": n, "node": "own", "tag": "gone"}, {"data": n, "node": "other"})
    assert topic.seqs(limit=5, node="own") == [2, 4, 6, 8, 10]
    topic.remove(match="gone")
    body = topic.diff(limit=5)
    assert seqs_of(body) == [2, 4, 6, 8, 10]
    assert body["next_from_seq"] == 10


def test_a_reader_that_says_where_it_ends_stops_there_and_gets_more_at_a_time(topic: TopicApi) -> None:
    topic.append(*range(2500))
    assert topic.seqs(5, to_seq=8) == [6, 7, 8]
    assert topic.seqs(0, to_seq=2400, limit=10_000) == list(range(1, 2401))
    ended = topic.diff(2400, to_seq=2400, wait_ms=20_000)
    assert (ended["records"], ended["next_from_seq"], ended["caught_up"]) == ([], 2400, False), "answered at once"


# The byte budget


def test_an_answer_holds_about_1_mib_and_skips_nothing(topic: TopicApi) -> None:
    for n in range(40):
        topic.append(f"{n:0100000}")
    answer = topic.api.post(f"{topic.path}/diff", {})
    assert 500_000 < len(answer.body) <= (1 << 20) + 10_000
    assert answer.json["caught_up"] is False
    assert [record["$seq"] for record in topic.read_all()] == list(range(1, 41))


def test_a_reader_may_ask_for_another_budget_up_to_8_mib(topic: TopicApi) -> None:
    for n in range(20):
        topic.append(f"{n:0500000}")
    assert seqs_of(topic.diff(max_batch_bytes=1)) == [1]
    assert len(seqs_of(topic.diff(max_batch_bytes=0))) == 2
    assert len(seqs_of(topic.diff(max_batch_bytes=3_000_000))) in (5, 6)
    assert len(seqs_of(topic.diff(max_batch_bytes=1 << 40))) in (16, 17)


def test_a_batch_larger_than_the_budget_is_read_in_parts(topic: TopicApi) -> None:
    topic.append(*["x" * 300_000 for _ in range(10)])
    body = topic.diff()
    assert 1 <= len(body["records"]) <= 3
    assert [record["$seq"] for record in topic.read_all()] == list(range(1, 11))


def test_at_least_one_record_comes_however_large(topic: TopicApi) -> None:
    large = "x" * ((1 << 20) - 2)
    topic.append("small", large)
    topic.append(large)
    body = topic.diff()
    assert seqs_of(body) == [1]
    assert body["next_from_seq"] == 1
    for seq in (1, 2):
        body = topic.diff(seq)
        assert seqs_of(body) == [seq + 1]
        assert body["next_from_seq"] == seq + 1


def test_the_budget_does_not_skip_a_record_behind_filtered_ones(topic: TopicApi) -> None:
    half = "x" * 600_000
    topic.append_records({"data": half}, {"data": 1, "node": "own"}, {"data": half}, {"data": 2, "node": "own"})
    first = topic.diff(node="own")
    assert seqs_of(first) == [1]
    second = topic.diff(first["next_from_seq"], node="own")
    assert (seqs_of(second), second["caught_up"]) == ([3], True)


# What a record shows


def test_tags_are_left_out_and_meta_is_shown_unless_asked_otherwise(topic: TopicApi) -> None:
    topic.append_records({"data": 1, "tag": "t", "node": "n", "meta": {"k": "v"}})

    def keys(**fields: Any) -> set[str]:
        return set(topic.diff(**fields)["records"][0]) - {"$seq", "$ts", "data"}

    assert keys() == {"$node", "meta"}
    assert keys(include_tags=True) == {"$node", "$tag", "meta"}
    assert keys(include_meta=False) == {"$node"}
    assert keys(include_tags=True, include_meta=False) == {"$node", "$tag"}
    assert keys(include_tags=False, include_meta=True) == {"$node", "meta"}


# The node filter


def test_a_node_does_not_get_its_own_records_back(topic: TopicApi) -> None:
    topic.append_records({"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}, {"data": 4, "node": "A"})
    assert topic.seqs(node="a") == [2, 3, 4]
    assert topic.seqs(node=["a", "b"]) == [3, 4]
    assert topic.seqs(node=["a", "absent"]) == [2, 3, 4]
    assert topic.seqs(node="") == [1, 2, 3, 4]
    for nothing in ([], None):
        assert topic.seqs(node=nothing) == [1, 2, 3, 4]


def test_node_equality_is_exact(topic: TopicApi) -> None:
    topic.append_records(
        {"data": 1, "node": "worker-1"}, {"data": 2, "node": "worker-10"}, {"data": 3, "node": "worker"}
    )
    assert topic.seqs(node="worker-1") == [2, 3]
    assert topic.seqs(node="worker*") == [1, 2, 3]


def test_a_topic_that_opts_out_gives_everybody_everything(topic: TopicApi) -> None:
    topic.configure(dedupe_node=False)
    topic.append(1, 2, node="a")
    assert topic.seqs(node="a") == [1, 2]
    topic.configure(dedupe_node=True)
    assert topic.seqs(node="a") == []


@pytest.mark.parametrize("limit", [1, 10, 1000])
def test_a_topic_of_own_records_only_is_passed_in_one_call(topic: TopicApi, limit: int) -> None:
    topic.configure(durability="ephemeral")
    for _ in range(3):
        topic.append_records(*[{"data": n, "node": "ab"[n % 2]} for n in range(10_000)])
    body = topic.diff(node=["a", "b"], limit=limit)
    assert (body["records"], body["next_from_seq"], body["caught_up"]) == ([], 30_000, True)
    assert body["tombstone"] is None
    assert body["performance"]["records_scanned"] == 30_000


def test_invisible_records_at_the_tail_are_passed(topic: TopicApi) -> None:
    topic.append_records(
        {"data": 1}, {"data": 2, "node": "own"}, {"data": 3, "tag": "gone"}, {"data": 4, "node": "own"}
    )
    topic.remove(match="gone")
    body = topic.diff(node="own")
    assert (seqs_of(body), body["next_from_seq"], body["caught_up"]) == ([1], 4, True)
    assert topic.diff(4, node="own")["caught_up"] is True


# From a time


def test_reading_can_begin_at_a_time(topic: TopicApi) -> None:
    for n in range(5):
        topic.append(n)
    times = [record["$ts"] for record in topic.diff()["records"]]
    for ts in {*times, times[0] - 1000, times[-1] + 1000}:
        assert topic.seqs(from_ts=ts) == [seq for seq, at in enumerate(times, 1) if at >= ts]
    assert topic.seqs(4, from_ts=0) == [5]
    body = topic.diff(from_ts=times[-1] + 1000)
    assert (body["next_from_seq"], body["caught_up"]) == (5, True)


# Types

NUMBERS = ["from_seq", "limit", "wait_ms", "from_ts", "partition"]


@pytest.mark.parametrize("value", ['"5"', "1.5", "1.0", "-1", "true", "[]", "{}", "1e400"])
@pytest.mark.parametrize("field", NUMBERS)
def test_numbers_are_whole_and_not_negative(topic: TopicApi, field: str, value: str) -> None:
    topic.append(1)
    body = b'{"%b":%b}' % (field.encode(), value.encode())
    refused(topic.api.post(f"{topic.path}/diff", body), 400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        {"from_seq": 2**64},
        {"node": 5},
        {"node": True},
        {"node": [5]},
        {"node": ["a", None]},
        {"node": {"a": 1}},
        {"include_tags": 1},
        {"include_tags": "yes"},
        {"include_tags": None},
        {"include_meta": 0},
        {"include_meta": "true"},
        [],
        None,
        5,
        "x",
    ],
    ids=json.dumps,
)
def test_other_types_are_refused(topic: TopicApi, body: Any) -> None:
    topic.append(1)
    refused(topic.api.post(f"{topic.path}/diff", json.dumps(body).encode()), 400, "invalid_request")


def test_unknown_fields_are_ignored(topic: TopicApi) -> None:
    topic.append(1)
    assert topic.seqs(colour="blue", size={"x": 1}) == [1]


def test_a_partition_that_is_not_there_is_refused(topic: TopicApi) -> None:
    topic.append(1)
    assert topic.seqs(partition=0) == [1]
    refused(topic.api.post(f"{topic.path}/diff", {"partition": 1}), 400, "invalid_request")
