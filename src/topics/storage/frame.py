"""Frames: how facts become bytes in the log, and how they are found again.

    frame := checksum u64 | length u32 | kind u8 | 0 u24 | lsn u64 | synced u64 | body | zeros up to a multiple of 8

`checksum` is XXH3-64 over all that follows it, padding left out; `length` is the body's. `lsn` numbers the frames of
all shards together and rises within a shard. `synced` is the largest lsn of this shard known to be safe on disk when
the frame was made: it is what tells a torn tail from corruption (see `wal.py`). All numbers are little-endian.

    kind 1, one append of one request:
        topic u64 | partition u32 | count u32 | first seq u64 | ts i64 |
        lengths of data, metas, nodes, tags u32 each (0xffffffff: column absent) | length of key u32 (likewise) | the five texts
    kind 2, a group of facts that are true together or not at all:
        MessagePack array of facts (`model/facts.py`)

One frame holds one whole commit, so a commit is atomic by construction. No file is touched here.
"""

from collections.abc import Iterator
from struct import Struct as Layout

import msgspec
from xxhash import xxh3_64_intdigest

from topics.model.facts import Appended, Fact
from topics.model.page import RECORD_OVERHEAD, Page, page_size

APPEND = 1
FACTS = 2

HEAD_BYTES = 32
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
_ROOM = bytes(4096)

_encode_facts = msgspec.msgpack.Encoder().encode
_decode_facts = msgspec.msgpack.Decoder(list[Fact]).decode


class Frame(msgspec.Struct, gc=False):
    """A whole frame found in a buffer: where it stands and what it says."""

    start: int
    end: int
    kind: int
    lsn: int
    synced: int
    body: memoryview


def encode_append(lsn: int, synced: int, topic_id: int, partition: int, page: Page, key: bytes | None) -> bytes:
    data, metas, nodes, tags = page.data, page.metas, page.nodes, page.tags
    tail = data
    lengths = _NO_LENGTHS
    if metas is not None or nodes is not None or tags is not None or key is not None:
        lengths = _LENGTHS.pack(_length(metas), _length(nodes), _length(tags), _length(key))
        tail = b"".join((data, metas or b"", nodes or b"", tags or b"", key or b""))
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


def encode_facts(lsn: int, synced: int, facts: list[Fact]) -> bytes:
    body = _encode_facts(facts)
    rest = _REST.pack(len(body), FACTS, lsn, synced) + body
    return _CHECKSUM.pack(xxh3_64_intdigest(rest)) + rest + _PADDING[len(body) & 7]


def decode(frame: Frame) -> list[Fact]:
    """The facts of a whole frame. Raises ValueError when its body is not what its kind promises."""
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
    """Whole frames one behind the other from `start`; ends before the first bytes that are not a whole frame."""
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
    """Whole frames anywhere at or behind `start` with an lsn above `above_lsn`: what stands behind a broken one."""
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
        elif not start & 4095 and view[start : start + 4096].tobytes() == _ROOM:
            # Preallocated room is most of a file that was torn early; word by word it takes seconds.
            start += 4096
        else:
            start += 8


def _length(text: bytes | None) -> int:
    return _NONE if text is None else len(text)
