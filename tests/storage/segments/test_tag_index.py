"""The tag index of a segment and a scan of its rows find the same records."""

import pytest

from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.records.match import TagMatch
from topics.model.records.page import make_page
from topics.storage.segments.segment_format import segment_base
from topics.storage.segments.segment_reader import SegmentFile
from topics.storage.segments.segment_writer import write_segment
from topics.storage.segments.tag_index import TagScan, find_tagged
from topics.testing.disk.fake_disk import FakeDisk

BASE = segment_base(1, 0, 7)
PAGE = make_page(7, 4, 1000, b"1\x002\x003\x004", None, None, b'"a"\0"ab"\0\0"a"')


@pytest.fixture
def segment() -> tuple[FakeDisk, SegmentInfo]:
    disk = FakeDisk()
    disk.make_directory("")
    return disk, write_segment(disk, BASE, [PAGE], [(b'"a"', [7, 10]), (b'"ab"', [8])])


@pytest.mark.parametrize(
    ("match", "bound", "seqs"),
    [
        (TagMatch("a", False), 99, [7, 10]),
        (TagMatch("a", False), 10, [7]),
        (TagMatch("a", True), 99, [7, 8, 10]),
        (TagMatch("", True), 99, [7, 8, 10]),
        (TagMatch("z", True), 99, []),
    ],
)
def test_index_and_scan_agree(
    segment: tuple[FakeDisk, SegmentInfo], match: TagMatch, bound: int, seqs: list[int]
) -> None:
    disk, info = segment
    bound = min(bound, info.last_seq + 1)
    indexed, scanned = bytearray(4), bytearray(4)
    for _ in find_tagged(disk, BASE, info, match, bound, indexed):
        pass
    for _ in TagScan(SegmentFile(disk, BASE, info)).find(match, info.first_seq, bound, scanned):
        pass
    assert [7 + place for place, byte in enumerate(indexed) if byte] == seqs
    assert scanned == indexed


def test_a_damaged_index_is_not_used(segment: tuple[FakeDisk, SegmentInfo]) -> None:
    disk, info = segment
    disk.open(BASE + ".tags").write_at(20, [b"\xff"])
    with pytest.raises(CorruptStorage, match="tag index"):
        next(find_tagged(disk, BASE, info, TagMatch("a", False), 99, bytearray(4)))
