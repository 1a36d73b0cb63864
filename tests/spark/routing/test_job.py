"""What the routes of a table make of its changes: conditions, payloads, partitions and order, evaluated by Spark SQL."""

import base64
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from tests.served import server_settings
from tests.spark.connector.test_stream import finish
from topics.client import Client
from topics.client.calls import RecordIn
from topics.model.partitioning import hashed_partition
from topics.testing.server import running_server

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from topics.spark.pipeline.job import JobContext, NotYet
from topics.spark.pipeline.progress import reason
from topics.spark.routing.change_source import MIN_TASK_SEQS
from topics.spark.routing.job import RouteJob, route_jobs

# Planning a query with many conditions takes up to a minute on an idle machine.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(450)]

_numbers = itertools.count(1)


class RoutingBench:
    """A table with its topics on the shared server, and a job that routes what there is."""

    def __init__(self, spark: Any, client: Client, directory: Path) -> None:
        self.client = client
        self.table = f"shop.t{next(_numbers)}"
        self.notes: dict[str, Any] = {}
        # Why the last query failed, as the pipeline passes it to the next one.
        self.failure: BaseException | None = None
        self.rows = 0
        self._read_notes: Callable[[], dict[str, Any]] = dict
        self._spark = spark
        self._directory = directory

    def topic(self, name: str, clause: str = "ON INSERT", *, partitions: int = 1) -> str:
        """A topic with this source."""
        full = f"{self.table}.{name}"
        if full not in {each.topic for each in self.client.topics(prefix=full)}:
            self.client.create(full, partitions=partitions)
        self.client.sql(f'ALTER TOPIC "{full}" ADD SOURCE "{self.table}" {clause}')
        return full

    def send(self, *changes: dict[str, Any]) -> None:
        sent = self.client.send_changes(self.table, list(changes), key_columns=["id"])
        assert sent.refused == []

    def insert(self, *rows: dict[str, Any]) -> None:
        self.send(*[{"op": "insert", "ts": 5, "after": row} for row in rows])

    def route(self, token: str | None = None) -> dict[str, Any]:
        """Route what there is and end. Returns the notes of the job's status."""
        query = self.start(token)
        finish(query)
        assert query.exception() is None
        self.notes = self._read_notes()
        batches = [each for each in query.recentProgress if each["durationMs"].get("addBatch") is not None]
        self.rows = sum([progress["numInputRows"] for progress in batches])
        self.check_jobs(query, len(batches))
        return self.notes

    def check_jobs(self, query: Any, batches: int) -> None:
        """Every micro-batch is one Spark job."""
        tracker = self._spark.sparkContext.statusTracker()
        deadline = time.monotonic() + 20
        while len(found := tracker.getJobIdsForGroup(str(query.runId))) < batches and time.monotonic() < deadline:
            time.sleep(0.02)  # Spark counts its jobs in a thread of its own
        assert len(found) == batches

    def start(self, token: str | None = None, version: int | None = None) -> Any:
        directory = self._directory if version is None else self._directory / f"route-{version}"
        context = JobContext(
            self._spark, self.client.url, token, str(directory), 0, set_status_source=self._watch, failure=self.failure
        )
        return RouteJob(self.table, version).start_with(context, availableNow=True)

    def _watch(self, notes: Callable[[], dict[str, Any]]) -> None:
        self._read_notes = notes

    def route_all(self) -> list[str]:
        """Run every job that the routes of the table ask for. Answers the names of the jobs."""
        jobs = [job for job in route_jobs(self.client.routes(table=self.table).routes) if isinstance(job, RouteJob)]
        for job in jobs:
            query = self.start(version=job.version)
            finish(query)
            assert query.exception() is None
        return [job.name for job in jobs]

    def data(self, name: str) -> list[Any]:
        return [record.data for record in self.client.read(f"{self.table}.{name}")]

    def trouble(self) -> list[tuple[str, str, int | None]]:
        prefix = f"{self.table}."
        return [(each["topic"].removeprefix(prefix), each["what"], each["count"]) for each in self.notes["trouble"]]


@pytest.fixture
def bench(spark: Any, client: Client, tmp_path: Path) -> RoutingBench:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    return RoutingBench(spark, client, tmp_path / "checkpoint")


def test_every_payload_mode_of_every_operation(bench: RoutingBench) -> None:
    for op, mode in itertools.product(("insert", "update", "delete"), ("key", "full", "diff")):
        bench.topic(f"{op}.{mode}", f"ON {op.upper()} WITH (payload = '{mode}')")
    bench.topic("named", "ON UPDATE WITH (payload = 'key', key = 'text, id')")
    row = {"id": 1, "text": "hi", "n": None}
    bench.send(
        {"op": "insert", "ts": 11, "after": row},
        {"op": "update", "ts": 12, "before": row, "after": {**row, "text": 'it\'s "é" 🐘'}},
        {"op": "update", "ts": 13, "after": {"id": 1, "text": "?"}},
        {"op": "delete", "ts": 14, "before": {"id": 1, "text": "?"}},
        {"op": "delete", "ts": 15, "key": {"id": 2}},
    )
    notes = bench.route()
    key = {"id": 1}
    assert bench.data("insert.key") == [key]
    assert bench.data("insert.full") == [row]
    new = {name: {"old": None, "new": value} for name, value in row.items()}
    assert bench.data("insert.diff") == [{"key": key, "changed": new}]
    assert bench.data("update.key") == [key, key]
    assert bench.data("update.full") == [{**row, "text": 'it\'s "é" 🐘'}, {"id": 1, "text": "?"}]
    assert bench.data("update.diff") == [
        {"key": key, "changed": {"text": {"old": "hi", "new": 'it\'s "é" 🐘'}}},
        {"key": key, "changed": {"id": {"new": 1}, "text": {"new": "?"}}},
    ]
    assert bench.data("delete.key") == [key, {"id": 2}]
    assert bench.data("delete.full") == [{"id": 1, "text": "?"}, {"id": 2}]
    assert bench.data("delete.diff") == [{"key": key, "changed": {}}, {"key": {"id": 2}, "changed": {}}]
    assert bench.data("named") == [{"text": 'it\'s "é" 🐘', "id": 1}, {"text": "?", "id": 1}]
    assert (bench.rows, notes["messages"], notes["trouble"]) == (5, 3 + 6 + 6 + 2, [])


def test_consumer_groups_get_the_envelope_and_records_name_their_source(bench: RoutingBench) -> None:
    topic = bench.topic("out", "ON UPDATE WITH (payload = 'diff')")
    bench.send({"op": "update", "ts": 12, "before": {"id": 1, "a": 1}, "after": {"id": 1, "a": 2}})
    bench.route()
    (message,) = bench.client.consume(topic, "g", start="Earliest", timeout_seconds=0).messages
    assert (message.source_table, message.op, message.payload_mode) == (bench.table, "Update", "Diff")
    assert json.loads(base64.b64decode(message.payload)) == {"key": {"id": 1}, "changed": {"a": {"old": 1, "new": 2}}}
    (record,) = bench.client.read(topic)
    route = bench.client.routes(table=bench.table).routes[0].version
    epoch = bench.client.info(f"changes:{bench.table}").epoch
    assert message.message_id == f"{bench.table}:{epoch}:0:1:{route}"
    assert record.meta == {
        "message_id": message.message_id,
        "source_table": bench.table,
        "op": "Update",
        "payload_mode": "Diff",
        "ts": 12,
        "src_topic": f"changes:{bench.table}",
        "src_partition": 0,
        "src_seq": 1,
    }


def test_values_keep_every_digit(bench: RoutingBench) -> None:
    topic = bench.topic("out", "ON INSERT WHERE (big = 12345678901234567890 AND exact > 0.1) WITH (payload = 'full')")
    row = '{"id":1,"big":12345678901234567890,"exact":0.100000000000000001,"e":1E+2,"pad":1.50,"half":"\\ud800"}'
    event = f'{{"op":"insert","ts":1,"key":{{"id":1}},"before":null,"after":{row}}}'
    bench.client.create(f"changes:{bench.table}")
    bench.client.append(f"changes:{bench.table}", [RecordIn(Raw(event.encode()))])
    bench.route()
    (message,) = bench.client.consume(topic, "g", start="Earliest", timeout_seconds=0).messages
    assert base64.b64decode(message.payload).decode() == row


def test_null_is_no_match_and_types_follow_the_other_operand(bench: RoutingBench) -> None:
    conditions = {
        "amount > 9.5": [1, 2],
        "NOT (amount > 9.5)": [3],
        "amount > 9.5 OR ok": [1, 2, 3],
        "amount > 9.5 AND ok": [1],
        "ok = true": [1, 3],
        "ok": [1, 3],
        "NOT ok": [2],
        "ok IS NULL": [4],
        "name = '10'": [1],
        "name <> '10'": [2, 3],
        "name IN ('10', 'it''s')": [1, 2],
        "name LIKE 'é%'": [3],
        "amount IN (10, 11)": [1],
        "amount BETWEEN 3 AND 10": [1, 3],
        "big = 9007199254740993": [1],
        "big > 9007199254740992": [1, 3],
        "a < b": [1, 3],
        "a = b": [2],
        "amount <=> NULL": [4],
        "nested.inner.deep = 'x'": [2],
        "CASE WHEN amount > 5 THEN 'many' ELSE 'few' END = 'few'": [3, 4],
        "COALESCE(amount, 0) = 0": [4],
        "LENGTH(name) = 2 AND UPPER(name) = '10'": [1],
        "amount * 2 >= 20.0": [1, 2],
        "CAST(name AS INT) = 10": [1],
        "`odd name` || '!' = '5!'": [3],
        "day >= '2026-01-02'": [2],
    }
    for index, condition in enumerate(conditions):
        bench.topic(f"c{index}", f"ON INSERT WHERE ({condition})")
    bench.insert(
        {
            "id": 1,
            "amount": 10,
            "ok": True,
            "name": "10",
            "big": 9007199254740993,
            "a": 9,
            "b": 10,
            "day": "2026-01-01",
        },
        {"id": 2, "amount": 11.5, "ok": False, "name": "it's", "big": 9007199254740992, "a": 7, "b": 7.0}
        | {"nested": {"inner": {"deep": "x"}}, "day": "2026-01-02T00:00:00Z"},
        {"id": 3, "amount": 3, "ok": True, "name": "é", "big": 9007199254740994, "a": "a", "b": "b", "odd name": 5},
        {"id": 4, "amount": None, "ok": None, "name": None, "big": None, "a": None, "b": 1},
    )
    bench.route()
    found = {condition: [row["id"] for row in bench.data(f"c{i}")] for i, condition in enumerate(conditions)}
    assert found == conditions


def test_a_known_schema_gives_columns_their_types(bench: RoutingBench) -> None:
    bench.client.put_table(
        bench.table, "push", key_columns=["id"], columns={"id": "bigint", "Price": "numeric(10,2)", "at": "timestamp"}
    )
    bench.topic("price", "ON INSERT WHERE (price = 1.5)")
    bench.topic("whole", "ON INSERT WHERE (id / 2 = 1.5)")
    bench.topic("time", "ON INSERT WHERE (at > CAST('2026-01-01T12:00:00+02:00' AS TIMESTAMP))")
    bench.insert(
        {"id": 3, "Price": "1.50", "at": "2026-01-01T10:30:00Z"}, {"id": 4, "Price": 2, "at": "2026-01-01 09:59:00"}
    )
    bench.route()
    assert [bench.data(name) for name in ("price", "whole", "time")] == [[{"id": 3}], [{"id": 3}], [{"id": 3}]]


def test_a_condition_without_a_result_is_no_match_and_is_counted(bench: RoutingBench) -> None:
    bench.topic("good", "ON INSERT WHERE (n >= 0)")
    bench.topic("zero", "ON INSERT WHERE (10 / n > 1)")
    bench.topic("cast", "ON INSERT WHERE (CAST(word AS INT) > 1)")
    bench.topic("absent", "ON INSERT WHERE (nowhere = 1)")
    bench.topic("type", "ON INSERT WHERE (word > 5)")
    bench.topic("number", "ON INSERT WHERE (n + 1)")
    bench.topic("refused", "ON INSERT WHERE (ROUND(n, n) = 1)")
    bench.topic("key", "ON INSERT WITH (payload = 'key', key = 'nowhere')")
    gone = bench.topic("gone")
    bench.insert({"id": 1, "n": 0, "word": "a"}, {"id": 2, "n": 1, "word": "7"}, {"id": 3, "n": None, "word": None})
    bench.send({"op": "truncate"})
    bench.client.append(f"changes:{bench.table}", ["nonsense", {"op": "merge"}, {"op": "insert", "after": 5}])
    # A topic takes its routes with it; a name that is taken by another topic meanwhile does not get them.
    bench.client.drop(gone)
    notes = bench.route()
    assert bench.data("good") == [{"id": 1}, {"id": 2}]
    assert bench.data("zero") == [{"id": 2}]
    assert bench.data("cast") == [{"id": 2}]
    assert bench.data("type") == [{"id": 2}]
    assert bench.data("absent") == []
    assert sorted(bench.trouble()) == [
        ("absent", "column_missing", 3),
        ("cast", "not_evaluated", 1),
        ("key", "refused", 3),
        ("number", "broken", None),
        ("refused", "broken", None),
        ("type", "not_evaluated", 1),
        ("zero", "not_evaluated", 1),
    ]
    assert (notes["truncates"], notes["unreadable"], bench.rows, notes["refused"]) == (1, 3, 7, 3)


def test_a_row_that_fails_inside_spark_is_no_match_of_its_route_alone(bench: RoutingBench, spark: Any) -> None:
    """Also with ANSI turned on for the whole pipeline, where overflows, casts and divisions by zero fail as well."""
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        bench.topic("good", "ON INSERT WHERE (n >= 0)")
        bench.topic("like", "ON INSERT WHERE (word LIKE pattern)")
        bench.topic("ilike", "ON INSERT WHERE (NOT word ILIKE CONCAT(pattern, ''))")
        bench.topic("within", "ON INSERT WHERE (word LIKE CASE WHEN word LIKE pattern THEN word ELSE 'x' END)")
        bench.topic("overflow", "ON INSERT WHERE (CAST(n AS TINYINT) > 0)")
        bench.topic("zero", "ON INSERT WHERE (100 / (n - 1) > 0)")
        bench.topic("cast", "ON INSERT WHERE (CAST(word AS DATE) > '2020-01-01')")
        bench.topic("placed", "ON INSERT PARTITION BY (100 / (n - 1))", partitions=2)
        backslash = "\\"
        rows: list[dict[str, Any]] = [
            {"id": 1, "n": 1, "word": "ab", "pattern": "a%"},
            {"id": 2, "n": 2, "word": "ab", "pattern": f"ab{backslash}"},
            {"id": 3, "n": 300, "word": "2026-01-01", "pattern": f"{backslash}2%"},
            {"id": 4, "n": 4, "word": f"a{backslash}%_", "pattern": f"a{backslash * 2}{backslash}%{backslash}_"},
            {"id": 5, "n": 5, "word": "ab", "pattern": f"a{backslash * 3}"},
        ]
        bench.insert(*rows)
        notes = bench.route()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "false")
    found = {
        name: [row["id"] for row in bench.data(name)]
        for name in ("good", "like", "ilike", "within", "overflow", "zero", "cast")
    }
    assert found == {
        "good": [1, 2, 3, 4, 5],
        "like": [1, 4],
        "ilike": [],
        "within": [1],
        "overflow": [1, 2, 4, 5],
        "zero": [2, 3, 4, 5],
        "cast": [3],
    }
    assert bench.client.info(f"{bench.table}.placed").count == 5
    assert sorted(bench.trouble()) == [
        ("cast", "not_evaluated", 4),
        ("ilike", "not_evaluated", 3),
        ("like", "not_evaluated", 3),
        ("overflow", "not_evaluated", 1),
        ("zero", "not_evaluated", 1),
    ]
    assert (bench.rows, notes["refused"]) == (5, 0)


@pytest.mark.long
def test_a_route_that_fails_inside_spark_all_the_same_is_left_out_and_shown(
    bench: RoutingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For errors of Spark that the plan does not prevent; here, a pattern that is not checked."""
    monkeypatch.setattr("topics.spark.routing.conditions._safe_pattern", lambda pattern: pattern.copy())
    bench.topic("fails", "ON INSERT WHERE (word LIKE pattern)")
    bench.topic("good", "ON INSERT WHERE (n > 8)")
    bench.insert({"id": 1, "n": 9, "word": "a", "pattern": "a%"})
    bench.route()
    assert (bench.data("fails"), bench.trouble()) == ([{"id": 1}], [])
    bench.insert({"id": 2, "n": 9, "word": "a", "pattern": "a\\"}, {"id": 3, "n": "many", "word": "a", "pattern": "a"})
    query = bench.start()
    with pytest.raises(StreamingQueryException) as failure:
        finish(query)
    bench.failure = failure.value
    bench.route()
    assert bench.data("good") == [{"id": 1}, {"id": 2}]
    assert bench.data("fails") == [{"id": 1}]
    assert bench.trouble() == [("fails", "broken", None), ("good", "not_evaluated", 1)]
    assert "escape" in bench.notes["trouble"][0]["message"].lower()


def test_routes_that_the_key_may_not_see_are_counted_and_the_others_run(spark: Any, tmp_path: Path) -> None:
    keys = "all,pipeline:read+write:shop.|changes:,reader:read"
    settings = server_settings(tmp_path / "data", TOPICS_API_KEYS=keys)
    with running_server(settings) as url, Client(url, "all") as client:
        bench = RoutingBench(spark, client, tmp_path / "checkpoint")
        for number in range(3):
            bench.topic(f"good{number}")
        for number in range(2):
            client.create(f"private.{number}")
            client.sql(f'ALTER TOPIC "private.{number}" ADD SOURCE "{bench.table}" ON INSERT')
        bench.insert({"id": 1})

        # A key that may write nothing at all fails the job, in plain words, and takes nothing with it.
        query = bench.start("reader")
        with pytest.raises(StreamingQueryException):
            finish(query)
        assert reason(query.exception()) == "api key lacks write scope"

        notes = bench.route("pipeline")
        assert [bench.data(f"good{number}") for number in range(3)] == [[{"id": 1}]] * 3
        assert [client.info(f"private.{number}").count for number in range(2)] == [0, 0]
        assert [(each["what"], each["count"]) for each in notes["trouble"]] == [("hidden", 2)]
        assert (notes["troubles"], notes["routes"], notes["messages"]) == (2, 3, 3)
        assert "private" not in json.dumps(notes), "how many, not which"


def test_messages_go_to_the_partition_of_their_key_in_order(bench: RoutingBench) -> None:
    bench.client.create(f"changes:{bench.table}", partitions=3)
    bench.topic("by", "ON UPDATE PARTITION BY (who) WITH (payload = 'full')", partitions=4)
    bench.topic("sum", "ON UPDATE PARTITION BY (n % 5) WITH (payload = 'full')", partitions=4)
    bench.topic("plain", "ON UPDATE WITH (payload = 'full')", partitions=4)
    rows = [{"id": n % 7, "who": f"u{n % 3}" if n % 4 else None, "n": n} for n in range(200)]
    bench.send(*[{"op": "update", "ts": 1, "after": row} for row in rows])
    bench.route()
    for name, text in (
        ("by", lambda row: row["who"] or ""),
        ("sum", lambda row: str(row["n"] % 5)),
        ("plain", lambda row: json.dumps({"id": row["id"]}, separators=(",", ":"))),
    ):
        seen = []
        for number in range(4):
            found = [record.data for record in bench.client.read(f"{bench.table}.{name}", partition=number)]
            assert {hashed_partition(text(row), 4) for row in found} <= {number}
            for key in range(7):
                of_key = [row["n"] for row in found if row["id"] == key]
                assert of_key == sorted(of_key)
            seen += found
        assert sorted([row["n"] for row in seen]) == list(range(200))


def test_many_tables_feed_one_topic_and_one_change_many(
    bench: RoutingBench, spark: Any, client: Client, tmp_path: Path
) -> None:
    other = RoutingBench(spark, client, tmp_path / "other")
    bench.topic("a")
    bench.topic("b")
    client.sql(f'ALTER TOPIC "{bench.table}.a" ADD SOURCE "{other.table}" ON INSERT')
    bench.insert({"id": 1})
    other.insert({"id": 2})
    bench.route()
    other.route()
    assert (bench.data("a"), bench.data("b")) == ([{"id": 1}, {"id": 2}], [{"id": 1}])
    names = {job.name for job in route_jobs(client.routes().routes)}
    assert {f"route {bench.table}", f"route {other.table}"} <= names


# Where routes begin


def test_every_route_begins_with_the_changes_made_after_it_was_created(bench: RoutingBench) -> None:
    bench.client.create(f"changes:{bench.table}", partitions=2)
    bench.insert(*[{"id": number} for number in range(10)])
    # The first one of the table, and one that is created while the job is behind.
    bench.topic("first", "ON INSERT WHERE (id >= 0)")
    bench.insert(*[{"id": number} for number in range(10, 20)])
    bench.topic("second")
    bench.insert(*[{"id": number} for number in range(20, 30)])
    notes = bench.route()
    assert sorted([row["id"] for row in bench.data("first")]) == list(range(10, 30))
    assert sorted([row["id"] for row in bench.data("second")]) == list(range(20, 30))
    assert (bench.rows, notes["messages"], notes["trouble"]) == (20, 30, [])
    # Dropped and added again it starts behind the last change, although the job has an older position.
    bench.client.sql(f'ALTER TOPIC "{bench.table}.first" DROP SOURCE "{bench.table}"')
    bench.insert({"id": 30})
    bench.topic("first", "ON INSERT WHERE (id >= 0)")
    bench.insert({"id": 31})
    bench.route()
    assert sorted([row["id"] for row in bench.data("first")]) == [*range(10, 30), 31]
    assert sorted([row["id"] for row in bench.data("second")]) == list(range(20, 32))


def test_a_route_from_the_earliest_change_replays_what_the_change_topic_has(bench: RoutingBench) -> None:
    bench.client.create(f"changes:{bench.table}", cap_records=6)
    bench.insert(*[{"id": number} for number in range(4)])
    bench.topic("new")
    bench.insert(*[{"id": number} for number in range(4, 8)])
    assert bench.route_all() == [f"route {bench.table}"]
    bench.topic("old", "ON INSERT WITH (start = 'earliest')")
    (version,) = [route.version for route in bench.client.routes().routes if route.start == "Earliest"]
    assert bench.route_all() == [f"route {bench.table}", f"route {bench.table} #{version}"]
    assert [row["id"] for row in bench.data("old")] == [2, 3, 4, 5, 6, 7]
    bench.insert({"id": 8})
    bench.route_all()
    # Once each, and nothing of it again in the other topic.
    assert [row["id"] for row in bench.data("old")] == [2, 3, 4, 5, 6, 7, 8]
    assert [row["id"] for row in bench.data("new")] == [4, 5, 6, 7, 8]
    # Dropped and added again it replays again.
    bench.client.sql(f'ALTER TOPIC "{bench.table}.old" DROP SOURCE "{bench.table}"')
    bench.topic("old", "ON INSERT WITH (start = 'EARLIEST')")
    bench.route_all()
    assert [row["id"] for row in bench.data("old")][7:] == [3, 4, 5, 6, 7, 8]


def test_failures_on_older_changes_are_not_counted_for_a_route(bench: RoutingBench) -> None:
    bench.topic("all")
    bench.insert({"id": 1, "n": "no number"})
    bench.topic("numbers", "ON INSERT WHERE (n > 5)")
    bench.insert({"id": 2, "n": 6})
    bench.route()
    assert (bench.data("numbers"), bench.trouble()) == ([{"id": 2}], [])


def test_a_route_begins_with_all_changes_of_a_change_topic_that_is_created_after_it(bench: RoutingBench) -> None:
    bench.insert({"id": 1}, {"id": 2})
    bench.topic("a")
    bench.client.drop(f"changes:{bench.table}")
    bench.insert({"id": 3})
    bench.route()
    assert bench.data("a") == [{"id": 3}]


def test_a_thousand_routes_find_their_changes(bench: RoutingBench) -> None:
    for number in range(10):
        bench.client.create(f"{bench.table}.m{number}")
    for number in range(1000):
        bench.topic(f"m{number % 10}", f"ON INSERT WHERE (n = {number})")
    bench.insert(*[{"id": number, "n": number} for number in range(0, 1000, 7)])
    notes = bench.route()
    for number in range(10):
        assert [row["id"] for row in bench.data(f"m{number}")] == [n for n in range(0, 1000, 7) if n % 10 == number]
    assert (notes["routes"], notes["messages"]) == (1000, 143)
    assert notes["evaluated_conditions"] == 0, "all are found by lookup"


def test_a_batch_that_is_run_again_with_other_routes_is_written_once(bench: RoutingBench, tmp_path: Path) -> None:
    bench.topic("a")
    bench.insert({"id": 1})
    bench.route()
    for note in (tmp_path / "checkpoint").glob("epoch-*/commits/*"):
        note.unlink()
    bench.topic("b")
    bench.insert({"id": 2})
    bench.route()
    assert (bench.data("a"), bench.data("b")) == ([{"id": 1}, {"id": 2}], [{"id": 2}])


def test_recreated_change_topic_is_read_from_its_first_change(bench: RoutingBench) -> None:
    bench.topic("a")
    with pytest.raises(NotYet):
        bench.route()
    bench.insert({"id": 1}, {"id": 2})
    bench.route()
    bench.client.drop(f"changes:{bench.table}")
    bench.insert({"id": 3})
    bench.route()
    assert bench.data("a") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_changes_that_were_lost_before_they_were_read_are_counted(bench: RoutingBench) -> None:
    bench.topic("a")
    bench.client.create(f"changes:{bench.table}", cap_records=3)
    bench.insert({"id": 0})
    bench.route()
    for number in range(1, 6):
        bench.insert({"id": number})
    notes = bench.route()
    assert bench.data("a") == [{"id": 0}, {"id": 3}, {"id": 4}, {"id": 5}]
    assert notes["lost"] == 1, "one gap"


def test_messages_above_the_cap_of_their_topic_get_seqs_and_the_evicted_ones_are_reported(bench: RoutingBench) -> None:
    bench.client.create(f"{bench.table}.small", cap_records=3)
    bench.topic("small")
    bench.topic("all")
    bench.insert(*[{"id": number} for number in range(30)])
    notes = bench.route()
    page = bench.client.diff(f"{bench.table}.small", 0)
    assert (page.head_seq, [record.seq for record in page.records]) == (30, [28, 29, 30])
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (1, 27, "cap")
    assert [record.data for record in page.records] == [{"id": number} for number in range(27, 30)]
    assert len(bench.data("all")) == 30
    assert notes["refused"] == 0


def test_a_batch_in_portions_routes_every_change_of_a_partition_in_order(bench: RoutingBench) -> None:
    bench.topic("out", "ON INSERT WITH (payload = 'key')")
    count = 3 * MIN_TASK_SEQS
    for first in range(0, count, 2000):
        bench.insert(*[{"id": n} for n in range(first, first + 2000)])
    bench.failure = Exception("topics.spark.routing.commit.StagesFull: no space")
    bench.route()
    assert [each["id"] for each in bench.data("out")] == list(range(count))
