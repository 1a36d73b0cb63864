"""Packs: what is read is what was written, and damage is found and attributed to the records that it hits."""

import pytest

from topics.model.errors import CorruptStorage
from topics.model.facts import PackedInfo
from topics.model.records.page import Page, make_page
from topics.storage.fs import FileSystem
from topics.storage.segments.pack import Entry, PackFile, Place, encode_pages, pack_path, write_pack
from topics.testing.disk.fake_disk import FakeDisk, ShortWrite

FIRST = [make_page(1, 2, 1000, b'{"a":1}\0"b"', tags=b'"t"\0'), make_page(3, 1, 1005, b"3")]
SECOND = [make_page(40, 1, 2000, b'"another topic"', metas=b"{}", nodes=b'"n"')]


def entry(topic_id: int, partition: int, pages: list[Page]) -> Entry:
    return Entry(topic_id, partition, pages[0].first_seq, pages[-1].last_seq, encode_pages(pages))


def info(number: int, pages: list[Page], place: Place) -> PackedInfo:
    first, last = pages[0], pages[-1]
    size = sum(page.size for page in pages)
    tagged = any(page.tags is not None for page in pages)
    return PackedInfo(
        first.first_seq,
        last.last_seq,
        first.first_ts,
        last.last_ts,
        size,
        tagged,
        number,
        place.offset,
        place.length,
        place.checksum,
    )


def write_two(fs: FileSystem, number: int = 7) -> tuple[PackedInfo, PackedInfo]:
    places = write_pack(fs, number, [entry(5, 0, FIRST), entry(9, 3, SECOND)])
    return info(number, FIRST, places[0]), info(number, SECOND, places[1])


def overwrite(fs: FileSystem, path: str, offset: int, byte: int) -> None:
    file = fs.open(path)
    file.write_at(offset, [bytes([byte])])
    file.close()


def content(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def test_pages_are_read_as_they_were_written() -> None:
    disk = FakeDisk()
    first, second = write_two(disk)
    pack = PackFile(disk, 7)
    assert pack.pages(5, 0, first) == FIRST
    assert pack.pages(9, 3, second) == SECOND


def test_a_pack_lists_its_entries_without_help_of_log_or_snapshot() -> None:
    disk = FakeDisk()
    first, second = write_two(disk)
    found = [
        (offset, each.topic_id, each.partition, each.first_seq, each.last_seq)
        for offset, each in PackFile(disk, 7).entries()
    ]
    assert found == [(first.offset, 5, 0, 1, 3), (second.offset, 9, 3, 40, 40)]


def test_every_changed_byte_of_an_entry_is_noticed_and_attributed_to_its_records() -> None:
    disk = FakeDisk()
    first, second = write_two(disk)
    path = pack_path(7)
    original = content(disk, path)
    for offset in range(first.offset, second.offset):
        overwrite(disk, path, offset, original[offset] ^ 0x41)
        pack = PackFile(disk, 7)
        with pytest.raises(CorruptStorage) as caught:
            pack.pages(5, 0, first)
        assert (caught.value.path, caught.value.offset) == (path, first.offset)
        assert caught.value.records == (1, 3)
        assert "topic 5, partition 0" in caught.value.what
        assert pack.pages(9, 3, second) == SECOND
        overwrite(disk, path, offset, original[offset])


def test_every_changed_byte_of_the_header_is_noticed() -> None:
    disk = FakeDisk()
    first, _ = write_two(disk)
    path = pack_path(7)
    original = content(disk, path)
    for offset in range(first.offset):
        overwrite(disk, path, offset, original[offset] ^ 0x41)
        with pytest.raises(CorruptStorage):
            PackFile(disk, 7)
        overwrite(disk, path, offset, original[offset])


@pytest.mark.parametrize("length", [0, 10, 31, 60, 100])
def test_a_pack_that_was_cut_short_is_damaged_not_empty(length: int) -> None:
    disk = FakeDisk()
    _, second = write_two(disk)
    file = disk.open(pack_path(7))
    file.truncate(length)
    file.close()
    with pytest.raises(CorruptStorage):
        PackFile(disk, 7).pages(9, 3, second)


def test_a_missing_pack_is_damage() -> None:
    with pytest.raises(CorruptStorage, match="file is missing"):
        PackFile(FakeDisk(), 7)


def test_the_entry_of_another_topic_or_of_another_pack_is_not_taken_for_this_one() -> None:
    disk = FakeDisk()
    first, second = write_two(disk, 7)
    write_two(disk, 8)
    with pytest.raises(CorruptStorage):
        PackFile(disk, 7).pages(6, 0, first)
    with pytest.raises(CorruptStorage):
        PackFile(disk, 7).pages(9, 3, first)
    with pytest.raises(CorruptStorage):
        PackFile(disk, 8).pages(9, 3, second)
    disk.remove(pack_path(8))
    disk.rename(pack_path(7), pack_path(8))
    with pytest.raises(CorruptStorage, match="header"):
        PackFile(disk, 8)


def test_a_write_that_fails_at_any_step_leaves_no_file() -> None:
    disk = FakeDisk()
    write_two(disk)
    steps = [step.op for step in disk.trace]
    for number, op in enumerate(steps):
        for fault in [28, ShortWrite(50)] if op == "write_at" else [28]:
            if op in ("make_directory", "remove"):
                continue
            failing = FakeDisk(fail_at={number: fault})
            with pytest.raises(OSError, match=r"."):
                write_two(failing)
            # A failed sync of the directory comes last: the file is whole then, and left over.
            left = failing.list("segments")
            assert left == [] or op == "sync_directory"


def test_a_written_pack_survives_a_power_cut() -> None:
    disk = FakeDisk()
    disk.make_directory("segments")
    disk.sync_directory("")
    first, second = write_two(disk)
    after = disk.after_power_cut("none")
    assert PackFile(after, 7).pages(5, 0, first) == FIRST
    assert PackFile(after, 7).pages(9, 3, second) == SECOND


def test_a_left_over_pack_of_the_same_number_is_replaced() -> None:
    disk = FakeDisk()
    write_pack(disk, 7, [entry(1, 0, SECOND)] * 20)
    first, second = write_two(disk)
    assert PackFile(disk, 7).pages(5, 0, first) == FIRST
    assert PackFile(disk, 7).pages(9, 3, second) == SECOND
    assert len(list(PackFile(disk, 7).entries())) == 2
