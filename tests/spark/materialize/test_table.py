"""Materialised tables without Spark: the table equals its source after any changes in any batches."""

import datetime
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from topics.spark.materialize.columns import BadValue, inferred_type, named_type, value_decoder
from topics.spark.materialize.table import Change, MaterializedTable, MaterializeError, Overtaken
from topics.spark.materialize.versions import decode_event

TOPIC = "changes:shop.orders"


class ChangeTopic:
    """Changes with their seqs."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def add(self, op: str, ts: int, id: int | None = None, position: int | None = None, **row: Any) -> None:
        event: dict[str, Any] = {"op": op, "ts": ts}
        if id is not None:
            event["key"] = {"id": id}
        if op in ("insert", "update"):
            event["after"] = {"id": id, **row}
        if position is not None:
            event["source"] = {"name": "db", "position": position}
        self.raw(event)

    def raw(self, event: dict[str, Any]) -> None:
        self.changes.append(Change(0, len(self.changes) + 1, decode_event(msgspec.json.encode(event))))


def rows(uri: Path) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(str(uri)).to_pyarrow_table()).to_pylist()
    return sorted(found, key=lambda row: (row["id"], row["_seq"]))


def current(uri: Path) -> dict[int, dict[str, Any]]:
    """The rows of an scd1 table without our own columns."""
    return {row["id"]: {name: value for name, value in row.items() if name[0] != "_"} for row in rows(uri)}


def ranges(uri: Path) -> list[tuple[int, Any, int, int | None]]:
    """Of an scd2 table: key, value and validity in milliseconds, in the order of the validity."""
    found = [(row["id"], row.get("v"), _ms(row["_valid_from"]), _ms(row["_valid_to"])) for row in rows(uri)]
    assert all([row["_is_current"] == (row["_valid_to"] is None) for row in rows(uri)])
    return sorted(found, key=lambda each: (each[0], each[2], each[3] is None, each[3]))


def _ms(time: datetime.datetime | None) -> Any:
    return None if time is None else round(time.timestamp() * 1000)


def test_rows_are_upserted_and_deleted_by_key(tmp_path: Path) -> None:
    topic = ChangeTopic()
    topic.add("insert", 1, 1, 1, v="a")
    topic.add("insert", 1, 2, 2, v="b")
    table = MaterializedTable(str(tmp_path), "scd1", TOPIC)
    table.apply(1, topic.changes)
    assert current(tmp_path) == {1: {"id": 1, "v": "a"}, 2: {"id": 2, "v": "b"}}
    topic.add("update", 2, 1, 3, v="c")
    topic.add("delete", 2, 2, 4)
    topic.add("insert", 3, 3, 5, v=None)
    done = table.apply(1, topic.changes)
    assert (done.changes, done.upserts, done.deletes) == (3, 2, 1)
    assert current(tmp_path) == {1: {"id": 1, "v": "c"}, 3: {"id": 3, "v": None}}


def test_a_batch_that_is_applied_again_changes_nothing(tmp_path: Path) -> None:
    topic = ChangeTopic()
    topic.add("insert", 1, 1, 1, v="a")
    topic.add("delete", 2, 1, 2)
    topic.add("insert", 3, 1, 3, v="b")
    table = MaterializedTable(str(tmp_path), "scd2", TOPIC)
    table.apply(1, topic.changes)
    before, version = rows(tmp_path), DeltaTable(str(tmp_path)).version()
    assert MaterializedTable(str(tmp_path), "scd2", TOPIC).apply(1, topic.changes).changes == 0
    assert (rows(tmp_path), DeltaTable(str(tmp_path)).version()) == (before, version)


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_history_has_a_range_for_each_version(tmp_path: Path, batches: int) -> None:
    topic = ChangeTopic()
    topic.add("insert", 10, 1, 1, v="a")
    topic.add("update", 20, 1, 2, v="b")
    topic.add("delete", 30, 1, 3)
    topic.add("insert", 40, 1, 4, v="c")
    table = MaterializedTable(str(tmp_path), "scd2", TOPIC)
    for part in range(batches):
        size = 4 // batches
        table.apply(1, topic.changes[part * size : (part + 1) * size])
    assert ranges(tmp_path) == [(1, "a", 10, 20), (1, "b", 20, 30), (1, "c", 40, None)]


@pytest.mark.parametrize("together", [True, False])
def test_late_and_repeated_changes_without_positions(tmp_path: Path, together: bool) -> None:
    topic = ChangeTopic()
    topic.add("insert", 10, 1, v="a")
    topic.add("update", 30, 1, v="c")
    topic.add("update", 30, 1, v="c")
    topic.add("update", 20, 1, v="b")
    topic.add("delete", 50, 2)
    topic.add("insert", 40, 2, v="late")
    for mode in ("scd1", "scd2"):
        table = MaterializedTable(str(tmp_path / mode), mode, TOPIC)
        if together:
            table.apply(1, topic.changes)
        else:
            for change in topic.changes:
                table.apply(1, [change])
    assert current(tmp_path / "scd1") == {1: {"id": 1, "v": "c"}}
    assert ranges(tmp_path / "scd2") == [(1, "a", 10, 20), (1, "b", 20, 30), (1, "c", 30, None), (2, "late", 40, 50)]


def test_changes_without_effect_move_the_position(tmp_path: Path) -> None:
    """Otherwise retention could remove them from the topic, and the next start would report their loss."""
    topic = ChangeTopic()
    topic.add("insert", 10, 1, v="a")
    topic.add("insert", 10, 1, v="a")
    topic.add("delete", 20, 2)
    table = MaterializedTable(str(tmp_path), "scd1", TOPIC)
    for change in topic.changes:
        table.apply(1, [change])
    assert MaterializedTable(str(tmp_path), "scd1", TOPIC).positions(1, [0]) == {0: 4}
    assert current(tmp_path) == {1: {"id": 1, "v": "a"}}


def test_deletes_are_kept_for_late_changes_of_a_week_and_then_removed(tmp_path: Path) -> None:
    day_ms = 86_400_000
    topic = ChangeTopic()
    topic.add("insert", day_ms, 1, v="a")
    topic.add("delete", 2 * day_ms, 1)
    table = MaterializedTable(str(tmp_path / "t"), "scd1", TOPIC)
    table.apply(1, topic.changes)
    topic.add("delete", 8 * day_ms, 2)
    topic.add("update", day_ms, 1, v="late")
    table.apply(1, topic.changes)
    assert current(tmp_path / "t") == {}
    topic.add("delete", 10 * day_ms, 3)
    table.apply(1, topic.changes)
    assert [row["id"] for row in rows(tmp_path / "t_deletes")] == [2, 3]


def test_with_positions_the_order_of_the_topic_decides_even_if_a_clock_was_set_back(tmp_path: Path) -> None:
    topic = ChangeTopic()
    topic.add("insert", 100, 1, 1, v="a")
    topic.add("update", 50, 1, 2, v="b")
    MaterializedTable(str(tmp_path / "1"), "scd1", TOPIC).apply(1, topic.changes)
    MaterializedTable(str(tmp_path / "2"), "scd2", TOPIC).apply(1, topic.changes)
    assert current(tmp_path / "1") == {1: {"id": 1, "v": "b"}}
    assert ranges(tmp_path / "2") == [(1, "a", 100, 100), (1, "b", 100, None)]


def test_columns_that_appear_later_are_added(tmp_path: Path) -> None:
    topic = ChangeTopic()
    topic.add("insert", 1, 1, 1, v="a", empty=None)
    topic.add("insert", 2, 2, 2, v="b", price=1.5, paid=True, empty=None)
    topic.add("update", 3, 1, 3, v="a", tags=["x"], n=7)
    table = MaterializedTable(str(tmp_path), "scd1", TOPIC)
    for change in topic.changes:
        table.apply(1, [change])
    assert current(tmp_path) == {
        1: {"id": 1, "v": "a", "price": None, "paid": None, "tags": '["x"]', "n": 7},
        2: {"id": 2, "v": "b", "price": 1.5, "paid": True, "tags": None, "n": None},
    }


def test_declared_types_are_used_and_a_value_that_does_not_fit_is_refused_by_column(tmp_path: Path) -> None:
    declared = {"id": "int", "price": "decimal(10,2)", "at": "timestamptz", "day": "date", "blob": "bytea", "x": "uuid"}
    topic = ChangeTopic()
    topic.add("insert", 1, 1, 1, price=1.1, at="2026-01-02T03:04:05.5Z", day="2026-01-02", blob="AAE=", x="u")
    table = MaterializedTable(str(tmp_path), "scd1", TOPIC, declared)
    table.apply(1, topic.changes)
    (row,) = rows(tmp_path)
    assert (str(row["price"]), row["day"].isoformat(), row["blob"], row["x"]) == ("1.10", "2026-01-02", b"\0\1", "u")
    topic.add("update", 2, 1, 2, price="much")
    with pytest.raises(BadValue, match="column price is decimal"):
        table.apply(1, topic.changes)
    assert len(rows(tmp_path)) == 1


def test_a_truncate_empties_the_table_and_ends_every_range(tmp_path: Path) -> None:
    topic = ChangeTopic()
    for number in range(3):
        topic.add("insert", 10, number, number + 1, v=number)
    for mode in ("scd1", "scd2"):
        MaterializedTable(str(tmp_path / mode), mode, TOPIC).apply(1, topic.changes)
    topic.add("insert", 15, 7, 4, v=7)
    topic.add("truncate", 20, None, 5)
    topic.add("insert", 30, 1, 6, v=100)
    for mode in ("scd1", "scd2"):
        MaterializedTable(str(tmp_path / mode), mode, TOPIC).apply(1, topic.changes)
    assert current(tmp_path / "scd1") == {1: {"id": 1, "v": 100}}
    assert ranges(tmp_path / "scd2") == [
        (0, 0, 10, 20),
        (1, 1, 10, 20),
        (1, 100, 30, None),
        (2, 2, 10, 20),
        (7, 7, 15, 20),
    ]


def test_columns_that_the_source_left_out_keep_their_values(tmp_path: Path) -> None:
    topic = ChangeTopic()
    topic.add("insert", 1, 1, 1, v="a", large="x" * 100)
    source = {"name": "db", "position": 2, "unchanged": ["large"]}
    topic.raw({"op": "update", "ts": 2, "key": {"id": 1}, "after": {"id": 1, "v": "b"}, "source": source})
    table = MaterializedTable(str(tmp_path), "scd1", TOPIC)
    for change in topic.changes:
        table.apply(1, [change])
    assert current(tmp_path) == {1: {"id": 1, "v": "b", "large": "x" * 100}}


def test_a_second_driver_that_applies_the_same_changes_is_refused(tmp_path: Path) -> None:
    topic = ChangeTopic()
    topic.add("insert", 1, 1, 1, v="a")
    MaterializedTable(str(tmp_path), "scd1", TOPIC).apply(1, topic.changes)
    topic.add("update", 2, 1, 2, v="b")
    slow = SlowTable(str(tmp_path), "scd1", TOPIC)
    slow.meanwhile = lambda: MaterializedTable(str(tmp_path), "scd1", TOPIC).apply(1, topic.changes)
    with pytest.raises(Overtaken):
        slow.apply(1, topic.changes)
    assert current(tmp_path) == {1: {"id": 1, "v": "b"}}
    assert DeltaTable(str(tmp_path)).version() == 2


class SlowTable(MaterializedTable):
    """Another driver commits between the moment this one has read the table and the moment it writes."""

    meanwhile: Any

    def stored(self, keys: Any, truncated: Any) -> Any:
        found = super().stored(keys, truncated)
        self.meanwhile()
        return found


def test_a_table_of_another_mode_or_origin_is_refused(tmp_path: Path) -> None:
    topic = ChangeTopic()
    topic.add("insert", 1, 1, 1)
    MaterializedTable(str(tmp_path / "one"), "scd1", TOPIC).apply(1, topic.changes)
    with pytest.raises(MaterializeError, match="has mode scd1"):
        MaterializedTable(str(tmp_path / "one"), "scd2", TOPIC)
    with pytest.raises(MaterializeError, match="deleted and created again"):
        MaterializedTable(str(tmp_path / "one"), "scd1", TOPIC).apply(2, topic.changes)
    DeltaTable.create(str(tmp_path / "other"), pa.schema([("a", pa.int64())]))
    with pytest.raises(MaterializeError, match="not made by topics"):
        MaterializedTable(str(tmp_path / "other"), "scd1", TOPIC)


def test_keys_of_several_columns_are_distinct(tmp_path: Path) -> None:
    topic = ChangeTopic()
    for tenant, number in (("a", 1), ("a", 2), ("b", 1)):
        key = {"tenant": tenant, "id": number}
        topic.raw({"op": "insert", "ts": 1, "key": key, "after": {**key, "v": f"{tenant}{number}"}})
    topic.raw({"op": "delete", "ts": 2, "key": {"tenant": "a", "id": 1}})
    topic.raw({"op": "update", "ts": 2, "key": {"tenant": "b", "id": 1}, "after": {"tenant": "b", "id": 1, "v": "new"}})
    table = MaterializedTable(str(tmp_path), "scd1", TOPIC)
    table.apply(1, topic.changes[:3])
    table.apply(1, topic.changes)
    assert sorted([(row["tenant"], row["id"], row["v"]) for row in rows(tmp_path)]) == [("a", 2, "a2"), ("b", 1, "new")]


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_in_random_batches_equal_a_model(tmp_path: Path, seed: int) -> None:
    """The source is a dict; its changes reach the table in batches of any size, some of them twice."""
    chance = random.Random(seed)
    source: dict[int, dict[str, Any]] = {}
    versions: list[tuple[int, Any, int, int | None]] = []
    topic = ChangeTopic()
    for ts in range(1, 120):
        key = chance.randrange(8)
        if key in source and chance.random() < 0.3:
            del source[key]
            topic.add("delete", ts, key, ts)
        else:
            op = "update" if key in source else "insert"
            source[key] = {"id": key, "v": ts}
            topic.add(op, ts, key, ts, v=ts)
        versions = [(k, v, f, ts if t is None and k == key else t) for k, v, f, t in versions]
        if key in source:
            versions.append((key, ts, ts, None))
    at = 0
    while at < len(topic.changes):
        end = at + chance.randrange(1, 50)
        for mode in ("scd1", "scd2"):
            # A new object each time, as after a driver that was killed, and sometimes changes it has seen.
            since = chance.randrange(0, at + 1)
            MaterializedTable(str(tmp_path / mode), mode, TOPIC).apply(1, topic.changes[since:end])
        at = end
    assert current(tmp_path / "scd1") == source
    assert ranges(tmp_path / "scd2") == sorted(versions, key=lambda each: (each[0], each[2]))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"true", pa.bool_()),
        (b"-5", pa.int64()),
        (b"1.5", pa.float64()),
        (b"99999999999999999999", pa.string()),
        (b"1e20", pa.float64()),
        (b"0.30000000000000004", pa.float64()),
        (b"12.345678901234567891", pa.string()),
        (b'"x"', pa.string()),
        (b"[1]", pa.string()),
        (b"null", None),
    ],
)
def test_the_type_of_an_undeclared_column_is_that_of_its_first_value(text: bytes, kind: Any) -> None:
    assert inferred_type(text) == kind


@pytest.mark.parametrize(
    ("kind", "text", "fits"),
    [
        ("double", b"0.1", True),
        ("double", b"100000000000000000000", True),
        ("double", b"123456789012345680000", True),
        ("double", b"9007199254740993", False),
        ("double", b"12.345678901234567891", False),
        ("real", b"3.4028235e38", True),
        ("real", b"1e39", False),
        ("bigint", b"9223372036854775808", False),
        ("decimal(5,2)", b"1.234", False),
    ],
)
def test_a_number_with_more_digits_than_its_column_holds_is_refused(kind: str, text: bytes, fits: bool) -> None:
    decode = value_decoder("v", named_type(kind))
    if fits:
        assert decode(text) == float(text)
        return
    with pytest.raises(BadValue, match=r"column v is .* and cannot hold"):
        decode(text)


def test_floating_point_columns_hold_what_json_has_no_number_for(tmp_path: Path) -> None:
    topic = ChangeTopic()
    for number, value in enumerate(["NaN", "Infinity", "-Infinity", 0.5]):
        topic.add("insert", 1, number, v=value, w=value)
    MaterializedTable(str(tmp_path), "scd1", TOPIC, {"v": "double", "w": "real"}).apply(1, topic.changes)
    found = rows(tmp_path)
    assert [str(row["v"]) for row in found] == [str(row["w"]) for row in found] == ["nan", "inf", "-inf", "0.5"]


def test_types_that_are_not_known_are_texts() -> None:
    assert [named_type(name) for name in ("uuid", "NUMERIC(5)", "Double Precision")] == [
        pa.string(),
        pa.decimal128(5, 0),
        pa.float64(),
    ]


def test_a_lone_surrogate_in_a_column_is_replaced_and_one_in_a_key_is_refused() -> None:
    event = decode_event(
        rb'{"op":"insert","ts":1,"key":{"id":1},"after":{"id":1,"text":"x\ud800y","other":"\ud83d\ude00"}}'
    )
    assert event.after is not None
    assert msgspec.json.decode(event.after["text"]) == "x\ufffdy"
    assert msgspec.json.decode(event.after["other"]) == "\U0001f600"
    with pytest.raises(msgspec.ValidationError, match="key of a change"):
        decode_event(rb'{"op":"insert","ts":1,"key":{"id":"\udc00"},"after":{"id":"\udc00"}}')
    with pytest.raises(msgspec.DecodeError):
        decode_event(rb'{"op":"insert","ts":1,"after":{"text":"\ud800"')
