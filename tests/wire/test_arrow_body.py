"""Arrow bodies: what is proven about whole columns is what looking at each row would have found."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.broker.topics.append import hashed_partition
from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import Batch, columns_of
from topics.wire.arrow_body import read_arrow_body

LIMITS = Limits(max_record_bytes=60, max_meta_bytes=30, max_meta_keys=2, max_tag_bytes=8, max_node_bytes=8)


def stream(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read(most: int = 1000, partitions: int | None = None, **columns: Any) -> list[Batch]:
    table = pa.table(
        {name: pa.array(values, pa.int64() if name == "partition" else pa.string()) for name, values in columns.items()}
    )
    return read_arrow_body(stream(table), LIMITS, most, partitions=partitions)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
JSON = VALUES.map(lambda value: json.dumps(value, ensure_ascii=False))
# Pieces that are nothing by themselves and might be something together with their neighbours.
PIECES = st.sampled_from(
    ["", " ", "1,2", '"a', 'b"', "[", "]", "1 ", "nul", "null", "{}", '{"a":1', "}", "1]", "[1", "\0"]
)
NAMES = st.none() | st.text(max_size=5) | st.sampled_from(['"', "\\", "\n", "ä", "much too long a name"])


@given(
    st.lists(st.tuples(JSON | PIECES | st.none(), NAMES, NAMES, st.none() | JSON | PIECES), min_size=1, max_size=6),
)
def test_columns_are_accepted_and_stored_as_the_same_rows_one_by_one_would_be(rows: list[Any]) -> None:
    data, tags, nodes, metas = [list(column) for column in zip(*rows, strict=True)]
    one_by_one = outcome(lambda: [columns_of(data, tags, nodes, metas, LIMITS, 1000)])
    assert outcome(lambda: read(data=data, tag=tags, node=nodes, meta=metas)) == one_by_one


def outcome(act: Callable[[], list[Batch]]) -> list[Batch] | str:
    try:
        return act()
    except TopicsError as error:
        return str(error)


@pytest.mark.parametrize(
    "texts",
    [["1,2", '"a', 'b"'], ["[1", "2]", "3,4"], ["1", ""], ['{"a":1', '"b":2}', "1,2"], ["1]", "[2"], ["\0", "1"]],
)
def test_texts_that_are_json_only_together_are_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="is not JSON"):
        read(data=texts)


def test_texts_are_kept_byte_for_byte_but_for_the_space_around_them() -> None:
    (batch,) = read(data=['{"a":  1.0}', " 2 ", '"\\u00e4"'])
    assert batch.data == b'{"a":  1.0}\x002\x00"\\u00e4"'


def test_lone_surrogates_are_kept_as_in_a_json_body() -> None:
    (batch,) = read(data=['{"a": "\\ud800"}', "2"], meta=['{"m": "\\udc00\\ud83d\\ude00"}', None])
    assert batch.data == b'{"a": "\\ud800"}\x002'
    assert batch.metas == b'{"m": "\\udc00\\ud83d\\ude00"}\x00'
    with pytest.raises(InvalidRequest, match="data of record 1 is not JSON"):
        read(data=["1", '{"a": "\\ud800}'])
    with pytest.raises(InvalidRequest, match="more than 2 keys"):
        read(data=["1"], meta=['{"a":"\\ud800","b":1,"c":1}'])


def test_rows_go_to_the_partitions_they_choose_in_their_order() -> None:
    chosen = [2, 0, 2, None, 1, 2]
    found = read(data=list("123456"), tag=["a", None, None, None, "e", None], partition=chosen, partitions=3)
    assert [(batch.partition, batch.count, batch.data, batch.tags) for batch in found] == [
        (0, 2, b"2\x004", None),
        (1, 1, b"5", b'"e"'),
        (2, 3, b"1\x003\x006", b'"a"\x00\x00'),
    ]


def test_keys_choose_as_those_of_an_append_do() -> None:
    keys = [f"k{number % 5}" for number in range(40)]
    found = read(data=[str(number) for number in range(40)], partition_key=keys, partitions=4)
    places = {int(text): batch.partition for batch in found for text in batch.data.split(b"\0")}
    assert places == {number: hashed_partition(key, 4) for number, key in enumerate(keys)}


def test_rows_choose_only_among_what_there_is() -> None:
    for chosen in ([0, 3], [-1, 0]):
        with pytest.raises(InvalidRequest, match="has 3 partitions"):
            read(data=["1", "2"], partition=chosen, partitions=3)
    with pytest.raises(InvalidRequest, match="one append goes to one partition"):
        read(data=["1"], partition=[0])


def test_limits_hold_for_rows_too() -> None:
    with pytest.raises(BatchTooLarge):
        read(1, data=["1", "2"])
    with pytest.raises(RecordTooLarge):
        read(data=["1" * 61])
    with pytest.raises(InvalidRequest, match="more than 2 keys"):
        read(data=["1"], meta=['{"a":1,"b":2,"c":3}'])
    with pytest.raises(InvalidRequest, match="at least one record"):
        read(data=[])


def test_any_type_of_text_column_will_do() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())):
        column = pa.chunked_array([pa.array(["1", "2"], pa.string()), pa.array(["3"], pa.string())]).cast(kind)
        (batch,) = read_arrow_body(stream(pa.table({"data": column})), LIMITS, 10)
        assert batch.data == b"1\x002\x003"
    with pytest.raises(InvalidRequest, match="must hold strings"):
        read_arrow_body(stream(pa.table({"data": [b"\xff"]})), LIMITS, 10)


def stream_of(table: Any, compression: str) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers_are_refused_before_they_are_unpacked(compression: str) -> None:
    plain = pa.table({"data": ["1" * 50] * 1000})
    folded = pa.table({"data": pa.array(["1" * 50] * 1000).dictionary_encode()})
    for table in (plain, folded):
        with pytest.raises(InvalidRequest, match="compressed buffers"):
            read_arrow_body(stream_of(table, compression), LIMITS, 1000)


def test_a_long_value_that_many_rows_share_counts_for_each_of_them() -> None:
    limits = Limits(max_body_bytes=100_000)
    value = '"%s"' % ("x" * 4000)
    indices = pa.array([0] * 100, pa.int8())
    folded = pa.DictionaryArray.from_arrays(indices, pa.array([value]))
    for column in (folded, folded.cast(pa.string()).cast(pa.string_view())):
        body = stream(pa.table({"data": column}))
        with pytest.raises(BatchTooLarge, match="column data has 400200 bytes when it is expanded"):
            read_arrow_body(body, limits, 1000)
        assert read_arrow_body(stream(pa.table({"data": column[:20]})), limits, 1000)[0].count == 20


def test_columns_that_hold_no_strings_are_refused() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([100], ["1"])
    for values in ([[1], [2]], [{"a": 1}, {"a": 2}], runs):
        with pytest.raises(InvalidRequest, match="must hold strings"):
            read_arrow_body(stream(pa.table({"data": values})), LIMITS, 1000)
