"""A segment holds what its pages held, however its batches were put together."""

import json
from random import Random

import pytest

from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.records.page import Page, make_page, page_size, page_times
from topics.storage.segments import segment_writer
from topics.storage.segments.segment_format import read_flags, segment_base, write_flags
from topics.storage.segments.segment_reader import SegmentFile
from topics.storage.segments.segment_writer import write_segment
from topics.testing.disk.fake_disk import FakeDisk

Record = tuple[str, str | None, str | None, str | None]


def record(number: int, chance: Random) -> Record:
    """Data, node, tag and meta, as JSON texts."""
    data = json.dumps("ü" * chance.choice([0, 1, 40, 300]) + str(number), ensure_ascii=False)
    node = json.dumps(chance.choice(["a", "b c", 'with "quotes"'])) if chance.random() < 0.3 else None
    tag = json.dumps(f"t{number % 7}") if chance.random() < 0.3 else None
    meta = json.dumps({"n": number}) if chance.random() < 0.2 else None
    return data, node, tag, meta


def column(texts: list[str | None]) -> bytes | None:
    return b"\0".join([(text or "").encode() for text in texts]) if any(texts) else None


def page_of(first_seq: int, ts: int, records: list[Record]) -> Page:
    datas, nodes, tags, metas = (list(each) for each in zip(*records, strict=True))
    data = column(datas) or b""
    more = column(metas), column(nodes), column(tags)
    return Page(first_seq, len(records), ts, data, *more, page_size(len(records), data, *more))


def contents(pages: list[Page]) -> list[tuple[int | bytes, ...]]:
    rows: list[tuple[int | bytes, ...]] = []
    for page in pages:
        columns = [
            [b""] * page.count if text is None else text.split(b"\0")
            for text in (page.data, page.nodes, page.tags, page.metas)
        ]
        times = page_times(page)
        for row in range(page.count):
            rows.append((page.first_seq + row, times[row], *[each[row] for each in columns]))
    return rows


@pytest.mark.parametrize("conversion_bytes", [1, 3000, 20_000, 1 << 30])
@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_found_again_whatever_was_made_into_columns_together(
    conversion_bytes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "BATCH_RECORDS", 50)
    monkeypatch.setattr(segment_writer, "CONVERSION_BYTES", conversion_bytes)
    # Small enough that some parts of a batch are handed over at once and others are put together first.
    monkeypatch.setattr(segment_writer, "SMALL_BYTES", 1 << 10)
    chance = Random(seed)
    pages: list[Page] = []
    seq = 1000
    while seq < 1700:
        count = chance.choice([1, 1, 3, 20, 60, 130])
        pages.append(page_of(seq, 5_000 + seq // 100, [record(seq + each, chance) for each in range(count)]))
        seq += count
    disk = FakeDisk(seed)
    disk.make_directory("")
    base = segment_base(1, 0, 1000)
    info = write_segment(disk, base, pages, [])
    file = SegmentFile(disk, base, info)
    file.verify()
    assert len(file.batches) > 5
    assert sum([batch.rows for batch in file.batches]) == seq - 1000
    # The bytes a checksum covers are those of its own batch: the file begins with the first, and Arrow's messages begin so.
    content = disk.open(base + ".arrow").map()
    assert file.batches[0].start == 0
    assert {bytes(content[batch.start : batch.start + 4]) for batch in file.batches[1:]} == {b"\xff\xff\xff\xff"}
    read: list[Page] = []
    at = 1000
    while at < seq:
        read.append(file.page(at, 64))
        at = read[-1].last_seq + 1
    assert contents(read) == contents(pages)
    assert info.size == sum([page.size for page in read])


PAGE = make_page(7, 2, 1000, b'{"a":1}\0null', b'\0{"m":1}', b'"n"\0', b'\0"t"')
BASE = segment_base(1, 0, 7)


@pytest.fixture
def segment() -> tuple[FakeDisk, SegmentInfo]:
    disk = FakeDisk()
    disk.make_directory("")
    return disk, write_segment(disk, BASE, [PAGE], [(b'"t"', [8])])


def test_a_segment_reads_back_what_was_written(segment: tuple[FakeDisk, SegmentInfo]) -> None:
    disk, info = segment
    file = SegmentFile(disk, BASE, info)
    file.verify()
    page = file.page(7, 256)
    assert (page.data, page.metas, page.nodes, page.tags) == (PAGE.data, PAGE.metas, PAGE.nodes, PAGE.tags)
    assert file.tags() == [(b'"t"', [8])]
    assert read_flags(disk, BASE, info) == bytearray(2)


@pytest.mark.parametrize("suffix", [".arrow", ".tags"])
def test_every_change_and_every_cut_of_a_segment_file_is_noticed(
    segment: tuple[FakeDisk, SegmentInfo], suffix: str
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


def test_every_change_and_every_cut_of_the_delete_flags_is_noticed(segment: tuple[FakeDisk, SegmentInfo]) -> None:
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
