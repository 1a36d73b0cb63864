"""Arrow bodies that are much larger when they are unpacked are refused before that.

Three things let a small body become a large one: compressed buffers, a dictionary whose long value many rows name, and views
that point to the same bytes. Compressed bodies are refused (what is to be compressed is compressed as a whole, with
`Content-Encoding`); for the other two the unpacked bytes are counted.
"""

import struct
from typing import Any

from topics.model.errors import BatchTooLarge, InvalidRequest

# Of Arrow's flatbuffers: the fields of a Message, a DictionaryBatch and a RecordBatch that lead to its compression.
_MESSAGE_HEADER_TYPE, _MESSAGE_HEADER = 1, 2
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_DICTIONARY_DATA = 1
_RECORD_BATCH_COMPRESSION = 3


def check_weight(pa: Any, body: bytes) -> None:
    """Raises InvalidRequest when buffers of the stream are compressed. Damage is left for the reader to find."""
    source = pa.BufferReader(body)
    while True:
        try:
            message = pa.ipc.read_message(source)
        except (EOFError, pa.ArrowException, OSError):
            return
        try:
            compressed = _is_compressed(bytes(message.metadata))
        except struct.error:
            raise InvalidRequest("the body is not an Arrow stream: a message has no header") from None
        if compressed:
            raise InvalidRequest(
                "the Arrow stream has compressed buffers; send it without, and with Content-Encoding: gzip if it is to be small"
            )


def check_unfolded(pa: Any, name: str, column: Any, max_bytes: int) -> None:
    """Raise BatchTooLarge if the strings of a chunked column take more than the limit when they are written out."""
    import pyarrow.compute as pc

    kind = column.type
    total = 0
    if pa.types.is_dictionary(kind):
        values = pa.chunked_array([chunk.dictionary for chunk in column.chunks], kind.value_type)
        check_unfolded(pa, name, values, max_bytes)
        for chunk in column.chunks:
            lengths = pc.binary_length(chunk.dictionary.cast(pa.string()))
            total += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        for chunk in column.chunks:
            # A view is 16 bytes, and begins with the length of its string.
            views = memoryview(chunk.buffers()[1]).cast("b").cast("i")
            total += sum(views[chunk.offset * 4 : (chunk.offset + len(chunk)) * 4 : 4])
    elif pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind):
        raise InvalidRequest(f"column {name} must hold strings")
    if total > max_bytes:
        raise BatchTooLarge(
            f"column {name} has {total} bytes when it is expanded; at most {max_bytes}",
            detail={"max": max_bytes, "bytes": total},
        )


def _is_compressed(message: bytes) -> bool:
    root = _number(message, "<I", 0)
    kind = _number(message, "<B", _field(message, root, _MESSAGE_HEADER_TYPE))
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return False
    batch = _table(message, _field(message, root, _MESSAGE_HEADER))
    if kind == _DICTIONARY_BATCH:
        batch = _table(message, _field(message, batch, _DICTIONARY_DATA))
    return bool(_field(message, batch, _RECORD_BATCH_COMPRESSION))


def _field(message: bytes, table: int, field: int) -> int:
    """The position of a field in a table; 0 when it is absent."""
    names = table - _number(message, "<i", table)
    entry = 4 + 2 * field
    if entry + 2 > _number(message, "<H", names):
        return 0
    distance = _number(message, "<H", names + entry)
    return table + distance if distance else 0


def _table(message: bytes, reference: int) -> int:
    return reference + _number(message, "<I", reference)


def _number(message: bytes, form: str, place: int) -> int:
    if place < 0:
        raise struct.error
    number: int = struct.unpack_from(form, message, place)[0]
    return number
