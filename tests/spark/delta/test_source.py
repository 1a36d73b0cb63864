"""A Delta table becomes change events: what each version did, once, in the form the push API gives them. Without Spark."""

import datetime as dt
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.spark.delta.lake_table import FEED, Feed, LakeTable, applied, summary
from topics.model.tables.change import Defaults, parse_change
from topics.spark.delta import log as delta_log
from topics.spark.delta import source as delta_source
from topics.spark.delta.events import EventEncoder, hashed_partition
from topics.spark.delta.log import FeedError, FeedLost, ranges_text
from topics.spark.delta.values import encode, json_values


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_source, "POLL_INTERVAL_S", 0)


@pytest.fixture
def orders(tmp_path: Path) -> LakeTable:
    return LakeTable(tmp_path / "orders", {"id": [1, 2, 3], "v": ["a", "b", "c"]})


def test_a_snapshot_of_the_table_precedes_the_changes_of_each_version(orders: LakeTable) -> None:
    orders.append({"id": [4], "v": ["d"]})
    feed = Feed(orders.uri)
    snapshot = list(feed.all())
    assert [(event["op"], event["source"]["snapshot"]) for event in snapshot] == [("insert", True)] * 4
    assert applied(snapshot) == orders.rows()
    assert {event["source"]["version"] for event in snapshot} == {1}

    orders.append({"id": [5], "v": ["e"]})
    orders.delta.update(updates={"v": "'B'"}, predicate="id = 2")
    orders.delta.delete("id = 1")
    changes = list(feed.all())
    assert summary(changes) == [
        ("insert", 2, None, {"id": 5, "v": "e"}),
        ("update", 3, {"id": 2, "v": "b"}, {"id": 2, "v": "B"}),
        ("delete", 4, {"id": 1, "v": "a"}, None),
    ]
    assert "snapshot" not in changes[0]["source"]
    assert applied(snapshot + changes) == orders.rows()


def test_an_event_has_the_form_of_the_push_api(orders: LakeTable) -> None:
    orders.delta.update(updates={"v": "'B'"}, predicate="id = 2")
    feed = Feed(orders.uri)
    feed.offset = {"table": str(orders.delta.metadata().id), "version": 1}
    (event,) = feed.all()
    assert event["source"] == {"name": f"delta:{orders.delta.metadata().id}", "version": 1, "table": "lake.orders"}
    reader = feed.reader
    (batch,) = reader.read(reader.partitions(*feed.batches[0])[0])
    text, key = batch.column("data")[0].as_py(), batch.column("partition_key")[0].as_py()
    change = parse_change(text.encode(), Defaults(0))
    assert change is not None
    assert (change.data.decode(), change.partition_key) == (text, key)


def test_a_merge_gives_updates_and_inserts(orders: LakeTable) -> None:
    feed = Feed(orders.uri)
    before = list(feed.all())
    orders.merge({"id": [3, 9], "v": ["C", "n"]})
    changes = list(feed.all())
    assert sorted(summary(changes), key=str) == [
        ("insert", 1, None, {"id": 9, "v": "n"}),
        ("update", 1, {"id": 3, "v": "c"}, {"id": 3, "v": "C"}),
    ]
    assert applied(before + changes) == orders.rows()


def test_a_changed_key_is_a_delete_and_an_insert_also_when_keys_shift(orders: LakeTable) -> None:
    feed = Feed(orders.uri)
    before = list(feed.all())
    orders.delta.update(updates={"id": "id + 100"}, predicate="id = 1")
    moved = list(feed.all())
    # Of different keys within one version either may come first.
    assert sorted(summary(moved), key=str) == [
        ("delete", 1, {"id": 1, "v": "a"}, None),
        ("insert", 1, None, {"id": 101, "v": "a"}),
    ]
    # 2 -> 3 and 3 -> 4 in one version: 3 is there before and after.
    orders.delta.update(updates={"id": "id + 1"}, predicate="id < 100")
    shifted = list(feed.all())
    assert sorted([event["op"] for event in shifted]) == ["delete", "insert", "update"]
    assert applied(before + moved + shifted) == orders.rows()


def test_an_overwrite_gives_deletes_before_inserts(orders: LakeTable) -> None:
    feed = Feed(orders.uri)
    before = list(feed.all())
    write_deltalake(orders.uri, pa.table({"id": [3, 7], "v": ["c", "g"]}), mode="overwrite")
    assert applied(before + list(feed.all())) == orders.rows()


def test_versions_without_changes_give_no_events(orders: LakeTable) -> None:
    orders.append({"id": [4], "v": ["d"]})
    feed = Feed(orders.uri)
    list(feed.all())
    orders.delta.optimize.compact()
    orders.delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    assert list(feed.all()) == []
    assert feed.offset is not None
    assert feed.offset["version"] == orders.version + 1, "it was passed"
    orders.append({"id": [5], "v": ["e"]})
    assert summary(list(feed.all())) == [("insert", orders.version, None, {"id": 5, "v": "e"})]


def test_a_column_added_mid_stream_is_there_from_its_version_on(orders: LakeTable) -> None:
    feed = Feed(orders.uri)
    list(feed.all())
    orders.append({"id": [4], "v": ["d"]})
    orders.append({"id": [5], "v": ["e"], "cents": pa.array([7], pa.int64())}, schema_mode="merge")
    orders.delta.update(updates={"cents": "1"}, predicate="id = 1")
    assert summary(list(feed.all())) == [
        ("insert", 1, None, {"id": 4, "v": "d"}),
        ("insert", 2, None, {"id": 5, "v": "e", "cents": 7}),
        ("update", 3, {"id": 1, "v": "a", "cents": None}, {"id": 1, "v": "a", "cents": 1}),
    ]


def test_partition_columns_are_columns_like_others(tmp_path: Path) -> None:
    lake = LakeTable(tmp_path / "t", {"id": [1, 2], "day": ["x", "y z"], "v": [1, 2]}, partition_by=["day"])
    feed = Feed(lake.uri)
    before = list(feed.all())
    assert applied(before) == lake.rows()
    lake.delta.update(updates={"day": "'w'"}, predicate="id = 1")
    assert applied(before + list(feed.all())) == lake.rows()


def every_version(orders: LakeTable) -> None:
    orders.append({"id": [4, 5, 6], "v": ["d", "e", "f"]})
    orders.delta.update(updates={"v": "concat(v, v)"})
    orders.merge({"id": [5, 8, 9], "v": ["X", "Y", "Z"]})
    orders.delta.optimize.compact()
    orders.delta.delete("id % 2 = 0")


def test_two_offsets_always_give_the_same_events(orders: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes give every form of offset; a new reader continues at each of them."""
    monkeypatch.setattr(delta_log, "ROW_BYTES", 1 << 20)
    feed = Feed(orders.uri, sizes=(2, 2))
    events = list(feed.all())
    every_version(orders)
    events += list(feed.all())
    assert applied(events) == orders.rows()
    forms = {tuple(sorted(start)) for start, _ in feed.batches}
    assert len(forms) == 4, f"the four forms of an offset: {forms}"
    for start, end in feed.batches:
        fresh = Feed(orders.uri, sizes=(2, 2))
        assert sorted(map(str, fresh.read(start, end))) == sorted(map(str, feed.read(start, end)))
    for at in range(len(feed.batches)):
        fresh = Feed(orders.uri, sizes=(2, 2))
        done = [event for start, end in feed.batches[:at] for event in fresh.read(start, end)]
        fresh.offset = feed.batches[at][0]
        assert applied(done + list(fresh.all())) == orders.rows()


def test_a_large_version_is_cut_into_batches_and_tasks(tmp_path: Path) -> None:
    rows = 20_000
    lake = LakeTable(tmp_path / "t", {"id": list(range(rows)), "v": ["x" * 8] * rows})
    feed = Feed(lake.uri, sizes=(2_000, 8_000))
    before = list(feed.all())
    assert len(before) == rows
    assert (len(feed.batches), feed.tasks >= 10) == (3, True)
    lake.append({"id": list(range(rows, 2 * rows)), "v": ["y" * 8] * rows})
    before += list(feed.all())
    lake.delta.update(updates={"v": "'new'"}, predicate="id % 2 = 0")
    tasks, batches = feed.tasks, len(feed.batches)
    largest = 0
    events = []
    while (batch := feed.step()) is not None:
        largest = max(largest, len(batch))
        events += batch
    assert len(events) == rows
    assert feed.tasks - tasks >= 20
    assert len(feed.batches) - batches >= 5
    assert largest <= 6_000, "both rows of an update count"
    assert applied(before + events) == lake.rows()


def test_a_topic_with_events_of_an_earlier_start_gets_a_truncate_in_every_partition(orders: LakeTable) -> None:
    feed = Feed(orders.uri, truncate_partitions=3)
    events = list(feed.all())
    assert [event["op"] for event in events] == ["truncate"] * 3 + ["insert"] * 3
    reader = feed.reader
    (batch,) = reader.read(reader.partitions(*feed.batches[0])[0])
    assert [hashed_partition(key, 3) for key in batch.column("partition_key").to_pylist()[:3]] == [0, 1, 2]


def test_an_empty_table_gives_no_events_until_it_has_rows(tmp_path: Path) -> None:
    lake = LakeTable(tmp_path / "t", pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())}))
    feed = Feed(lake.uri)
    assert list(feed.all()) == []
    lake.append({"id": [1], "v": ["a"]})
    assert summary(list(feed.all())) == [("insert", 1, None, {"id": 1, "v": "a"})]


# What can be wrong


def test_versions_removed_by_vacuum_are_named_and_nothing_is_skipped(orders: LakeTable) -> None:
    feed = Feed(orders.uri)
    list(feed.all())
    orders.append({"id": [4], "v": ["d"]})
    orders.append({"id": [5], "v": ["e"]})
    orders.delta.optimize.compact()
    orders.delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert feed.offset is not None
    at = feed.offset
    for _ in range(2):
        with pytest.raises(
            FeedLost, match=r"lost versions 1 to 2: vacuum.*table is at version 5.*delete the checkpoint"
        ):
            list(feed.all())
        feed.offset = at
    restarted = Feed(orders.uri, truncate_partitions=1)
    assert applied(restarted.all()) == orders.rows(), "the way out"


def test_versions_whose_log_was_cleaned_up_are_named(orders: LakeTable) -> None:
    feed = Feed(orders.uri)
    list(feed.all())
    for number in range(4, 8):
        orders.append({"id": [number], "v": ["x"]})
    orders.delta.create_checkpoint()
    for number in (1, 2):
        (Path(orders.uri) / "_delta_log" / f"{number:020}.json").unlink()
    with pytest.raises(FeedLost, match="lost versions 1 to 2: "):
        list(Feed(orders.uri, truncate_partitions=0).read(*_between(feed, orders)))


def _between(feed: Feed, orders: LakeTable) -> tuple[dict[str, Any], dict[str, Any]]:
    assert feed.offset is not None
    return feed.offset, {**feed.offset, "version": orders.version + 1}


def test_a_missing_table_feed_or_key_is_refused_with_the_reason(tmp_path: Path, orders: LakeTable) -> None:
    write_deltalake(str(tmp_path / "plain"), pa.table({"id": [1]}))
    with pytest.raises(FeedError, match=r"no change data feed\. Set its property delta.enableChangeDataFeed to true"):
        Feed(str(tmp_path / "plain")).step()
    with pytest.raises(FeedError, match=r"there is no Delta table to read at .*nothing"):
        Feed(str(tmp_path / "nothing")).step()
    with pytest.raises(FeedError, match=r"key column order_id is not among the columns .*\(id, v\)"):
        Feed(orders.uri, key=("order_id",)).step()
    orders.append({"id": pa.array([None], pa.int64()), "v": ["no key"]})
    with pytest.raises(FeedError, match="version 1 has a row whose key column id is null"):
        Feed(orders.uri).step()


def test_a_feed_that_was_off_for_some_versions_is_refused(orders: LakeTable) -> None:
    feed = Feed(orders.uri)
    list(feed.all())
    orders.delta.alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    orders.delta.update(updates={"v": "'unseen'"})
    orders.delta.alter.set_table_properties(FEED)
    with pytest.raises(FeedError, match="was turned off with version 1: later changes"):
        list(feed.all())


def test_another_table_at_the_same_location_is_refused(orders: LakeTable, tmp_path: Path) -> None:
    feed = Feed(orders.uri)
    list(feed.all())
    kept = tmp_path / "kept"
    shutil.copytree(orders.uri, kept)
    orders.append({"id": [4], "v": ["d"]})
    list(feed.all())
    offset = feed.offset
    shutil.rmtree(orders.uri)
    shutil.copytree(kept, orders.uri)
    older = Feed(orders.uri)
    older.offset = offset
    with pytest.raises(FeedError, match="at version 0, but version 1 was read before"):
        older.step()
    shutil.rmtree(orders.uri)
    LakeTable(Path(orders.uri), {"id": [1], "v": ["new"]})
    another = Feed(orders.uri)
    another.offset = offset
    with pytest.raises(FeedError, match="not the one that was read before"):
        another.step()


@pytest.mark.parametrize(
    ("numbers", "text"), [([3], "3"), ([3, 4, 5, 9], "3 to 5, 9"), ([*range(0, 60, 2)], "36, 38 and more")]
)
def test_numbers_are_shown_as_ranges(numbers: list[int], text: str) -> None:
    assert ranges_text(numbers).endswith(text)


# Values


def time(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([True, None]), ["true", "null"]),
        (pa.array([2**63 - 1], pa.int64()), ["9223372036854775807"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (
            pa.array([Decimal("12345678901234567890.1200"), Decimal("-0.0001")], pa.decimal128(38, 4)),
            ["12345678901234567890.1200", "-0.0001"],
        ),
        (
            pa.array([1.5, float("nan"), float("inf"), -float("inf"), None]),
            ["1.5", '"NaN"', '"Infinity"', '"-Infinity"', "null"],
        ),
        (pa.array([0.1, 3.4028234663852886e38, 16777216.0], pa.float32()), ["0.1", "3.4028235e38", "16777216.0"]),
        (pa.array(['ä\n"', None], pa.string_view()), ['"ä\\n\\""', "null"]),
        (pa.array([b"\x00\xff"], pa.binary_view()), ['"AP8="']),
        (pa.array([dt.date(2026, 1, 2), dt.date(1, 1, 1)]), ['"2026-01-02"', '"0001-01-01"']),
        (
            pa.array([time("2026-01-02T03:04:05.5"), time("1969-12-31T23:00:00")], pa.timestamp("us")),
            ['"2026-01-02T03:04:05.5"', '"1969-12-31T23:00:00"'],
        ),
        (
            pa.array([time("2026-01-02T03:04:05.123456")], pa.timestamp("us", "UTC")),
            ['"2026-01-02T03:04:05.123456Z"'],
        ),
        (pa.array([["a", None], None, []], pa.list_(pa.string())), ['["a",null]', "null", "[]"]),
        (
            pa.array([{"at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "n": {"x": [b"\x01"]}}, None]),
            ['{"at":"2026-01-02T00:00:00Z","n":{"x":["AQ=="]}}', "null"],
        ),
        (
            pa.array([[("k", Decimal("1.50"))], None, []], pa.map_(pa.string(), pa.decimal128(5, 2))),
            ['{"k":1.50}', "null", "{}"],
        ),
        (pa.array([[(7, "x")]], pa.map_(pa.int64(), pa.string())), ['{"7":"x"}']),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_are_json_without_loss(column: Any, texts: list[str]) -> None:
    assert [encode(value).decode() for value in json_values(column)] == texts
    assert [
        encode(value).decode() for value in json_values(pa.concat_arrays([column, column]).slice(1, len(column)))
    ] == [
        *texts[1:],
        texts[0],
    ], "also from the middle of an array"


def test_a_table_with_every_type_comes_through_snapshot_append_and_feed_alike(tmp_path: Path) -> None:
    def rows(number: int) -> Any:
        return pa.table(
            {
                "id": pa.array([number], pa.int64()),
                "text": ["ä"],
                "price": pa.array([Decimal("1234567890123456.78")], pa.decimal128(18, 2)),
                "flag": [True],
                "small": pa.array([7], pa.int8()),
                "float": [0.25],
                "at": pa.array([time("2026-01-02T03:04:05.6")], pa.timestamp("us", "UTC")),
                "local": pa.array([time("2026-01-02T03:04:05")], pa.timestamp("us")),
                "day": [dt.date(2026, 1, 2)],
                "bytes": [b"\x00\x01"],
                "list": [[1, None]],
                "struct": [{"a": "x", "b": [{"c": 1}]}],
                "map": pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())),
                "none": pa.array([None], pa.string()),
            }
        )

    lake = LakeTable(tmp_path / "t", rows(1))
    feed = Feed(lake.uri)
    events = list(feed.all())
    lake.append(rows(2))
    lake.delta.update(updates={"flag": "false"})
    lake.delta.delete("id = 2")
    events += list(feed.all())
    expected = {
        "text": "ä",
        "price": 1234567890123456.78,
        "flag": True,
        "small": 7,
        "float": 0.25,
        "at": "2026-01-02T03:04:05.6Z",
        "local": "2026-01-02T03:04:05",
        "day": "2026-01-02",
        "bytes": "AAE=",
        "list": [1, None],
        "struct": {"a": "x", "b": [{"c": 1}]},
        "map": {"k": 1.5},
        "none": None,
    }
    assert events[0]["after"] == {"id": 1, **expected}
    assert events[1]["after"] == {"id": 2, **expected}
    updates = {event["key"]["id"]: event for event in events[2:4]}
    for number in (1, 2):
        assert updates[number]["before"] == {"id": number, **expected}
        assert updates[number]["after"] == {"id": number, **expected, "flag": False}
    assert (events[4]["op"], events[4]["before"]) == ("delete", updates[2]["after"])


def test_keys_of_several_columns_and_types(tmp_path: Path) -> None:
    rows = {"day": [dt.date(2026, 1, 1)] * 2, "n": pa.array([Decimal("1.50"), Decimal("2.00")]), "v": ["a", "b"]}
    lake = LakeTable(tmp_path / "t", rows)
    feed = Feed(lake.uri, key=("day", "n"), sizes=(1, 1))
    list(feed.all())
    lake.delta.update(updates={"v": "'z'"})
    events = list(feed.all())
    assert sorted([str(event["key"]) for event in events]) == [
        "{'day': '2026-01-01', 'n': 1.5}",
        "{'day': '2026-01-01', 'n': 2.0}",
    ]
    assert {event["op"] for event in events} == {"update"}


def test_slices_divide_all_keys_and_keep_both_rows_of_an_update_together() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3, 1, 2, 3], "b": [b"x"] * 6})
    for key in (("id",), ("id", "b"), ("b",)):
        encoder = EventEncoder("t", "s", key)
        parts = [encoder.in_slice(batch, which, 3).column("id").to_pylist() for which in range(3)]
        assert sorted([number for part in parts for number in part]) == [1, 1, 2, 2, 3, 3]
        assert all([part.count(number) in (0, 2) for part in parts for number in (1, 2, 3)])
