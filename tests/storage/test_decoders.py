"""Decoders are given every cut of what an encoder made, and garbage: they wait, refuse, or say what is wrong."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.world import SMALL
from topics.broker.durability.recovery import recover
from topics.broker.durability.snapshot_image import HeaderImage, TopicImage, decode_header, decode_section, encode_image
from topics.model.batch import Batch, decode_batch
from topics.model.config import TopicConfig
from topics.model.errors import CorruptStorage, InvalidRequest
from topics.model.facts import (
    Appended,
    Deleted,
    Fact,
    Lost,
    SegmentInfo,
    Staged,
    StagedPart,
    TopicCreated,
    TopicDeleted,
)
from topics.model.limits import Limits
from topics.model.page import SEPARATOR, Page, fold, make_page
from topics.storage import wal
from topics.storage.frame import (
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
from topics.storage.segment_format import read_flags, segment_base, write_flags
from topics.storage.segment_reader import SegmentFile
from topics.storage.segment_writer import write_segment
from topics.storage.snapshot import read_snapshot, write_snapshot
from topics.testing.disk import FakeDisk
from topics.testing.disk import FakeDisk as Disk

PAGE = make_page(7, 2, 1000, b'{"a":1}\0null', b'\0{"m":1}', b'"n"\0', b'\0"t"')
FACTS: list[Fact] = [
    TopicCreated(1, "a", TopicConfig(), 1, 5),
    Appended(1, 0, PAGE, "key"),
    Deleted(1, 0, b"\1" * 8),
    Lost(1, 0, 2, 3, 4),
]


def frames_of(content: bytes) -> list[Any]:
    return list(read_frames(memoryview(content), 0))


def test_frames_decode_to_what_was_encoded() -> None:
    content = encode_append(5, 2, 1, 0, PAGE, b"key") + encode_facts(6, 5, FACTS)
    first, second = frames_of(content)
    assert (first.lsn, first.synced, decode(first)) == (5, 2, [Appended(1, 0, PAGE, "key")])
    assert (second.lsn, second.synced, decode(second)) == (6, 5, FACTS)
    assert second.end == len(content)


def test_a_frame_is_found_only_when_it_is_complete() -> None:
    whole = encode_append(5, 2, 1, 0, PAGE, None)
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
    (frame,) = frames_of(encode_append(5, 2, 1, 0, PAGE, b"key"))
    for cut in range(len(frame.body)):
        with pytest.raises(ValueError, match="append frame"):
            decode_append(frame.body[:cut])


HEADER = wal.Header(3, 17, 99, 98, "boot", 1 << 20)


def test_a_log_header_decodes_and_every_cut_or_change_is_refused() -> None:
    whole = wal.encode_header(HEADER)
    assert len(whole) == wal.HEADER_BYTES
    assert wal.decode_header(memoryview(whole)) == HEADER
    for cut in range(len(whole)):
        assert wal.decode_header(memoryview(whole[:cut])) is None
    for bit in range(len(whole.rstrip(b"\0")) * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        assert wal.decode_header(memoryview(changed)) is None


@given(st.binary(max_size=120))
def test_garbage_is_not_a_log_header(garbage: bytes) -> None:
    assert wal.decode_header(memoryview(garbage)) is None


def disk_with(path: str, content: bytes) -> Disk:
    disk = FakeDisk()
    disk.make_directory(path.rsplit("/", 1)[0])
    disk.open(path, create=True).write_at(0, [content])
    return disk


def test_every_cut_and_every_change_of_a_snapshot_is_noticed() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    write_snapshot(disk, 4, [b"header", b"topic one", b"topic two"])
    whole = disk.snapshot_tree()["snapshots/000000000004.snap"]
    assert [bytes(section) for section in read_snapshot(disk, 4)] == [b"header", b"topic one", b"topic two"]
    spoiled = [whole[:cut] for cut in range(len(whole))] + [whole + b"\0"]
    for place in [*range(12), *range(16, len(whole))]:
        spoiled.append(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
    for content in spoiled:
        with pytest.raises(CorruptStorage, match=r"snapshots/000000000004.snap at byte \d+"):
            read_snapshot(disk_with("snapshots/000000000004.snap", content), 4)


@given(st.binary(max_size=200))
def test_garbage_is_not_a_snapshot(garbage: bytes) -> None:
    with pytest.raises(CorruptStorage):
        read_snapshot(disk_with("snapshots/000000000001.snap", garbage), 1)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=3))
def test_a_valid_snapshot_with_garbage_sections_is_corrupt(sections: list[bytes]) -> None:
    disk = FakeDisk()
    disk.make_directory("")
    write_snapshot(disk, 1, sections)
    try:
        header = decode_header(sections[0]) if sections else None
    except msgspec.MsgspecError:
        header = None
    if header is None:
        with pytest.raises(CorruptStorage):
            recover(disk, SMALL)


def test_every_cut_of_an_image_is_refused() -> None:
    header = encode_image(HeaderImage({0: 5}, 9, 2, 1000, True, lsns={0: 8}))
    topic = encode_image(TopicImage(1, "a", 1, [], TopicConfig()))
    for cut in range(len(header)):
        with pytest.raises(msgspec.MsgspecError):
            decode_header(header[:cut])
    for cut in range(len(topic)):
        with pytest.raises(msgspec.MsgspecError):
            decode_section(topic[:cut])
    assert decode_header(header).lsns == {0: 8}


@given(st.binary(max_size=200))
def test_an_image_of_garbage_is_refused_or_an_image(garbage: bytes) -> None:
    for decoder in (decode_header, decode_section):
        try:
            decoder(garbage)
        except msgspec.MsgspecError:
            pass


BASE = segment_base(1, 0, 7)


@pytest.fixture
def segment() -> tuple[Disk, SegmentInfo]:
    disk = FakeDisk()
    disk.make_directory("")
    return disk, write_segment(disk, BASE, [PAGE], [(b'"t"', [8])])


def test_a_segment_reads_back_what_was_written(segment: tuple[Disk, SegmentInfo]) -> None:
    disk, info = segment
    file = SegmentFile(disk, BASE, info)
    file.verify()
    page = file.page(7, 256)
    assert (page.data, page.metas, page.nodes, page.tags) == (PAGE.data, PAGE.metas, PAGE.nodes, PAGE.tags)
    assert file.tags() == [(b'"t"', [8])]
    assert read_flags(disk, BASE, info) == bytearray(2)


@pytest.mark.parametrize("suffix", [".arrow", ".tags"])
def test_every_change_and_every_cut_of_a_segment_file_is_noticed(
    segment: tuple[Disk, SegmentInfo], suffix: str
) -> None:
    disk, info = segment
    path = BASE + suffix
    whole = disk.snapshot_tree()[path]
    file = disk.open(path)
    for place in range(len(whole)):
        file.write_at(place, [bytes([whole[place] ^ 0x04])])
        with pytest.raises(CorruptStorage):
            SegmentFile(disk, BASE, info).verify()
        file.write_at(place, [whole[place : place + 1]])
    SegmentFile(disk, BASE, info).verify()
    for cut in range(len(whole) - 1, 0, -7):
        file.truncate(cut)
        with pytest.raises(CorruptStorage):
            SegmentFile(disk, BASE, info).verify()


def test_every_change_and_every_cut_of_the_delete_flags_is_noticed(segment: tuple[Disk, SegmentInfo]) -> None:
    disk, info = segment
    write_flags(disk, BASE, info.first_seq, b"\0\1")
    assert read_flags(disk, BASE, info) == bytearray(b"\0\1")
    whole = disk.snapshot_tree()[BASE + ".dead"]
    file = disk.open(BASE + ".dead")
    for bit in range(len(whole) * 8):
        file.write_at(bit // 8, [bytes([whole[bit // 8] ^ (1 << bit % 8)])])
        with pytest.raises(CorruptStorage):
            read_flags(disk, BASE, info)
        file.write_at(bit // 8, [whole[bit // 8 : bit // 8 + 1]])
    for cut in range(len(whole) - 1, -1, -1):
        file.truncate(cut)
        with pytest.raises(CorruptStorage):
            read_flags(disk, BASE, info)


BODY = json.dumps(
    {
        "records": [{"data": {"x": [1.5, None, "é\u0000"]}, "tag": "t", "node": "n", "meta": {"k": 1}}, {"data": 2}],
        "node": "batch",
        "idempotency_key": "k",
        "create": True,
        "config": {"durability": "fsync", "cap_records": 5},
    },
    ensure_ascii=False,
).encode()


def test_every_cut_of_an_append_request_is_an_invalid_request() -> None:
    assert decode_batch(BODY, Limits()).count == 2
    for cut in range(len(BODY)):
        with pytest.raises(InvalidRequest):
            decode_batch(BODY[:cut], Limits())


@given(st.binary(max_size=100))
def test_garbage_is_an_invalid_request(garbage: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_batch(garbage, Limits())


@given(st.integers(0, len(BODY) - 1), st.binary(max_size=4))
def test_a_changed_append_request_is_invalid_or_a_valid_batch(place: int, spoilt: bytes) -> None:
    try:
        batch = decode_batch(BODY[:place] + spoilt + BODY[place + 1 :], Limits())
    except InvalidRequest:
        return
    assert isinstance(batch, Batch)
    texts = batch.data.split(b"\0")
    assert len(texts) == batch.count
    for text in texts:
        json.loads(text)


# Large frames


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
@pytest.mark.parametrize("key", [None, b"key"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_an_append_in_pages_is_the_frame_of_all_of_them_together(count: int, key: bytes | None, rich: bool) -> None:
    pages = some_pages(count, 10, rich)
    whole = fold(pages)
    one_time = make_page(1, whole.count, 5, whole.data, whole.metas, whole.nodes, whole.tags)
    assert b"".join(encode_append_pages(7, 3, 9, 2, pages, key)) == encode_append(7, 3, 9, 2, one_time, key)


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
