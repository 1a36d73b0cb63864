"""Frames: the encoding of facts in the log.

    frame := checksum u64 | length u32 | kind u8 | 0 u24 | lsn u64 | synced u64 | body | zeros up to a multiple of 8

`checksum` is XXH3-64 over all that follows it except the padding; `length` is the length of the body. `lsn` numbers the
frames, ascending. `synced` is the largest lsn of the log (of its shard, in logs of earlier versions) that was durable when
the frame was made: it distinguishes a torn tail from corruption (see `wal.py`). All numbers are little-endian.

    kind 1, records of one partition; a key only in logs of version 1:
        topic u64 | partition u32 | count u32 | first seq u64 | ts i64 |
        lengths of data, metas, nodes, tags, key u32 each (0xffffffff: absent) | the five texts
    kind 2, a group of facts that are applied together or not at all:
        MessagePack array of facts (`model/facts.py`)

One frame holds one whole commit, so a commit is atomic by construction. This module does no I/O.
"""

from collections.abc import Iterator, Sequence
from struct import Struct as Layout

import msgspec
from xxhash import xxh3_64, xxh3_64_intdigest

from topics.model.facts import Appended, Fact, Staged
from topics.model.records.page import RECORD_OVERHEAD, SEPARATOR, Page, page_size

APPEND = 1
FACTS = 2

HEAD_BYTES = 32
# A larger frame is written in parts: to copy 64 MiB takes 25 ms.
MAX_JOINED_BYTES = 1 << 20
_CHECKSUM = Layout("<Q")
_HEAD = Layout("<QIBxxxQQ")
_REST = Layout("<IBxxxQQ")
_APPEND = Layout("<IBxxxQQQIIQqI16s")
_LENGTHS = Layout("<IIII")
_APPEND_BODY = Layout("<QIIQqIIIII")
_APPEND_BODY_BYTES = _APPEND_BODY.size
_NONE = 0xFFFFFFFF
_NO_LENGTHS = _LENGTHS.pack(_NONE, _NONE, _NONE, _NONE)
_PADDING = [b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0"]
_EMPTY_BLOCK = bytes(4096)

_encode = _encode_facts = msgspec.msgpack.Encoder().encode
# Shorter columns are copied; longer ones have a length of four bytes in MessagePack.
_SMALL_BYTES = 64 << 10
_decode_facts = msgspec.msgpack.Decoder(list[Fact]).decode


class Frame(msgspec.Struct, gc=False):
    """A valid frame found in a buffer: its position and its fields."""

    start: int
    end: int
    kind: int
    lsn: int
    synced: int
    body: memoryview


def encode_append(lsn: int, synced: int, topic_id: int, partition: int, page: Page) -> bytes:
    data, metas, nodes, tags = page.data, page.metas, page.nodes, page.tags
    tail = data
    lengths = _NO_LENGTHS
    if metas is not None or nodes is not None or tags is not None:
        lengths = _LENGTHS.pack(_length(metas), _length(nodes), _length(tags), _NONE)
        tail = b"".join((data, metas or b"", nodes or b"", tags or b""))
    length = _APPEND_BODY_BYTES + len(tail)
    head = _APPEND.pack(
        length,
        APPEND,
        lsn,
        synced,
        topic_id,
        partition,
        page.count,
        page.first_seq,
        page.times,
        len(data),
        lengths,
    )
    rest = head + tail
    return b"".join((_CHECKSUM.pack(xxh3_64_intdigest(rest)), rest, _PADDING[length & 7]))


def encode_append_pages(lsn: int, synced: int, topic_id: int, partition: int, pages: Sequence[Page]) -> list[bytes]:
    """What `encode_append` makes of one page with the records of all, in parts that are not put together.

    The pages follow each other and have one time.
    """
    parts: list[bytes] = []
    lengths: list[int] = []
    for columns in (
        [page.data for page in pages],
        _column_parts([(page.metas, page.count) for page in pages]),
        _column_parts([(page.nodes, page.count) for page in pages]),
        _column_parts([(page.tags, page.count) for page in pages]),
    ):
        lengths.append(_NONE if columns is None else sum(map(len, columns)) + len(columns) - 1)
        for column in columns or ():
            parts += (column, SEPARATOR)
        if columns:
            parts.pop()
    length = _APPEND_BODY_BYTES + sum(map(len, parts))
    first = pages[0]
    head = _APPEND.pack(
        length,
        APPEND,
        lsn,
        synced,
        topic_id,
        partition,
        sum([page.count for page in pages]),
        first.first_seq,
        first.times,
        lengths[0],
        _LENGTHS.pack(*lengths[1:], _NONE),
    )
    digest = xxh3_64(head)
    for part in parts:
        digest.update(part)
    return [_CHECKSUM.pack(digest.intdigest()) + head, *parts, _PADDING[length & 7]]


def _column_parts(columns: list[tuple[bytes | None, int]]) -> list[bytes] | None:
    if all([text is None for text, _ in columns]):
        return None
    return [SEPARATOR * (count - 1) if text is None else text for text, count in columns]


def frame_of(lsn: int, synced: int, facts: list[Fact]) -> bytes | list[bytes]:
    """The frame of these facts; a large one in parts that are not put together."""
    if sum(map(_page_bytes, facts)) > MAX_JOINED_BYTES:
        parts = [_array_head(len(facts))]
        for fact in facts:
            _add_fact(parts, fact)
        length = sum(map(len, parts))
        head = _REST.pack(length, FACTS, lsn, synced)
        digest = xxh3_64(head)
        for part in parts:
            digest.update(part)
        return [_CHECKSUM.pack(digest.intdigest()) + head, *parts, _PADDING[length & 7]]
    body = _encode_facts(facts)
    rest = _REST.pack(len(body), FACTS, lsn, synced) + body
    return _CHECKSUM.pack(xxh3_64_intdigest(rest)) + rest + _PADDING[len(body) & 7]


def _page_bytes(fact: Fact) -> int:
    """About what the pages in a fact take."""
    if isinstance(fact, Appended):
        return fact.page.size
    return sum([part.page.size for part in fact.parts]) if isinstance(fact, Staged) else 0


# MessagePack of facts with large pages, as `_encode_facts` makes it, with the columns of the pages left where they are.


def _add_fact(parts: list[bytes], fact: Fact) -> None:
    if not isinstance(fact, Appended | Staged):
        parts.append(_encode(fact))
        return
    fields = fact.__struct_fields__
    parts += (_array_head(1 + len(fields)), _encode(fact.__struct_config__.tag))
    for name in fields:
        value = getattr(fact, name)
        if isinstance(value, Page):
            _add_page(parts, value)
        elif name == "parts":
            parts.append(_array_head(len(value)))
            for each in value:
                parts += (_array_head(2), _encode(each.partition))
                _add_page(parts, each.page)
        else:
            parts.append(_encode(value))


def _add_page(parts: list[bytes], page: Page) -> None:
    parts += (_array_head(8), *map(_encode, (page.first_seq, page.count, page.times)))
    for column in (page.data, page.metas, page.nodes, page.tags):
        if column is None or len(column) < _SMALL_BYTES:
            parts.append(_encode(column))
        else:
            parts += (b"\xc6" + len(column).to_bytes(4, "big"), column)
    parts.append(_encode(page.size))


def _array_head(length: int) -> bytes:
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xdd" + length.to_bytes(4, "big")


def encode_facts(lsn: int, synced: int, facts: list[Fact]) -> bytes:
    """The frame of these facts, in one piece."""
    frame = frame_of(lsn, synced, facts)
    return frame if isinstance(frame, bytes) else b"".join(frame)


def decode(frame: Frame) -> list[Fact]:
    """Return the facts of a frame. Raises ValueError if the body does not match the kind."""
    if frame.kind == APPEND:
        return [decode_append(frame.body)]
    if frame.kind == FACTS:
        try:
            return _decode_facts(frame.body)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error
    raise ValueError(f"unknown frame kind {frame.kind}")


def decode_append(body: memoryview) -> Appended:
    if len(body) < _APPEND_BODY_BYTES:
        raise ValueError("append frame is too short")
    topic_id, partition, count, first_seq, ts, data_length, metas_length, nodes_length, tags_length, key_length = (
        _APPEND_BODY.unpack_from(body)
    )
    start = _APPEND_BODY_BYTES + data_length
    data = bytes(body[_APPEND_BODY_BYTES:start])
    if metas_length == nodes_length == tags_length == key_length == _NONE:
        if start != len(body):
            raise ValueError("append frame has texts of the wrong length")
        size = data_length + 1 + count * (RECORD_OVERHEAD - 1)
        return Appended(topic_id, partition, Page(first_seq, count, ts, data, None, None, None, size))
    texts: list[bytes | None] = []
    for length in (metas_length, nodes_length, tags_length, key_length):
        if length == _NONE:
            texts.append(None)
        else:
            texts.append(bytes(body[start : start + length]))
            start += length
    if start != len(body):
        raise ValueError("append frame has texts of the wrong length")
    metas, nodes, tags, key = texts
    page = Page(first_seq, count, ts, data, metas, nodes, tags, page_size(count, data, metas, nodes, tags))
    return Appended(topic_id, partition, page, None if key is None else key.decode())


def read_frames(view: memoryview, start: int) -> Iterator[Frame]:
    """Yield consecutive valid frames from `start`; end before the first bytes that are not a valid frame."""
    unpack = _HEAD.unpack_from
    size = len(view)
    while start + HEAD_BYTES <= size:
        checksum, length, kind, lsn, synced = unpack(view, start)
        end = start + HEAD_BYTES + length
        if not length or end > size or xxh3_64_intdigest(view[start + 8 : end]) != checksum:
            return
        padded = (end + 7) & ~7
        yield Frame(start, padded, kind, lsn, synced, view[start + HEAD_BYTES : end])
        start = padded


def find_frames(view: memoryview, start: int, above_lsn: int) -> Iterator[Frame]:
    """Yield valid frames with an lsn above `above_lsn` at any position from `start` on: the frames after a broken one."""
    unpack = _HEAD.unpack_from
    size = len(view)
    start = (start + 7) & ~7
    while start + HEAD_BYTES <= size:
        checksum, length, kind, lsn, synced = unpack(view, start)
        end = start + HEAD_BYTES + length
        if (
            checksum
            and length
            and kind in (APPEND, FACTS)
            and lsn > above_lsn
            and end <= size
            and xxh3_64_intdigest(view[start + 8 : end]) == checksum
        ):
            padded = (end + 7) & ~7
            yield Frame(start, padded, kind, lsn, synced, view[start + HEAD_BYTES : end])
            start = padded
        elif not start & 4095 and view[start : start + 4096].tobytes() == _EMPTY_BLOCK:
            # Skip unused preallocated blocks: scanning them word by word takes seconds.
            start += 4096
        else:
            start += 8


def _length(text: bytes | None) -> int:
    return _NONE if text is None else len(text)
