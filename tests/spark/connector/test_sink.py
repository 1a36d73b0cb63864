"""The sink without Spark: what is checked before a write, how rows become records, how a commit is made once."""

from typing import Any

import pyarrow as pa
import pytest

from topics.client import Client
from topics.spark.connector.options import BadOption, SinkOptions, sink_options
from topics.spark.connector.sink import (
    BadRow,
    BatchWriter,
    RepeatedBatch,
    Stager,
    StreamWriter,
    Written,
    check_columns,
    encoded_rows,
)

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
    ("columns", "given", "message"),
    [
        ({"value": TEXT}, {"topic": "t"}, 'no column "data"'),
        ({"data": TEXT}, {}, "no topic"),
        ({"data": TEXT, "seq": types.LongType()}, {"topic": "t"}, 'column "seq" is not a column of a record'),
        ({"data": TEXT, "tag": types.LongType()}, {"topic": "t"}, 'column "tag" must hold strings'),
        ({"data": TEXT, "partition": TEXT}, {"topic": "t"}, "must hold whole numbers"),
        ({"data": TEXT, "partition_key": TEXT}, {"topic": "t", "transport": "json"}, "needs transport=arrow"),
        ({"data": TEXT}, {"topic": "nowhere"}, 'topic "nowhere" does not exist'),
        (
            {"data": TEXT, "topic": TEXT},
            {"onBadRecord": "deadLetter", "deadLetterTopic": "no"},
            "deadLetterTopic: topic",
        ),
    ],
)
def test_wrong_columns_and_options_are_refused_before_any_write(
    client: Client, columns: dict[str, Any], given: dict[str, str], message: str
) -> None:
    with pytest.raises(BadOption, match=message):
        check_columns(options(client, **given), schema(**columns), False)


def test_a_topic_is_never_overwritten(client: Client) -> None:
    with pytest.raises(BadOption, match="append"):
        check_columns(options(client, topic="t"), schema(data=TEXT), True)


def test_text_is_taken_as_json_and_missing_data_is_null() -> None:
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
def test_a_lone_surrogate_is_written_as_it_was_read(client: Client, topic: str, transport: str) -> None:
    client.create(topic)
    table = pa.table({"data": [r'{"a":"x\ud800"}', "2"], "meta": [r'{"m":"\udc00"}', None]})
    client.commit(staged(client, table, topic=topic, transport=transport), producer=f"p-{topic}", batch=0)
    (batch,) = pa.ipc.open_stream(client.diff_arrow(topic, 0)).read_all().to_batches()
    assert batch.column("data").to_pylist() == [r'{"a":"x\ud800"}', "2"]
    assert batch.column("meta").to_pylist() == [r'{"m":"\udc00"}', None]


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
    with pytest.raises(BadRow, match="the column topic is NULL"):
        staged(client, table)


def test_a_batch_committed_again_with_other_stages_is_written_once(client: Client, topic: str) -> None:
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


def test_the_stages_of_a_second_attempt_are_never_readable(client: Client, topic: str) -> None:
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


def test_an_empty_batch_commits_nothing(client: Client, topic: str) -> None:
    StreamWriter(options(client)).commit([None, Written(0, f"query-{topic}", [])], 0)
    assert client.last_commit(f"spark-query-{topic}") is None


def written_by_tasks(client: Client, topic: str, batch: int, *tasks: list[str], **given: str) -> BatchWriter:
    """Write as a batch job whose tasks have these rows, with a fixed queryId."""
    fixed = {"topic": topic, "queryId": f"query-{topic}", "batchId": str(batch), **given}
    writer = BatchWriter(options(client, **fixed))
    writer.commit([writer.write(iter(pa.table({"data": rows}).to_batches())) for rows in tasks])
    return writer


def test_a_batch_of_a_query_id_with_other_rows_fails_and_names_the_option(client: Client, topic: str) -> None:
    client.create(topic)
    written_by_tasks(client, topic, 0, ["1", "2"], ["3"])
    written_by_tasks(client, topic, 0, ["3"], ["2"], ["1"])
    assert client.info(topic).count == 3, "the same rows from other tasks are a repeat"
    with pytest.raises(RepeatedBatch, match=f'queryId "query-{topic}" with batchId 0'):
        written_by_tasks(client, topic, 0, ["1", "2", "4"])
    written_by_tasks(client, topic, 1, ["5"])
    with pytest.raises(RepeatedBatch, match="new queryId"):
        written_by_tasks(client, topic, 0, ["1", "2", "3"])
    written_by_tasks(client, topic, 0, ["6"], checkRepeats="false")
    assert [record.data for record in client.diff(topic).records] == [1, 2, 3, 5]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"data": ["1", "{x", "3"]}, "data.* JSON"),
        ({"data": ["1", "2", "3"], "meta": ["{}", "{x", None]}, "meta.* JSON"),
        ({"data": ["1", '"' + "x" * (2 << 20) + '"', "3"]}, "at most"),
        ({"data": ["1", "2", "3"], "partition": [0, 7, 0]}, "has 1 partition"),
        ({"data": ["1", "2", "3"], "tag": ["a", "b" * 1000, "c"]}, "longer than 256 bytes"),
    ],
)
@TRANSPORTS
def test_one_bad_row_fails_the_write_by_name_or_becomes_a_dead_letter(
    client: Client, topic: str, transport: str, columns: dict[str, list[Any]], reason: str
) -> None:
    for name in (topic, f"{topic}.dead"):
        client.create(name)
    table = pa.table(columns)
    with pytest.raises(BadRow, match=f'topic "{topic}": a row of task 0.*{reason}'):
        staged(client, table, topic=topic, transport=transport)
    dead = {"onBadRecord": "deadLetter", "deadLetterTopic": f"{topic}.dead"}
    stages = staged(client, table, topic=topic, transport=transport, **dead)
    assert client.info(f"{topic}.dead").count == 0, "dead letters come with the commit of the batch"
    client.commit(stages, producer=f"p-{topic}", batch=0)
    assert [record.data for record in client.diff(topic).records] == [1, 3]
    (letter,) = [record.data for record in client.diff(f"{topic}.dead").records]
    assert letter["topic"] == topic
    assert letter["row"]["data"][:40_000] == columns["data"][1][:40_000]
    assert letter["reason"]


def test_rows_without_a_topic_or_with_one_that_does_not_exist_become_dead_letters(client: Client, topic: str) -> None:
    for name in (topic, f"{topic}.dead"):
        client.create(name)
    table = pa.table({"data": ["1", "2", "3", "4"], "topic": [topic, None, f"{topic}.none", "not a name"]})
    stages = staged(client, table, onBadRecord="deadLetter", deadLetterTopic=f"{topic}.dead")
    client.commit(stages, producer=f"p-{topic}", batch=0)
    assert [record.data for record in client.diff(topic).records] == [1]
    letters = [record.data for record in client.diff(f"{topic}.dead").records]
    assert sorted([(letter["topic"] or "", letter["row"]["data"]) for letter in letters]) == [
        ("", "2"),
        ("not a name", "4"),
        (f"{topic}.none", "3"),
    ]
    assert {letter["reason"] for letter in letters} >= {f'topic "{topic}.none" does not exist'}


def test_many_bad_rows_cost_no_request_each(client: Client, topic: str) -> None:
    for name in (topic, f"{topic}.dead"):
        client.create(name)
    table = pa.table({"data": [str(number) if number % 2 else "{" for number in range(2000)]})
    counting = CountingClient(client)
    stager = Stager(counting, options(client, topic=topic, onBadRecord="deadLetter", deadLetterTopic=f"{topic}.dead"))  # type: ignore[arg-type]
    stager.add(table.to_batches()[0])
    stager.flush()
    client.commit(stager.stages, producer=f"p-{topic}", batch=0)
    assert [record.data for record in client.read(topic)] == list(range(1, 2000, 2))  # type: ignore[union-attr]
    assert client.info(f"{topic}.dead").count == 1000
    assert counting.stages_sent == 3


class CountingClient:
    """Passes stages on and counts them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.stages_sent = 0

    def stage_arrow(self, topic: str, stream: bytes, *, producer: str | None = None) -> Any:
        self.stages_sent += 1
        return self._client.stage_arrow(topic, stream, producer=producer)
