"""Typed payloads: the JSON of a record as columns of the user's schema, or as one VARIANT.

With `schema("id INT, shop STRING")` each column is the field of that name in the payload. A column named `_topic`,
`_partition`, `_seq`, `_ts`, `_node`, `_tag`, `_meta`, `_data` or `_epoch` is that column of the record. A field that is
missing or null is NULL; fields that the schema does not name are ignored.

A payload fits when it is an object, every value has the type of its column without loss, and no NOT NULL column is NULL.
A schema with NOT NULL columns cannot have `_corrupt`, because the columns of a bad record are NULL.
Values are not converted: the text "5" is not an INT, and 1.5 is not a BIGINT. Only a lone surrogate in a text, which no text
can hold, becomes U+FFFD.

    BOOLEAN               true, false
    TINYINT .. BIGINT     a whole number in the range of the type
    FLOAT, DOUBLE         a number in the range of the type, rounded to its precision
    DECIMAL(p, s)         a number, or a text of one, with at most s digits after the point
    STRING                a text
    BINARY                a text in base64
    DATE                  2026-01-02
    TIMESTAMP             2026-01-02T03:04:05.5Z, with another offset, or without one, which is UTC; in microseconds
    TIMESTAMP_NTZ         2026-01-02T03:04:05.5
    ARRAY, STRUCT         array, object
    MAP<STRING, ...>      object
    VARIANT               anything

A record whose payload does not fit is a bad record. If the schema has the column `_corrupt STRING`, its payload is the text
there, the reason is in `_corrupt_reason STRING`, if the schema has that, and the other payload columns are NULL. Otherwise
the read fails and names the record.
"""

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Required, TypedDict

import msgspec
from msgspec import Meta
from pyspark.sql import types

from topics.model.records.surrogates import replace_halves
from topics.spark.connector.options import BadOption
from topics.spark.connector.reading import SCHEMA

CORRUPT = "_corrupt"
REASON = "_corrupt_reason"
VARIANT_SCHEMA = SCHEMA.replace("data STRING", "data VARIANT") + f", {CORRUPT} STRING"
_TYPES: dict[str, types.DataType] = {
    "STRING": types.StringType(),
    "INT": types.IntegerType(),
    "BIGINT": types.LongType(),
    "TIMESTAMP": types.TimestampType(),
    "VARIANT": types.VariantType(),
}


def _parsed(schema: str) -> types.StructType:
    """Build a schema without Spark's parser, which needs a session; workers have none."""
    columns = [column.split() for column in schema.split(", ")]
    return types.StructType([types.StructField(name, _TYPES[kind]) for name, kind in columns])


RECORD_COLUMNS = tuple(_parsed(SCHEMA).fieldNames())
_PREFIXED = {f"_{name}": name for name in RECORD_COLUMNS}

_INTEGERS: list[tuple[type[types.DataType], int]] = [
    (types.ByteType, 7),
    (types.ShortType, 15),
    (types.IntegerType, 31),
    (types.LongType, 63),
]
# The smallest number that a 32-bit float would round to infinity.
FLOAT32_END = 2.0**128 - 2.0**103
_SCALARS: dict[type[types.DataType], Any] = {
    types.BooleanType: bool,
    types.FloatType: Annotated[float, Meta(gt=-FLOAT32_END, lt=FLOAT32_END)],
    types.DoubleType: float,
    types.DecimalType: decimal.Decimal,
    types.StringType: str,
    types.BinaryType: bytes,
    types.DateType: datetime.date,
    types.TimestampType: datetime.datetime,
    types.TimestampNTZType: Annotated[datetime.datetime, Meta(tz=False)],
    types.VariantType: msgspec.Raw,
}


class BadRecord(Exception):
    """A record whose payload does not fit the schema. Names the topic, the partition, the seq and the reason."""


Converter = Callable[[Any], Iterator[Any]]


def converter(schema: types.StructType, payload: str, *, on_data_loss: str = "fail") -> Converter | None:
    """Return a function from a batch of records to batches of the schema; None when records are read without conversion.

    Raises BadOption for a schema that no payload can have.
    """
    if payload == "variant":
        if schema.fieldNames() != _parsed(VARIANT_SCHEMA).fieldNames():
            raise BadOption("give a schema or payload=variant, not both; a schema may have columns of type VARIANT")
        return VariantPayloads()
    if schema.fieldNames() == list(RECORD_COLUMNS):
        return None
    found = TypedPayloads(schema)
    required = found.required_column
    if required is not None and (CORRUPT in schema.fieldNames() or on_data_loss == "emit"):
        reason = f"with {CORRUPT}" if CORRUPT in schema.fieldNames() else "with onDataLoss=emit"
        raise BadOption(f"column {required} of the schema is NOT NULL, but {reason} some rows have no payload columns")
    return found


class TypedPayloads:
    """Converts batches of records to the user's schema."""

    def __init__(self, schema: types.StructType) -> None:
        self._schema = schema
        self._names = schema.fieldNames()
        self._fields = [field for field in schema.fields if field.name not in (*_PREFIXED, CORRUPT, REASON)]
        _check_record_columns(schema)
        # Before a query starts: a schema that cannot be read fails here, not in its tasks.
        self._prepare()

    @property
    def required_column(self) -> str | None:
        """The first payload column that is NOT NULL."""
        return next((field.name for field in self._fields if not field.nullable), None)

    def __getstate__(self) -> dict[str, Any]:
        # Decoders cannot be sent to workers; each worker makes its own.
        return {**self.__dict__, "_decode": None, "_restore": None}

    def _prepare(self) -> None:
        row = types.StructType(self._fields)
        self._decode: Callable[[str], Any] | None = msgspec.json.Decoder(_python_type(row, "")).decode
        self._restore = _restorer(row)

    def __call__(self, records: Any) -> Iterator[Any]:
        """Raises BadRecord for a record that does not fit, unless the schema has a column for it."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

        if self._decode is None:
            self._prepare()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        texts = records.column("data").to_pylist()
        rows: list[Any] = []
        reasons: dict[int, str] = {}
        for index, text in enumerate(texts):
            try:
                rows.append(self._row(text))
            except (msgspec.MsgspecError, ValueError) as error:
                rows.append(None)
                reasons[index] = str(error)
        kind = to_arrow_type(types.StructType(self._fields), timezone="UTC")
        columns = dict(zip(kind.names, _struct_array(rows, kind, reasons).flatten(), strict=True)) if kind.names else {}
        if reasons and CORRUPT not in self._names:
            raise _bad_record(records, min(reasons), reasons[min(reasons)])
        for name, column in _PREFIXED.items():
            if name in self._names:
                columns[name] = records.column(column)
        if CORRUPT in self._names:
            columns[CORRUPT] = pa.array(
                [text if index in reasons else None for index, text in enumerate(texts)], pa.string()
            )
        if REASON in self._names:
            columns[REASON] = pa.array([reasons.get(index) for index in range(len(texts))], pa.string())
        yield pa.RecordBatch.from_arrays(
            [columns[name].cast(schema.field(name).type) for name in self._names], schema=schema
        )

    def _row(self, text: str | None) -> Any:
        # NULL is the row of a lost range (onDataLoss=emit): it has no payload and is not a bad record.
        if text is None:
            return {}
        assert self._decode is not None
        try:
            row = self._decode(text)
        except msgspec.DecodeError:
            replaced = _without_lone_surrogates(text)
            if replaced == text:
                raise
            row = self._decode(replaced)
        return row if self._restore is None else self._restore(row)


class VariantPayloads:
    """Converts batches of records to VARIANT_SCHEMA."""

    def __call__(self, records: Any) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(_parsed(VARIANT_SCHEMA), timezone="UTC")
        values: list[Any] = []
        corrupt: list[str | None] = []
        for text in records.column("data").to_pylist():
            try:
                values.append(None if text is None else _variant(_without_lone_surrogates(text)))
                corrupt.append(None)
            except Exception:  # noqa: BLE001 - Spark's encoder raises many kinds for what a VARIANT cannot hold
                values.append(None)
                corrupt.append(text)
        columns = [records.column(name) for name in RECORD_COLUMNS]
        columns[RECORD_COLUMNS.index("data")] = pa.array(values, schema.field("data").type)
        yield pa.RecordBatch.from_arrays([*columns, pa.array(corrupt, pa.string())], schema=schema)


def _without_lone_surrogates(text: str) -> str:
    """The text with U+FFFD in place of each lone surrogate, as `Client.read` decodes it."""
    return replace_halves(text.encode()).decode() if "\\ud" in text or "\\uD" in text else text


def _check_record_columns(schema: types.StructType) -> None:
    expected = {f"_{field.name}": field.dataType for field in _parsed(SCHEMA).fields}
    expected |= {CORRUPT: types.StringType(), REASON: types.StringType()}
    for field in schema.fields:
        if field.name in expected and field.dataType != expected[field.name]:
            raise BadOption(f"column {field.name} of the schema must be {expected[field.name].simpleString().upper()}")
    if REASON in schema.fieldNames() and CORRUPT not in schema.fieldNames():
        raise BadOption(f"a schema with {REASON} needs {CORRUPT} STRING")


def _python_type(kind: types.DataType, path: str) -> Any:
    """The type that msgspec decodes a value of this column to. Raises BadOption for a type that JSON cannot hold."""
    for integer, bits in _INTEGERS:
        if isinstance(kind, integer):
            return Annotated[int, Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    if isinstance(kind, types.StructType):
        fields = {
            field.name: _python_type(field.dataType, f"{path}.{field.name}" if path else field.name)
            for field in kind.fields
        }
        optional = {
            field.name: _nullable(fields[field.name]) if field.nullable else Required[fields[field.name]]
            for field in kind.fields
        }
        return TypedDict("Row", optional, total=False)  # type: ignore[operator]
    if isinstance(kind, types.ArrayType):
        element = _python_type(kind.elementType, f"{path}[]")
        return list[_nullable(element)] if kind.containsNull else list[element]  # type: ignore[valid-type, misc]
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        value = _python_type(kind.valueType, f"{path}{{}}")
        return dict[str, _nullable(value)] if kind.valueContainsNull else dict[str, value]  # type: ignore[valid-type, misc]
    found = _SCALARS.get(type(kind))
    if found is None:
        raise BadOption(f"column {path} of the schema: a payload cannot hold {kind.simpleString().upper()}")
    return found


def _nullable(kind: Any) -> Any:
    # msgspec decodes null to Raw as it does any other value, but refuses Raw | None.
    return kind if kind is msgspec.Raw else kind | None


def _restorer(kind: types.DataType) -> Callable[[Any], Any] | None:
    """A function that replaces the JSON text of each VARIANT in a decoded value; None when the type has none."""
    if isinstance(kind, types.VariantType):
        return lambda value: None if bytes(value) == b"null" else _variant(bytes(value).decode())
    if isinstance(kind, types.StructType):
        inner = {field.name: found for field in kind.fields if (found := _restorer(field.dataType)) is not None}
        if not inner:
            return None
        return lambda value: {
            name: inner[name](each) if name in inner and each is not None else each for name, each in value.items()
        }
    if isinstance(kind, types.ArrayType):
        element = _restorer(kind.elementType)
        return None if element is None else lambda value: [None if each is None else element(each) for each in value]
    if isinstance(kind, types.MapType):
        item = _restorer(kind.valueType)
        if item is None:
            return None
        return lambda value: {name: None if each is None else item(each) for name, each in value.items()}
    return None


def _variant(text: str) -> dict[str, bytes]:
    found = types.VariantVal.parseJson(text)
    return {"value": found.value, "metadata": found.metadata}


def _struct_array(rows: list[Any], kind: Any, reasons: dict[int, str]) -> Any:
    """The rows as an Arrow array. A row that Arrow cannot convert without loss becomes NULL, with its reason in `reasons`."""
    import pyarrow as pa

    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, ValueError, OverflowError):
        pass
    for index, row in enumerate(rows):
        try:
            pa.array([row], kind)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            rows[index] = None
            reasons[index] = str(error)
    return pa.array(rows, kind)


def _bad_record(records: Any, index: int, reason: str) -> BadRecord:
    topic, partition, seq = [records.column(name)[index].as_py() for name in ("topic", "partition", "seq")]
    return BadRecord(
        f'topic "{topic}" partition {partition} record {seq} does not fit the schema: {reason}. To keep such records, add '
        f"the column {CORRUPT} STRING to the schema."
    )
