"""Frames of the log: every cut, every changed bit and garbage are refused, and a whole frame decodes to its facts."""

import struct
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from topics.model.config import TopicConfig
from topics.model.facts import Appended, Deleted, Fact, Lost, Staged, StagedPart, TopicCreated, TopicDeleted
from topics.model.records.page import SEPARATOR, Page, fold, make_page
from topics.storage.log.frame import (
    HEAD_BYTES,
    decode,
    decode_append,
    encode_append,
    encode_append_pages,
    encode_facts,
    find_frames,
    frame_of,
    read_frames,
)

PAGE = make_page(7, 2, 1000, b'{"a":1}\0null', b'\0{"m":1}', b'"n"\0', b'\0"t"')
FACTS: list[Fact] = [
    TopicCreated(1, "a", TopicConfig(), 1, 5),
    Appended(1, 0, PAGE, "key"),
    Deleted(1, 0, b"\1" * 8),
    Lost(1, 0, 2, 3, 4),
]


def keyed_frame(lsn: int, synced: int, page: Page, key: bytes) -> bytes:
    """A frame with records and an idempotency key, as servers of version 1 wrote it."""
    texts = [page.data, page.metas, page.nodes, page.tags, key]
    lengths = [0xFFFFFFFF if text is None else len(text) for text in texts]
    body = struct.pack("<QIIQqIIIII", 1, 0, page.count, page.first_seq, page.times, *lengths)
    body += b"".join([text or b"" for text in texts])
    rest = struct.pack("<IBxxxQQ", len(body), 1, lsn, synced) + body
    return struct.pack("<Q", xxh3_64_intdigest(rest)) + rest + bytes(-len(body) % 8)


def frames_of(content: bytes) -> list[Any]:
    return list(read_frames(memoryview(content), 0))


def test_frames_decode_to_what_was_encoded() -> None:
    content = keyed_frame(5, 2, PAGE, b"key") + encode_facts(6, 5, FACTS)
    first, second = frames_of(content)
    assert (first.lsn, first.synced, decode(first)) == (5, 2, [Appended(1, 0, PAGE, "key")])
    assert (second.lsn, second.synced, decode(second)) == (6, 5, FACTS)
    assert second.end == len(content)


def test_a_frame_is_found_only_when_it_is_complete() -> None:
    whole = encode_append(5, 2, 1, 0, PAGE)
    body_ends = len(whole.rstrip(b"\0"))
    for cut in range(len(whole)):
        assert len(frames_of(whole[:cut])) == (1 if cut >= body_ends else 0) or whole[cut:].strip(b"\0") == b""
        assert frames_of(whole[:cut] + bytes(len(whole) - cut)) == [] or whole[cut:].strip(b"\0") == b""


def test_a_frame_with_any_bit_changed_is_not_found() -> None:
    whole = encode_facts(6, 5, FACTS)
    length = 32 + int.from_bytes(whole[8:12], "little")
    for bit in range(length * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        assert frames_of(bytes(changed)) == []
        assert list(find_frames(memoryview(changed), 0, 0)) == []


@given(st.binary(max_size=300), st.integers(0, 64))
def test_garbage_is_not_a_frame(garbage: bytes, start: int) -> None:
    assert frames_of(garbage) == []
    assert list(find_frames(memoryview(garbage), start, 0)) == []


@pytest.mark.parametrize("place", [8, 4088, 4096, 4104, 8192, 12280, 20000])
def test_a_frame_after_unused_space_is_found_at_any_offset(place: int) -> None:
    whole = encode_facts(6, 5, FACTS)
    view = memoryview(bytes(place) + whole + bytes(20_000) + whole)
    assert [frame.start for frame in find_frames(view, 0, 0)] == [place, place + len(whole) + 20_000]


def test_unused_space_of_a_whole_file_is_skipped_quickly() -> None:
    view = memoryview(bytes(64 << 20) + b"torn" * 50)
    started = time.process_time()
    assert list(find_frames(view, 96, 0)) == []
    assert time.process_time() - started < 3


@given(st.binary(max_size=200))
def test_an_append_body_of_garbage_is_a_value_error_or_an_append(garbage: bytes) -> None:
    try:
        assert isinstance(decode_append(memoryview(garbage)), Appended)
    except ValueError:
        pass


def test_every_cut_of_an_append_body_is_refused() -> None:
    (frame,) = frames_of(keyed_frame(5, 2, PAGE, b"key"))
    for cut in range(len(frame.body)):
        with pytest.raises(ValueError, match="append frame"):
            decode_append(frame.body[:cut])


def some_pages(count: int, length: int, rich: bool) -> list[Page]:
    pages = []
    for number in range(count):
        first = number * 3 + 1
        data = SEPARATOR.join([b'"%b"' % (bytes([97 + each]) * length) for each in range(3)])
        metas = b'{"a":1}\0\0' if rich and number % 2 else None
        tags = b'"t"\0\0"u"' if rich else None
        pages.append(make_page(first, 3, 5, data, metas, None, tags))
    return pages


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_an_append_in_pages_is_the_frame_of_all_of_them_together(count: int, rich: bool) -> None:
    pages = some_pages(count, 10, rich)
    whole = fold(pages)
    one_time = make_page(1, whole.count, 5, whole.data, whole.metas, whole.nodes, whole.tags)
    assert b"".join(encode_append_pages(7, 3, 9, 2, pages)) == encode_append(7, 3, 9, 2, one_time)


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize(("count", "length"), [(3, 10), (40, 30_000), (400, 2000)])
def test_large_facts_in_parts_are_the_frame_of_them_in_one_piece(count: int, length: int, rich: bool) -> None:
    pages = some_pages(count, length, rich)
    facts: list[Fact] = [
        *FACTS,
        *[Appended(1, 2, page, None if number else "key") for number, page in enumerate(pages)],
        Staged("stage", 3, [StagedPart(1, page) for page in pages], 77),
        TopicDeleted(5),
    ]
    frame = frame_of(7, 3, facts)
    assert isinstance(frame, list) is (count * length > 1000)
    text = frame if isinstance(frame, bytes) else b"".join(frame)
    body = msgspec.msgpack.encode(facts)
    assert text[HEAD_BYTES : HEAD_BYTES + len(body)] == body
    (found,) = frames_of(text)
    assert decode(found) == facts
    assert len(text) % 8 == 0
