"""Arrow bodies that become much larger when they are read are refused."""

import pyarrow as pa
import pytest

from topics.model.errors import BatchTooLarge, InvalidRequest
from topics.wire.arrow_size import check_unfolded, check_weight

TABLE = pa.table({"data": ["x" * 100] * 100})


def stream(compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(TABLE)
    return sink.getvalue().to_pybytes()


def test_compressed_buffers_are_refused() -> None:
    check_weight(pa, stream(None))
    with pytest.raises(InvalidRequest, match="compressed"):
        check_weight(pa, stream("lz4"))


def test_a_dictionary_counts_as_often_as_rows_name_its_values() -> None:
    column = pa.chunked_array([pa.array(["x" * 100] * 100).dictionary_encode()])
    check_unfolded(pa, "data", column, 10_000)
    with pytest.raises(BatchTooLarge, match="10000 bytes"):
        check_unfolded(pa, "data", column, 9_999)


def test_nested_columns_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="must hold strings"):
        check_unfolded(pa, "data", pa.chunked_array([pa.array([[1]])]), 100)
