"""A change event is understood in every form it comes in, and refused with a reason when it contradicts itself."""

from typing import Any

import msgspec
import pytest

from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, TopicsError
from topics.model.steps import finish
from topics.model.tables.change import Defaults, Events, change_topic, decode_changes, decode_large_changes, is_after

NOW = 1_700_000_000_000
ROW = {"id": 7, "text": "hello"}
OLD = {"id": 7, "text": "hi"}
POSTGRES = {"connector": "postgresql", "name": "shop", "ts_ms": 1_600_000_000_000, "lsn": 24023128}


def events(*items: Any, **defaults: Any) -> Events:
    return decode_changes(msgspec.json.encode({"changes": items}), Defaults(NOW, **defaults), 100)


def record(item: Any, **defaults: Any) -> dict[str, Any]:
    outcome = events(item, **defaults)
    assert outcome.refused == []
    (change,) = outcome.changes
    data: dict[str, Any] = msgspec.json.decode(change.data)
    return data


def refusal(item: Any, **defaults: Any) -> str:
    outcome = events(item, **defaults)
    assert outcome.changes == []
    (refused,) = outcome.refused
    return refused.message


def envelope(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "ts_ms": 1_650_000_000_000, "source": POSTGRES, **more}


def test_our_own_event_becomes_the_record_of_the_change() -> None:
    given = {"op": "update", "ts": 5, "key": {"id": 7}, "before": OLD, "after": ROW, "position": 9, "source": "shop"}
    assert record(given) == {
        "op": "update",
        "ts": 5,
        "key": {"id": 7},
        "before": OLD,
        "after": ROW,
        "source": {"name": "shop", "position": 9},
    }


@pytest.mark.parametrize(
    ("op", "before", "after", "known"),
    [
        ("c", None, ROW, "insert"),
        ("u", OLD, ROW, "update"),
        ("u", None, ROW, "update"),
        ("d", OLD, None, "delete"),
        ("r", None, ROW, "insert"),
        ("t", None, None, "truncate"),
    ],
)
@pytest.mark.parametrize("form", ["bare", "schema", "message", "message with schemas"])
def test_every_operation_of_debezium_in_every_form(op: str, before: Any, after: Any, known: str, form: str) -> None:
    event: Any = envelope(op, before, after)
    key: Any = {"id": 7}
    if "schema" in form:
        event = {"schema": {"type": "struct", "fields": []}, "payload": event}
        key = {"schema": {"type": "struct"}, "payload": key}
    event = {"key": key, "value": event} if "message" in form else event
    got = record(event, key_columns=("id",))
    assert (got["op"], got["before"], got["after"]) == (known, before, after)
    assert got["key"] == (None if op == "t" else {"id": 7})
    assert got["ts"] == POSTGRES["ts_ms"], "when the change was made, not when it was sent"
    assert got["source"].get("snapshot") is (True if op == "r" else None)


@pytest.mark.parametrize(
    "item", [None, {"key": {"id": 7}, "value": None}, {"schema": None, "payload": None}, {"value": {"payload": None}}]
)
def test_a_tombstone_is_neither_a_change_nor_wrong(item: Any) -> None:
    assert events(item) == Events([], [], 1)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (7, "object"),
        ([], "object"),
        ({}, "op is missing"),
        ({"op": 3}, "op is missing"),
        ({"op": "upsert", "key": {"id": 1}, "after": {}}, "none of insert"),
        ({"op": "m", "message": {}}, "none of insert"),
        ({"op": "insert", "key": {"id": 1}}, "without after"),
        ({"op": "insert", "key": {"id": 1}, "before": {}, "after": {}}, "no row before"),
        ({"op": "update", "key": {"id": 1}, "before": {}}, "without after"),
        ({"op": "delete", "key": {"id": 1}, "after": {}}, "no row after"),
        ({"op": "truncate", "after": {}}, "all rows"),
        ({"op": "d", "before": None, "after": None, "key": {"id": 1}}, "replica identity"),
        ({"op": "insert", "key": {"id": 1}, "after": [1]}, "after is an object"),
        ({"op": "insert", "key": {"id": 1}, "after": "x"}, "after is an object"),
        ({"op": "insert", "after": ROW}, "no key"),
        ({"op": "insert", "key": 5, "after": ROW}, "key is an object"),
        ({"op": "insert", "key": {}, "after": ROW}, "no column"),
        ({"op": "insert", "key": {"id": None}, "after": {}}, "no plain value"),
        ({"op": "insert", "key": {"id": [1]}, "after": {}}, "no plain value"),
        ({"op": "insert", "key": {f"c{i}": 1 for i in range(65)}, "after": {}}, "more than 64"),
        ({"op": "insert", "key": {"id": 8}, "after": ROW}, "disagree"),
        ({"op": "delete", "key": {"id": 8}, "before": ROW}, "disagree"),
        ({"op": "update", "key": {"id": 7}, "before": {"id": 6}, "after": ROW}, "a delete and an insert"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "ts": -1}, "milliseconds"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "ts": "now"}, "milliseconds"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "ts": True}, "milliseconds"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "ts": 1e300}, "milliseconds"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "source": 5}, "source"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "source": {"name": 5}}, "source"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "source": "x" * 257}, "source"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "position": 1.5}, "position"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "position": True}, "position"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "position": []}, "position"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "position": ""}, "position"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "position": 2**64}, "position"),
        ({"op": "insert", "key": {"id": 7}, "after": ROW, "position": [1] * 9}, "position"),
    ],
)
def test_a_wrong_event_is_refused_with_its_reason(item: Any, reason: str) -> None:
    assert reason in refusal(item)


def test_wrong_events_are_reported_by_index_and_the_others_are_accepted() -> None:
    good = {"op": "insert", "key": {"id": 7}, "after": ROW}
    outcome = events(good, {"op": "?"}, None, good, 5)
    assert [refused.index for refused in outcome.refused] == [1, 4]
    assert (len(outcome.changes), outcome.tombstones) == (2, 1)


def test_key_columns_of_the_table_replace_a_missing_key() -> None:
    assert record({"op": "insert", "after": ROW}, key_columns=("id",))["key"] == {"id": 7}
    assert record({"op": "delete", "before": ROW}, key_columns=("text", "id"))["key"] == {"text": "hello", "id": 7}
    assert "'other'" in refusal({"op": "insert", "after": ROW}, key_columns=("other",))
    assert "'id'" in refusal({"op": "delete"}, key_columns=("id",))


def test_no_number_loses_a_digit() -> None:
    body = (
        b'{"changes":[{"op":"insert","key":{"id":1},"after":{"id":1,"price":12345678901234567890.123456789012345678}}]}'
    )
    (change,) = decode_changes(body, Defaults(NOW), 10).changes
    assert b'"price":12345678901234567890.123456789012345678' in change.data


def test_an_array_and_a_single_event_are_bodies_too() -> None:
    single = envelope("c", None, ROW)
    for body in (single, [single], {"schema": {}, "payload": single}):
        outcome = decode_changes(msgspec.json.encode(body), Defaults(NOW, ("id",)), 10)
        assert [change.op for change in outcome.changes] == ["insert"], body
    in_a_column = {"op": "insert", "key": {"id": 1}, "after": {"id": 1, "changes": "many"}}
    assert len(decode_changes(msgspec.json.encode(in_a_column), Defaults(NOW), 10).changes) == 1
    assert decode_changes(b" null ", Defaults(NOW), 10).tombstones == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"changes":[]}', b'{"changes":{}}', b"[" * 100_000, b"nul"])
def test_a_body_that_cannot_be_read_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_changes(body, Defaults(NOW), 10)


def test_more_events_than_allowed_are_refused_as_a_whole() -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_changes(b"[null,null,null]", Defaults(NOW), 2)
    assert caught.value.code == "batch_too_large"


def test_an_event_too_large_for_a_record_is_refused_alone() -> None:
    large = {"op": "insert", "key": {"id": 1}, "after": {"id": 1, "text": "x" * 500}}
    small = {"op": "insert", "key": {"id": 1}, "after": {"id": 1}}
    outcome = events(large, small, max_bytes=400)
    assert [refused.index for refused in outcome.refused] == [0]
    assert len(outcome.changes) == 1


def test_the_same_key_hashes_alike_however_it_is_written() -> None:
    texts = [b'{"a":1,"b":"x"}', b'{"b":"\\u0078","a":1}', b'{ "a" : 1.0, "b":"x"}']
    keys = set()
    for text in texts:
        body = b'[{"op":"delete","key":%b}]' % text
        keys.add(decode_changes(body, Defaults(NOW), 10).changes[0].partition_key)
    assert len(keys) == 1


def position_of(source: dict[str, Any], op: str = "c") -> Any:
    (change,) = events({"key": {"id": 7}, "value": {"op": op, "after": ROW, "source": source}}).changes
    return change.position


def test_positions_of_debezium_are_used_only_where_they_keep_the_order_of_events() -> None:
    assert position_of({"connector": "postgresql", "lsn": 5, "sequence": '["24023119","24023128"]'}) == (
        24023119,
        24023128,
    )
    assert position_of({"connector": "postgresql", "lsn": 5}) is None
    assert position_of({"connector": "postgresql", "lsn": 5, "sequence": '[null,"24023128"]'}) is None
    assert position_of({"connector": "postgresql", "sequence": "what"}) is None
    assert position_of({"connector": "postgresql", "sequence": 5}) is None
    assert position_of({"connector": "mysql", "file": "mysql-bin.000012", "pos": 154, "row": 1}) == (12, 154, 1)
    assert position_of({"connector": "mysql", "file": None, "pos": 154}) is None
    lsns = {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003"}
    assert position_of({"connector": "sqlserver", **lsns, "event_serial_no": 2}) == (*lsns.values(), 2)
    assert position_of({"connector": "oracle", "scn": "123"}) is None
    assert position_of({"connector": "mysql", "file": "b.1", "pos": 4, "row": 0}, op="r") is None, "a snapshot has none"


def test_sources_after_a_fail_over_count_for_themselves() -> None:
    names = set()
    for server in (1, 2):
        source = {"connector": "mysql", "name": "shop", "server_id": server, "file": "b.000001", "pos": 4, "row": 0}
        (change,) = events({"op": "c", "after": ROW, "source": source}, key_columns=("id",)).changes
        names.add(change.source)
    assert len(names) == 2


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (1, 2),
        (9, 10),
        ("9", "10"),
        ("2026-01-01", "2026-01-02"),
        ("0/FFFFFFFF", "1/0"),
        ("0/9", "0/A"),
        ([1, 5], [2, 0]),
        ([1, 5], [1, 6]),
        (["0/A", 1], ["0/A", 2]),
        (7, [7, 1]),
    ],
)
def test_positions_keep_their_order(earlier: Any, later: Any) -> None:
    good = {"op": "insert", "key": {"id": 7}, "after": ROW}
    first, second = [
        change.position for change in events({**good, "position": earlier}, {**good, "position": later}).changes
    ]
    assert first is not None
    assert second is not None
    assert is_after(second, first) is True
    assert is_after(first, second) is False
    assert is_after(first, first) is False


def test_a_text_and_a_number_cannot_be_compared() -> None:
    assert is_after((1,), ("a",)) is None


def test_the_change_topic_bears_the_name_of_its_table() -> None:
    assert change_topic("chat.messages") == "changes:chat.messages"
    for bad in ("", "a/b", ".x", "x" * 250, "ä"):
        with pytest.raises(InvalidRequest):
            change_topic(bad)


# In steps


def in_steps(body: bytes, most: int = 100, **defaults: Any) -> Any:
    return outcome_of(lambda: finish(decode_large_changes(body, Defaults(NOW, **defaults), most)))


def at_once(body: bytes, most: int = 100, **defaults: Any) -> Any:
    return outcome_of(lambda: decode_changes(body, Defaults(NOW, **defaults), most))


def outcome_of(decode: Any) -> Any:
    try:
        found = decode()
    except TopicsError as error:
        return type(error)
    changes = [(each.op, each.data, each.source, each.position, each.index) for each in found.changes]
    return changes, [each.index for each in found.refused], found.tombstones


EVENT = {"op": "insert", "key": {"id": 1}, "after": {"id": 1, "x": "é"}, "position": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"changes": [EVENT, EVENT, None, 5, {}, "x"]},
        {"changes": [EVENT], "source": "db", "key_columns": ["id"]},
        {"source": "db", "changes": [EVENT]},
        [EVENT, None, EVENT],
        [],
        EVENT,
        {"payload": {"op": "c", "after": {"id": 1}, "source": {}}, "schema": {}},
        {"changes": []},
        {"changes": 5},
        {"changes": [EVENT], "source": "x" * 300},
        {"changes": [EVENT], "source": 5},
        5,
        "x",
        {},
    ],
)
def test_a_large_body_in_steps_is_read_as_it_is_at_once(body: Any) -> None:
    compact = msgspec.json.encode(body)
    for text in (compact, b" " + msgspec.json.format(compact, indent=2) + b"\n"):
        # One value that is no object is refused as a whole, not as an event.
        assert in_steps(text) == (InvalidRequest if body in (5, "x") else at_once(text))


def test_a_large_body_is_refused_for_too_many_events_or_one_that_is_far_too_large() -> None:
    many = msgspec.json.encode([EVENT] * 101)
    assert in_steps(many) is at_once(many) is BatchTooLarge
    large = msgspec.json.encode([{**EVENT, "after": {"id": "x" * 5_000_000}}])
    assert in_steps(large) is RecordTooLarge
    assert in_steps(msgspec.json.encode({**EVENT, "after": {"id": "x" * 5_000_000}})) is RecordTooLarge
    assert in_steps(b'[{"op":"\xff"}]') is InvalidRequest
