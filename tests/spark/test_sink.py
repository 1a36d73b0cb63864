"""The sink without Spark: what is checked before a write, how rows become records, how a commit is made once."""

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest

from topics.client import Client
from topics.spark.options import BadOption, SinkOptions, sink_options
from topics.spark.sink import BatchWriter, Stager, StreamWriter, Written, check_columns, encoded_rows, json_column

types = pytest.importorskip("pyspark.sql.types")
TRANSPORTS = pytest.mark.parametrize("transport", ["arrow", "json"])


def schema(**columns: Any) -> Any:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


def options(client: Client, **given: str) -> SinkOptions:
    return sink_options({"url": client.url, **given})


def staged(client: Client, table: Any, **given: str) -> list[str]:
    stager = Stager(client, options(client, **given))
    for batch in table.to_batches():
        stager.add(batch)
    stager.flush()
    return stager.stages


TEXT = types.StringType()


@pytest.mark.parametrize(
    ("columns", "given", "told"),
    [
        ({"value": TEXT}, {"topic": "t"}, 'no column "data"'),
        ({"data": TEXT}, {}, "no topic"),
        ({"data": TEXT, "seq": types.LongType()}, {"topic": "t"}, 'column "seq" has no place'),
        ({"data": TEXT, "tag": types.LongType()}, {"topic": "t"}, 'column "tag" must hold strings'),
        ({"data": TEXT, "partition": TEXT}, {"topic": "t"}, "must hold whole numbers"),
        ({"data": TEXT, "partition_key": TEXT}, {"topic": "t", "transport": "json"}, "needs transport=arrow"),
        ({"data": TEXT}, {"topic": "nowhere"}, 'topic "nowhere" does not exist'),
    ],
)
def test_what_is_wrong_is_said_before_any_write(
    client: Client, columns: dict[str, Any], given: dict[str, str], told: str
) -> None:
    with pytest.raises(BadOption, match=told):
        check_columns(options(client, **given), schema(**columns), False)


def test_a_topic_is_never_overwritten(client: Client) -> None:
    with pytest.raises(BadOption, match="append"):
        check_columns(options(client, topic="t"), schema(data=TEXT), True)


def test_anything_but_text_is_encoded_as_json() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    value = {
        "n": 1,
        "f": float("nan"),
        "d": decimal.Decimal("1.50"),
        "at": moment,
        "day": datetime.date(2026, 1, 2),
        "raw": b"\x00\x01",
        "list": [1, None],
        "map": [("k", 1)],
        "empty": [],
    }
    kind = pa.struct(
        [
            ("n", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("list", pa.list_(pa.int32())),
            ("map", pa.map_(pa.string(), pa.int32())),
            ("empty", pa.map_(pa.string(), pa.int32())),
        ]
    )
    (text, nothing) = json_column(pa.chunked_array([pa.array([value, None], kind)])).to_pylist()
    assert nothing is None
    assert '"d":1.50' in text
    assert json.loads(text) == {
        "n": 1,
        "f": None,
        "d": 1.5,
        "at": "2026-01-02T03:04:05Z",
        "day": "2026-01-02",
        "raw": "AAE=",
        "list": [1, None],
        "map": {"k": 1},
        "empty": {},
    }


def test_text_is_json_as_it_stands_and_no_data_is_null() -> None:
    table = encoded_rows(pa.table({"data": ['{"a":  1}', None]}))
    assert table.column("data").to_pylist() == ['{"a":  1}', "null"]


@TRANSPORTS
def test_staged_rows_are_readable_only_after_the_commit(client: Client, topic: str, transport: str) -> None:
    client.create(topic, partitions=2)
    table = pa.table(
        {
            "data": ["1", '{"x":2}', "3"],
            "tag": ["a", None, "c"],
            "node": [None, "n", None],
            "meta": [None, '{"m":1}', None],
            "partition": [0, 1, 0],
        }
    )
    stages = staged(client, table, topic=topic, transport=transport)
    assert client.info(topic).count == 0
    client.commit(stages, producer=f"p-{topic}", batch=0)
    first, second = (client.diff(topic, partition=number).records for number in (0, 1))
    assert [(record.data, record.tag, record.meta) for record in first] == [(1, "a", None), (3, "c", None)]
    assert [(record.data, record.node, record.meta) for record in second] == [({"x": 2}, "n", {"m": 1})]


@TRANSPORTS
def test_rows_go_to_the_topic_of_their_column_in_order(client: Client, topic: str, transport: str) -> None:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        client.create(name)
    table = pa.table(
        {"data": [str(number) for number in range(10)], "topic": [names[number % 2] for number in range(10)]}
    )
    client.commit(staged(client, table, transport=transport), producer=f"p-{topic}", batch=0)
    assert [record.data for record in client.diff(names[1]).records] == [1, 3, 5, 7, 9]
    assert [record.data for record in client.diff(names[0]).records] == [0, 2, 4, 6, 8]


def test_the_option_fills_in_for_rows_without_a_topic(client: Client, topic: str) -> None:
    client.create(topic)
    table = pa.table({"data": ["1"], "topic": pa.array([None], pa.string())})
    assert len(staged(client, table, topic=topic)) == 1
    with pytest.raises(BadOption, match="a row has no topic"):
        staged(client, table)


def test_a_batch_committed_again_with_other_stages_is_there_once(client: Client, topic: str) -> None:
    """What Spark does when the driver dies between the commit and its own note of it."""
    client.create(topic)
    writer = StreamWriter(options(client, topic=topic))

    def attempt(pieces: list[list[int]], batch: int) -> None:
        messages: list[Any] = [
            Written(
                number, f"query-{topic}", staged(client, pa.table({"data": [str(each) for each in piece]}), topic=topic)
            )
            for number, piece in enumerate(pieces)
        ]
        writer.commit(list(reversed(messages)), batch)

    attempt([[1, 2], [3, 4]], 0)
    attempt([[1], [2, 3], [4]], 0)
    attempt([[5]], 1)
    assert [record.data for record in client.diff(topic).records] == [1, 2, 3, 4, 5]


def test_what_a_second_attempt_staged_is_never_seen(client: Client, topic: str) -> None:
    """A speculative task stages too; only the attempt whose message reaches the driver is committed."""
    client.create(topic)
    table = pa.table({"data": ["1", "2"]})
    winner, loser = staged(client, table, topic=topic), staged(client, table, topic=topic)
    StreamWriter(options(client)).commit([Written(0, f"query-{topic}", winner)], 0)
    assert client.info(topic).count == 2
    assert [client.drop_stage(stage).deleted for stage in loser] == [True], "it only waited to expire"


def test_an_abort_drops_stages_and_undoes_nothing(client: Client, topic: str) -> None:
    client.create(topic)
    writer = BatchWriter(options(client, topic=topic))
    table = pa.table({"data": ["1"]})
    message = Written(0, None, staged(client, table, topic=topic))
    writer.commit([message])
    writer.abort([message, None])
    assert client.info(topic).count == 1
    other = Written(0, None, staged(client, table, topic=topic))
    writer.abort([other])
    assert [client.drop_stage(stage).deleted for stage in other.stages] == [False]


def test_a_batch_of_nothing_commits_nothing(client: Client, topic: str) -> None:
    StreamWriter(options(client)).commit([None, Written(0, f"query-{topic}", [])], 0)
    assert client.producer(f"spark-query-{topic}") is None
