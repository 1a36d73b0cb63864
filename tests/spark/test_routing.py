"""What the routes of a table make of its changes: conditions, payloads, partitions and order, evaluated by Spark SQL."""

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from tests.spark.test_stream import finish
from topics.client import Client
from topics.client.calls import RecordIn

pytest.importorskip("pyspark")

from topics.spark.job import Surroundings
from topics.spark.routing import RouteJob

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_numbers = itertools.count(1)


class House:
    """A table with its topics on the shared server, and a job that routes what there is."""

    def __init__(self, spark: Any, client: Client, directory: Path) -> None:
        self.client = client
        self.table = f"shop.t{next(_numbers)}"
        self.notes: dict[str, Any] = {}
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

    def route(self) -> dict[str, Any]:
        """Route what is there and end. Answers what the job told."""
        around = Surroundings(self._spark, self.client.url, None, str(self._directory), 0, self.notes.update)
        query = RouteJob(self.table).start_with(around, availableNow=True)
        finish(query)
        assert query.exception() is None
        return self.notes

    def data(self, name: str) -> list[Any]:
        return [record.data for record in self.client.read(f"{self.table}.{name}")]

    def trouble(self) -> list[tuple[str, str, int | None]]:
        prefix = f"{self.table}."
        return [(each["topic"].removeprefix(prefix), each["what"], each["count"]) for each in self.notes["trouble"]]


@pytest.fixture
def house(spark: Any, client: Client, tmp_path: Path) -> House:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    return House(spark, client, tmp_path / "checkpoint")


def test_every_payload_mode_of_every_operation(house: House) -> None:
    for op, mode in itertools.product(("insert", "update", "delete"), ("key", "full", "diff")):
        house.topic(f"{op}.{mode}", f"ON {op.upper()} WITH (payload = '{mode}')")
    house.topic("named", "ON UPDATE WITH (payload = 'key', key = 'text, id')")
    row = {"id": 1, "text": "hi", "n": None}
    house.send(
        {"op": "insert", "ts": 11, "after": row},
        {"op": "update", "ts": 12, "before": row, "after": {**row, "text": 'it\'s "é" 🐘'}},
        {"op": "update", "ts": 13, "after": {"id": 1, "text": "?"}},
        {"op": "delete", "ts": 14, "before": {"id": 1, "text": "?"}},
        {"op": "delete", "ts": 15, "key": {"id": 2}},
    )
    notes = house.route()
    key = {"id": 1}
    assert house.data("insert.key") == [key]
    assert house.data("insert.full") == [row]
    new = {name: {"old": None, "new": value} for name, value in row.items()}
    assert house.data("insert.diff") == [{"key": key, "changed": new}]
    assert house.data("update.key") == [key, key]
    assert house.data("update.full") == [{**row, "text": 'it\'s "é" 🐘'}, {"id": 1, "text": "?"}]
    assert house.data("update.diff") == [
        {"key": key, "changed": {"text": {"old": "hi", "new": 'it\'s "é" 🐘'}}},
        {"key": key, "changed": {"id": {"new": 1}, "text": {"new": "?"}}},
    ]
    assert house.data("delete.key") == [key, {"id": 2}]
    assert house.data("delete.full") == [{"id": 1, "text": "?"}, {"id": 2}]
    assert house.data("delete.diff") == [{"key": key, "changed": {}}, {"key": {"id": 2}, "changed": {}}]
    assert house.data("named") == [{"text": 'it\'s "é" 🐘', "id": 1}, {"text": "?", "id": 1}]
    assert (notes["rows"], notes["messages"], notes["trouble"]) == (5, 3 + 6 + 6 + 2, [])


def test_consumer_groups_get_the_envelope_and_records_tell_where_they_come_from(house: House) -> None:
    topic = house.topic("out", "ON UPDATE WITH (payload = 'diff')")
    house.send({"op": "update", "ts": 12, "before": {"id": 1, "a": 1}, "after": {"id": 1, "a": 2}})
    house.route()
    (message,) = house.client.consume(topic, "g", start="Earliest", timeout_seconds=0).messages
    assert (message.source_table, message.op, message.payload_mode) == (house.table, "Update", "Diff")
    assert json.loads(base64.b64decode(message.payload)) == {"key": {"id": 1}, "changed": {"a": {"old": 1, "new": 2}}}
    (record,) = house.client.read(topic)
    route = house.client.routes(table=house.table).routes[0].version
    epoch = house.client.info(f"changes:{house.table}").epoch
    assert message.message_id == f"{house.table}:{epoch}:0:1:{route}"
    assert record.meta == {
        "message_id": message.message_id,
        "source_table": house.table,
        "op": "Update",
        "payload_mode": "Diff",
        "ts": 12,
        "src_topic": f"changes:{house.table}",
        "src_partition": 0,
        "src_seq": 1,
    }


def test_values_keep_every_digit(house: House) -> None:
    topic = house.topic("out", "ON INSERT WHERE (big = 12345678901234567890 AND exact > 0.1) WITH (payload = 'full')")
    row = '{"id":1,"big":12345678901234567890,"exact":0.1000000000000000001,"e":1E+2,"pad":1.50,"half":"\\ud800"}'
    event = f'{{"op":"insert","ts":1,"key":{{"id":1}},"before":null,"after":{row}}}'
    house.client.create(f"changes:{house.table}")

    house.client.append(f"changes:{house.table}", [RecordIn(Raw(event.encode()))])
    house.route()
    (message,) = house.client.consume(topic, "g", start="Earliest", timeout_seconds=0).messages
    assert base64.b64decode(message.payload).decode() == row
