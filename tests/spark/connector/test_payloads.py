"""Typed payloads: which JSON fits which schema, what a bad record becomes, in batch and stream."""

import datetime
import decimal
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

from tests.spark.connector.test_batch import failure, load
from tests.spark.connector.test_stream import finish
from topics.client import Client
from topics.spark.connector.options import BadOption
from topics.spark.connector.payloads import VARIANT_SCHEMA, BadRecord, VariantPayloads, converter
from topics.spark.connector.reading import SCHEMA

UTC = datetime.UTC
WIDE = decimal.Decimal("12345678901234567890.123456789012345678")


def struct(**columns: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


def records(*texts: str | None) -> Any:
    """A batch of the source with these payloads."""
    count = len(texts)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([3] * count, pa.int32()),
            "seq": pa.array(range(10, 10 + count), pa.int64()),
            "ts": pa.array([datetime.datetime(2026, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
            "node": pa.nulls(count, pa.string()),
            "tag": pa.array(["t"] * count),
            "data": pa.array(texts, pa.string()),
            "meta": pa.nulls(count, pa.string()),
            "epoch": pa.array([1] * count, pa.int64()),
        }
    )


def converted(schema: types.StructType, *texts: str | None) -> list[dict[str, Any]]:
    convert = converter(schema, "json")
    assert convert is not None
    # As Spark sends it to its workers.
    sent = pickle.loads(pickle.dumps(convert))
    (batch,) = sent(records(*texts))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


ORDER = struct(id=types.IntegerType(), shop=types.StringType(), _corrupt=types.StringType())


def test_fields_become_columns_and_missing_ones_are_null() -> None:
    assert converted(ORDER, '{"id": 1, "shop": "a", "other": [1]}', '{"shop": null}', "{}") == [
        {"id": 1, "shop": "a", "_corrupt": None},
        {"id": None, "shop": None, "_corrupt": None},
        {"id": None, "shop": None, "_corrupt": None},
    ]


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    text = r'{"shop": "x\ud800y", "other": "\udc00"}'
    assert converted(ORDER, text) == [{"id": None, "shop": "x\ufffdy", "_corrupt": None}]
    bad = r'{"id": "\ud800"}'
    assert converted(ORDER, bad) == [{"id": None, "shop": None, "_corrupt": bad}]
    (batch,) = VariantPayloads()(records(text))
    (value,) = batch.column("data").to_pylist()
    assert types.VariantVal(value["value"], value["metadata"]).toPython()["shop"] == "x\ufffdy"


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "1"}',
        '{"id": 1.5}',
        '{"id": 2147483648}',
        '{"shop": 5}',
        '{"shop": {"a": 1}}',
        "[1]",
        "7",
        '"x"',
        "null",
    ],
)
def test_a_payload_that_does_not_fit_is_kept_whole_and_beside_others(text: str) -> None:
    good = '{"id": 2, "shop": "b"}'
    assert converted(ORDER, good, text, good) == [
        {"id": 2, "shop": "b", "_corrupt": None},
        {"id": None, "shop": None, "_corrupt": text},
        {"id": 2, "shop": "b", "_corrupt": None},
    ]


def test_the_reason_names_the_field() -> None:
    schema = struct(id=types.IntegerType(), _corrupt=types.StringType(), _corrupt_reason=types.StringType())
    (row,) = converted(schema, '{"id": "1"}')
    assert row["_corrupt_reason"] == "Expected `int | null`, got `str` - at `$.id`"


def test_without_a_column_for_it_a_bad_record_fails_the_read_by_name() -> None:
    with pytest.raises(BadRecord, match=r'topic "orders" partition 3 record 11 does not fit.*\$\.id.*_corrupt STRING'):
        converted(struct(id=types.IntegerType()), '{"id": 1}', '{"id": "x"}')


def test_a_column_that_is_not_null_must_be_there() -> None:
    required = types.StructType([types.StructField("id", types.LongType(), nullable=False)])
    assert converted(required, '{"id": 9223372036854775807}') == [{"id": (1 << 63) - 1}]
    for text in ("{}", '{"id": null}'):
        with pytest.raises(BadRecord, match="id"):
            converted(required, text)
    with pytest.raises(BadOption, match="NOT NULL, but with _corrupt"):
        converter(required.add("_corrupt", types.StringType()), "json")
    with pytest.raises(BadOption, match="NOT NULL, but with onDataLoss=emit"):
        converter(types.StructType(required.fields[:1]), "json", on_data_loss="emit")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (types.BooleanType(), "true", True),
        (types.ByteType(), "-128", -128),
        (types.ShortType(), "32767", 32767),
        (types.LongType(), "-9223372036854775808", -(1 << 63)),
        (types.DoubleType(), "3", 3.0),
        (types.DoubleType(), "0.1", 0.1),
        (types.DecimalType(38, 18), "12345678901234567890.123456789012345678", WIDE),
        (types.DecimalType(10, 2), '"1.5"', decimal.Decimal("1.50")),
        (types.BinaryType(), '"AAE="', b"\x00\x01"),
        (types.DateType(), '"2026-01-02"', datetime.date(2026, 1, 2)),
        (types.TimestampType(), '"2026-01-02T05:04:05.5+02:00"', datetime.datetime(2026, 1, 2, 3, 4, 5, 500_000, UTC)),
        (types.TimestampType(), '"2026-01-02T03:04:05"', datetime.datetime(2026, 1, 2, 3, 4, 5, 0, UTC)),
        (types.TimestampNTZType(), '"2026-01-02T03:04:05"', datetime.datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
        (types.ArrayType(types.IntegerType()), "[1, null]", [1, None]),
        (struct(a=types.StringType(), b=types.LongType()), '{"b": 1}', {"a": None, "b": 1}),
        (types.MapType(types.StringType(), types.LongType()), '{"x": 1, "é": null}', [("x", 1), ("é", None)]),
    ],
)
def test_every_type_is_read_without_loss(kind: types.DataType, text: str, value: Any) -> None:
    schema = struct(v=kind, _corrupt=types.StringType())
    assert converted(schema, f'{{"v": {text}}}') == [{"v": value, "_corrupt": None}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (types.ByteType(), "128"),
        (types.FloatType(), "1e39"),
        (types.FloatType(), "-3.4028236e38"),
        (types.BooleanType(), "1"),
        (types.DecimalType(5, 2), "1.234"),
        (types.DecimalType(5, 2), "12345.6"),
        (types.BinaryType(), '"*"'),
        (types.DateType(), '"2026-13-01"'),
        (types.TimestampType(), "1700000000000"),
        (types.TimestampNTZType(), '"2026-01-02T03:04:05Z"'),
        (types.ArrayType(types.IntegerType(), containsNull=False), "[null]"),
        (types.ArrayType(types.IntegerType()), '["x"]'),
        (types.MapType(types.StringType(), types.LongType()), '{"x": "y"}'),
    ],
)
def test_a_value_that_would_be_changed_is_corrupt(kind: types.DataType, text: str) -> None:
    payload = f'{{"v": {text}}}'
    assert converted(struct(v=kind, _corrupt=types.StringType()), payload) == [{"v": None, "_corrupt": payload}]


def test_columns_of_the_record_have_an_underscore() -> None:
    schema = struct(seq=types.StringType(), _seq=types.LongType(), _topic=types.StringType(), _tag=types.StringType())
    assert converted(schema, '{"seq": "own"}') == [{"seq": "own", "_seq": 10, "_topic": "orders", "_tag": "t"}]


def test_the_row_of_a_lost_range_is_not_corrupt() -> None:
    assert converted(ORDER, None) == [{"id": None, "shop": None, "_corrupt": None}]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (struct(_seq=types.StringType()), "column _seq of the schema must be BIGINT"),
        (struct(_corrupt=types.LongType()), "column _corrupt of the schema must be STRING"),
        (struct(_corrupt_reason=types.StringType()), "needs _corrupt STRING"),
        (struct(a=types.MapType(types.LongType(), types.LongType())), "column a of the schema: .* MAP<BIGINT,BIGINT>"),
        (struct(a=struct(b=types.NullType())), "column a.b of the schema"),
    ],
)
def test_a_schema_that_no_payload_has_is_refused_before_the_read(schema: types.StructType, reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        converter(schema, "json")


def test_a_variant_holds_any_payload_and_keeps_digits() -> None:
    schema = struct(v=types.VariantType(), many=types.ArrayType(types.VariantType()))
    (row,) = converted(schema, '{"v": {"a": [1, 1.10, null]}, "many": [1, null, "x"]}')
    assert types.VariantVal(row["v"]["value"], row["v"]["metadata"]).toJson() == '{"a":[1,1.10,null]}'
    assert row["many"][1] is None
    assert [types.VariantVal(each["value"], each["metadata"]).toPython() for each in row["many"][::2]] == [1, "x"]


@pytest.mark.spark
@pytest.mark.slow
def test_typed_columns_in_batch_and_stream(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    client.create(topic)
    client.append(topic, [{"id": 1, "shop": "a"}, {"id": "x"}, {"id": 2, "at": "2026-01-02T03:04:05Z"}])
    ddl = "id INT, shop STRING, at TIMESTAMP, _seq BIGINT, _corrupt STRING"
    reader = spark.read.format("topics").option("url", client.url).option("subscribe", topic).schema(ddl)
    found = [(row.id, row.shop, row["_seq"], row["_corrupt"]) for row in reader.load().orderBy("_seq").collect()]
    assert found == [(1, "a", 1, None), (None, None, 2, '{"id":"x"}'), (2, None, 3, None)]
    assert reader.load().where("at > '2026-01-01'").count() == 1
    strict = spark.read.format("topics").option("url", client.url).option("subscribe", topic).schema("id INT")
    assert "record 2 does not fit the schema" in failure(lambda: strict.load().collect())

    stream = spark.readStream.format("topics").option("url", client.url).option("subscribe", topic).schema(ddl)
    frame = (
        stream.option("startingOffsets", "earliest").load().where("_corrupt IS NULL").selectExpr("struct(id) AS data")
    )
    client.create(f"{topic}.ids")
    writer = frame.writeStream.format("topics").option("url", client.url).option("topic", f"{topic}.ids")
    finish(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())
    assert [record.data for record in client.diff(f"{topic}.ids").records] == [{"id": 1}, {"id": 2}]


@pytest.mark.spark
@pytest.mark.slow
def test_a_payload_as_variant_is_queried_by_path(spark: Any, client: Client, topic: str) -> None:
    client.create(topic)
    client.append(topic, [{"shop": {"id": 5}}, [1, 2], "text"])
    frame = load(spark, client.url, subscribe=topic, payload="variant")
    assert frame.schema.simpleString() == f"struct<{VARIANT_SCHEMA.lower().replace(' ', ':').replace(',:', ',')}>"
    ids = frame.selectExpr("variant_get(data, '$.shop.id', 'int') AS id", "to_json(data) AS j").orderBy("seq").collect()
    assert [(row.id, json.loads(row.j)) for row in ids] == [(5, {"shop": {"id": 5}}), (None, [1, 2]), (None, "text")]
    assert "not both" in failure(
        lambda: (
            spark.read.format("topics")
            .schema("a INT")
            .option("subscribe", topic)
            .option("payload", "variant")
            .load()
            .count()
        )
    )


def test_the_schema_of_records_is_read_as_it_is() -> None:
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    assert converter(struct(**{name: types.StringType() for name in names}), "json") is None
