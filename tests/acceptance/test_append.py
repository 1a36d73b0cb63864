"""POST /v0/topics/:topic: writes are whole, in order, within their limits, and answered as the class promises."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import DEFAULT_CONFIG, TopicApi, refused, succeeded, wait_until_past

# The answer


def test_the_first_write_creates_the_topic_and_says_so(topic: TopicApi) -> None:
    answer = topic.api.post(topic.path, {"records": [{"data": 1}, {"data": 2}]})
    body = succeeded(answer)
    assert answer.status == 201
    performance = body.pop("performance")
    assert {"server_total_ms", "wal_append_ms", "fsync_ms"} <= set(performance)
    assert body == {
        "topic": topic.name,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert topic.state()["config"] == DEFAULT_CONFIG


def test_a_later_write_goes_on_where_the_last_one_ended(topic: TopicApi) -> None:
    topic.append(1, 2)
    answer = topic.api.post(topic.path, {"records": [{"data": 3}, {"data": 4}, {"data": 5}]})
    assert answer.status == 200
    body = answer.json
    assert (body["first_seq"], body["last_seq"], body["seqs"], body["count"]) == (3, 5, [3, 4, 5], 3)
    assert (body["created"], body["deduped"], body["head_seq"]) == (False, False, 5)


def test_a_write_to_a_configured_topic_did_not_create_it(topic: TopicApi) -> None:
    topic.configure()
    assert topic.append(1)["created"] is False


@pytest.mark.parametrize(("value", "present"), [("false", False), ("0", False), ("true", True), ("1", True)])
def test_seqs_can_be_left_out_of_the_answer(topic: TopicApi, value: str, present: bool) -> None:
    for records in ([{"data": 1}], [{"data": 1}, {"data": 2}]):
        body = succeeded(topic.api.post(f"{topic.path}?return_seqs={value}", {"records": records}))
        assert ("seqs" in body) is present
        assert body["last_seq"] - body["first_seq"] + 1 == body["count"] == len(records)


def test_return_seqs_must_be_a_flag(topic: TopicApi) -> None:
    refused(topic.api.post(f"{topic.path}?return_seqs=maybe", {"records": [{"data": 1}]}), 400, "invalid_request")
    assert not topic.exists()


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_only_a_write_to_an_fsync_topic_reports_a_sync(topic: TopicApi, durability: str) -> None:
    first = topic.append(1, config={"durability": durability})
    second = topic.append(2)
    third = topic.append(3, 4)
    deleted = topic.remove(before_seq=2)
    for body in (first, second, third, deleted):
        assert (body["performance"]["fsync_ms"] > 0) is (durability == "fsync"), body


# Who creates the topic, and how


def test_inline_config_counts_only_for_the_write_that_creates_the_topic(topic: TopicApi) -> None:
    topic.append(1, config={"cap_records": 5, "durable": True})
    assert topic.state()["config"] == DEFAULT_CONFIG | {"cap_records": 5, "durability": "fsync", "durable": True}
    topic.append(2, config={"cap_records": 9, "ttl_ms": 1})
    assert topic.state()["config"]["cap_records"] == 5
    assert topic.state()["config"]["ttl_ms"] == 0


@pytest.mark.parametrize("config", [{"ttl_ms": "5"}, {"type": "x"}, [], 5, {"dead_letter": "a/b"}])
def test_a_bad_inline_config_refuses_the_write(topic: TopicApi, config: Any) -> None:
    refused(topic.api.post(topic.path, {"records": [{"data": 1}], "config": config}), 400, "invalid_request")
    assert not topic.exists()


def test_inline_config_cannot_make_a_topic_its_own_dead_letter(topic: TopicApi) -> None:
    body = {"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": topic.name}}
    refused(topic.api.post(topic.path, body), 400, "invalid_request")
    assert not topic.exists()


def test_create_false_writes_only_to_a_topic_that_exists(topic: TopicApi) -> None:
    body = {"records": [{"data": 1}], "create": False}
    answer = refused(topic.api.post(topic.path, body), 404, "topic_not_found")
    assert answer.detail["topic"] == topic.name
    assert not topic.exists()
    topic.configure()
    assert topic.append(1, create=False)["seqs"] == [1]


def test_create_true_creates(topic: TopicApi) -> None:
    assert topic.append(1, create=True)["created"] is True


def test_exactly_one_of_many_first_writes_creates(topic: TopicApi) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: topic.api.post(topic.path, {"records": [{"data": n}]}), range(24)))
    assert sorted([answer.status for answer in answers]) == [200] * 23 + [201]
    assert sorted([answer.json["first_seq"] for answer in answers]) == list(range(1, 25))


# Order


def test_concurrent_batches_are_contiguous_and_leave_no_gap(topic: TopicApi) -> None:
    def write(writer: int) -> list[list[int]]:
        return [topic.append(*[[writer, turn]] * (1 + turn % 5))["seqs"] for turn in range(20)]

    with ThreadPoolExecutor(8) as threads:
        writes = [seqs for writer in threads.map(write, range(8)) for seqs in writer]
    assert all([seqs == list(range(seqs[0], seqs[0] + len(seqs))) for seqs in writes])
    assert sorted([seq for seqs in writes for seq in seqs]) == list(range(1, topic.state()["head_seq"] + 1))
    found = {record["$seq"]: record["data"] for record in topic.read_all()}
    for seqs in writes:
        assert len({tuple(found[seq]) for seq in seqs}) == 1
    # One writer's writes stand in the order it made them.
    for writer in range(8):
        turns = [turn for number, turn in found.values() if number == writer]
        assert turns == sorted(turns)


def test_times_never_fall_with_the_seq(topic: TopicApi) -> None:
    for _ in range(20):
        topic.append(1, 2)
    times = [record["$ts"] for record in topic.diff()["records"]]
    assert times == sorted(times)
    assert all([isinstance(ts, int) for ts in times])


# Nodes, tags, meta


def test_a_record_has_a_node_only_if_one_was_sent(topic: TopicApi) -> None:
    topic.append_records(
        {"data": 1},
        {"data": 2, "node": "b", "tag": "t", "meta": {"k": 1}},
        {"data": 3, "node": None, "tag": None, "meta": None},
        {"data": None, "meta": {}},
    )
    records = topic.diff(include_tags=True)["records"]
    keys = [sorted(set(record) - {"$seq", "$ts"}) for record in records]
    assert keys == [["data"], ["$node", "$tag", "data", "meta"], ["data"], ["data", "meta"]]
    assert (records[1]["$node"], records[1]["$tag"], records[1]["meta"]) == ("b", "t", {"k": 1})
    assert records[3]["data"] is None
    assert records[3]["meta"] == {}


def test_the_records_own_node_beats_the_batchs(topic: TopicApi) -> None:
    topic.append_records({"data": 1}, {"data": 2, "node": "own"}, {"data": 3, "node": None}, node="batch")
    assert [record["$node"] for record in topic.diff()["records"]] == ["batch", "own", "batch"]


def test_dollar_fields_of_a_client_mean_nothing(topic: TopicApi) -> None:
    body = topic.append_records({"data": 1, "$seq": 99, "$ts": 5, "$node": "x", "$tag": "y", "$type": "z"})
    assert body["seqs"] == [1]
    (record,) = topic.diff(include_tags=True)["records"]
    assert set(record) == {"$seq", "$ts", "data"}
    assert record["$seq"] == 1
    assert record["$ts"] > 5


@pytest.mark.parametrize(
    "text", ["é", "日本", "🙂", 'quote"', "back\\slash", "a b", "line\nbreak", "\u0000", "\u2028", "*"]
)
def test_nodes_and_tags_may_be_any_text(topic: TopicApi, text: str) -> None:
    topic.append_records({"data": 1, "node": text, "tag": text}, {"data": 2, "node": "other", "tag": "other"})
    records = topic.diff(include_tags=True)["records"]
    assert (records[0]["$node"], records[0]["$tag"]) == (text, text)
    assert topic.seqs(node=text) == [2]
    assert topic.remove(match=["tag", "Eq", text])["deleted"] == 1
    assert topic.seqs() == [2]


# Limits

FIELDS_WRONG: list[dict[str, Any]] = [
    {},
    {"records": None},
    {"records": {}},
    {"records": "x"},
    {"records": []},
    {"records": [1]},
    {"records": [None]},
    {"records": [[]]},
    {"records": [{}]},
    {"records": [{"tag": "t"}]},
    {"records": [{"data": 1}, {"dat": 2}]},
    {"records": [{"data": 1, "tag": 5}]},
    {"records": [{"data": 1, "tag": ["a"]}]},
    {"records": [{"data": 1, "node": 5}]},
    {"records": [{"data": 1, "node": True}]},
    {"records": [{"data": 1, "meta": []}]},
    {"records": [{"data": 1, "meta": "x"}]},
    {"records": [{"data": 1, "meta": 5}]},
    {"records": [{"data": 1, "meta": False}]},
    {"records": [{"data": 1}], "node": 5},
    {"records": [{"data": 1}], "node": ["a"]},
    {"records": [{"data": 1}], "idempotency_key": 5},
    {"records": [{"data": 1}], "idempotency_key": ["k"]},
    {"records": [{"data": 1}], "create": 1},
    {"records": [{"data": 1}], "create": "true"},
    {"records": [{"data": 1}], "disable_backpressure": 1},
    {"records": [{"data": 1}], "disable_backpressure": "yes"},
]


@pytest.mark.parametrize("body", FIELDS_WRONG, ids=json.dumps)
def test_a_field_of_the_wrong_type_refuses_the_whole_write(topic: TopicApi, body: dict[str, Any]) -> None:
    refused(topic.api.post(topic.path, body), 400, "invalid_request")
    assert not topic.exists()


def test_one_bad_record_refuses_all_and_uses_no_seq(topic: TopicApi) -> None:
    topic.append("first")
    records = [{"data": n} for n in range(50)]
    for bad in ({"tag": "no data"}, {"data": 1, "tag": 5}, {"data": 1, "meta": [1]}, {"data": 1, "tag": "x" * 257}):
        refused(topic.api.post(topic.path, {"records": [*records, bad]}), 400, "invalid_request")
    assert topic.append("second")["seqs"] == [2]
    assert topic.state()["count"] == 2


def test_a_batch_has_at_most_10000_records(topic: TopicApi) -> None:
    body = b'{"records":[' + b",".join([b'{"data":1}'] * 10_000) + b"]}"
    answer = topic.api.post(f"{topic.path}?return_seqs=false", body)
    assert (answer.json["first_seq"], answer.json["last_seq"]) == (1, 10_000)
    answer = topic.api.post(topic.path, body[:-2] + b',{"data":1}]}')
    refused(answer, 400, "batch_too_large")
    assert topic.state()["head_seq"] == 10_000
    assert len(topic.read_all(limit=1000)) == 10_000


def test_a_tag_has_at_most_256_bytes(topic: TopicApi) -> None:
    for tag in ("t" * 256, "é" * 128):
        topic.append_records({"data": 1, "tag": tag})
    for tag in ("t" * 257, "é" * 128 + "t"):
        refused(topic.api.post(topic.path, {"records": [{"data": 1, "tag": tag}]}), 400, "invalid_request")
    assert topic.state()["count"] == 2


def test_a_node_has_at_most_128_bytes_in_a_record_and_in_a_batch(topic: TopicApi) -> None:
    for node in ("n" * 128, "é" * 64):
        topic.append_records({"data": 1, "node": node})
        topic.append(1, node=node)
    for node in ("n" * 129, "é" * 64 + "n"):
        refused(topic.api.post(topic.path, {"records": [{"data": 1, "node": node}]}), 400, "invalid_request")
        refused(topic.api.post(topic.path, {"records": [{"data": 1}], "node": node}), 400, "invalid_request")
    assert topic.state()["count"] == 4


def test_meta_has_at_most_64_keys(topic: TopicApi) -> None:
    topic.append_records({"data": 1, "meta": {str(n): ":::::" for n in range(64)}})
    refused(
        topic.api.post(topic.path, {"records": [{"data": 1, "meta": {str(n): n for n in range(65)}}]}),
        400,
        "invalid_request",
    )
    assert topic.state()["count"] == 1


def test_meta_has_at_most_16_kib_as_it_was_sent(topic: TopicApi) -> None:
    def write(size: int) -> bytes:
        meta = b'{"k":"' + b"x" * (size - 8) + b'"}'
        assert len(meta) == size
        return b'{"records":[{"data":1,"meta":' + meta + b"}]}"

    assert topic.api.post(topic.path, write(16 << 10)).status == 201
    refused(topic.api.post(topic.path, write((16 << 10) + 1)), 400, "invalid_request")
    assert topic.state()["count"] == 1


@pytest.mark.parametrize("extra", [b"", b',"tag":"t"'], ids=["plain", "tagged"])
def test_data_and_meta_of_a_record_have_at_most_1_mib(topic: TopicApi, extra: bytes) -> None:
    def write(size: int) -> bytes:
        return b'{"records":[{"data":"' + b"x" * (size - 2) + b'"' + extra + b"}]}"

    assert topic.api.post(topic.path, write(1 << 20)).status == 201
    refused(topic.api.post(topic.path, write((1 << 20) + 1)), 400, "record_too_large")
    with_meta = write((1 << 20) - 1)[:-3] + b',"meta":{}}]}'
    refused(topic.api.post(topic.path, with_meta), 400, "record_too_large")
    assert topic.append(1)["seqs"] == [2]


def test_limits_come_from_their_variables(small_topic: TopicApi) -> None:
    topic = small_topic
    topic.append(*range(5))
    refused(topic.api.post(topic.path, {"records": [{"data": n} for n in range(6)]}), 400, "batch_too_large")
    topic.append("x" * 998)
    refused(topic.api.post(topic.path, {"records": [{"data": "x" * 999}]}), 400, "record_too_large")
    topic.append_records({"data": 1, "tag": "t" * 8, "node": "n" * 4, "meta": {"k": "x" * 190}})
    for bad in ({"tag": "t" * 9}, {"node": "n" * 5}, {"meta": {"k": "x" * 200}}):
        refused(topic.api.post(topic.path, {"records": [{"data": 1, **bad}]}), 400, "invalid_request")
    assert topic.state()["head_seq"] == 7
    assert len(topic.diff()["records"]) == 3, "TOPICS_MAX_LIMIT"
    assert len(topic.diff(limit=2)["records"]) == 2


# Caps


def test_discard_old_makes_room_for_what_comes(topic: TopicApi) -> None:
    topic.configure(cap_records=3)
    topic.append(1, 2, 3)
    assert topic.append(4, 5)["seqs"] == [4, 5]
    state = topic.state()
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (3, 3, 5)
    assert topic.seqs(2) == [3, 4, 5]


def test_discard_reject_refuses_the_whole_batch_that_does_not_fit(topic: TopicApi) -> None:
    topic.configure(cap_records=3, discard="reject")
    topic.append(1, 2)
    refused(topic.api.post(topic.path, {"records": [{"data": 3}, {"data": 4}]}), 422, "topic_full")
    assert topic.state()["count"] == 2
    assert topic.append(3)["seqs"] == [3]
    refused(topic.api.post(topic.path, {"records": [{"data": 4}]}), 422, "topic_full")
    topic.remove(before_seq=2)
    assert topic.append(4)["seqs"] == [4]
    refused(topic.api.post(topic.path, {"records": [{"data": 5}]}), 422, "topic_full")
    assert topic.diff()["tombstone"] is None


def test_expiry_frees_room_in_a_topic_that_rejects(topic: TopicApi) -> None:
    topic.configure(cap_records=1, discard="reject", ttl_ms=30)
    topic.append(1)
    wait_until_past(topic.state()["last_write_ts"] + 30)
    assert topic.append(2)["seqs"] == [2]


def test_deletes_by_tag_free_room_in_a_topic_that_rejects(topic: TopicApi) -> None:
    topic.configure(cap_records=2, discard="reject")
    topic.append_records({"data": 1, "tag": "a"}, {"data": 2})
    topic.remove(match="a")
    assert topic.append(3)["seqs"] == [3]
    assert topic.seqs() == [2, 3]


def test_cap_bytes_bounds_what_is_retained(topic: TopicApi) -> None:
    topic.configure(cap_bytes=1000)
    for n in range(50):
        topic.append(f"{n:050}")
        assert topic.state()["bytes"] <= 1000
    state = topic.state()
    assert 5 < state["count"] < 20
    assert topic.seqs(state["earliest_seq"] - 1) == list(range(state["earliest_seq"], 51))


def test_cap_bytes_rejects_what_does_not_fit(topic: TopicApi) -> None:
    topic.configure(cap_bytes=1000, discard="reject")
    statuses = [topic.api.post(topic.path, {"records": [{"data": f"{n:050}"}]}).status for n in range(50)]
    fitted = statuses.index(422)
    assert set(statuses[:fitted]) == {200}
    assert set(statuses[fitted:]) == {422}
    assert topic.state()["count"] == fitted
    assert topic.state()["bytes"] <= 1000


def test_concurrent_writes_never_overfill_a_topic_that_rejects(topic: TopicApi) -> None:
    topic.configure(cap_records=10, discard="reject", durability="fsync")
    with ThreadPoolExecutor(8) as threads:
        statuses = list(
            threads.map(lambda n: topic.api.post(topic.path, {"records": [{"data": n}] * 2}).status, range(24))
        )
    assert (statuses.count(200), statuses.count(422)) == (5, 19)
    assert topic.state()["count"] == 10


def test_disable_backpressure_is_accepted(topic: TopicApi) -> None:
    assert topic.append(1, disable_backpressure=True)["seqs"] == [1]


def test_a_write_is_read_by_the_next_request(topic: TopicApi) -> None:
    for durability in ("disk", "memory", "ephemeral", "fsync"):
        topic.configure(durability=durability)
        for _ in range(10):
            seq = topic.append(durability)["last_seq"]
            assert topic.diff(seq - 1)["records"][0]["$seq"] == seq
