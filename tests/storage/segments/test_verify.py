"""Every byte of a segment is verified against what the log says about it."""

import pytest
from msgspec import structs

from topics.model.facts import SegmentInfo
from topics.model.records.page import make_page
from topics.storage.segments.segment_format import segment_base
from topics.storage.segments.segment_writer import write_segment
from topics.storage.segments.verify import segment_damage
from topics.testing.disk.fake_disk import FakeDisk

BASE = segment_base(1, 0, 7)
PAGE = make_page(7, 2, 1000, b"1\x002", None, None, b'"a"\0')


@pytest.fixture
def segment() -> tuple[FakeDisk, SegmentInfo]:
    disk = FakeDisk()
    disk.make_directory("")
    return disk, write_segment(disk, BASE, [PAGE], [(b'"a"', [7])])


def test_a_whole_segment_has_no_damage(segment: tuple[FakeDisk, SegmentInfo]) -> None:
    assert segment_damage(segment[0], BASE, segment[1]) == []


@pytest.mark.parametrize("suffix", [".arrow", ".tags"])
def test_a_changed_byte_is_reported_with_its_file(segment: tuple[FakeDisk, SegmentInfo], suffix: str) -> None:
    disk, info = segment
    place = len(disk.snapshot_tree()[BASE + suffix]) // 2
    byte = disk.snapshot_tree()[BASE + suffix][place]
    disk.open(BASE + suffix).write_at(place, [bytes([byte ^ 1])])
    assert {error.path for error in segment_damage(disk, BASE, info)} == {BASE + suffix}


def test_a_segment_of_another_size_than_the_log_says_is_damaged(segment: tuple[FakeDisk, SegmentInfo]) -> None:
    disk, info = segment
    (error,) = segment_damage(disk, BASE, structs.replace(info, size=info.size + 1))
    assert "log says" in str(error)


def test_an_index_that_disagrees_with_the_records_is_damaged() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    info = write_segment(disk, BASE, [PAGE], [(b'"b"', [7])])
    (error,) = segment_damage(disk, BASE, info)
    assert "tag index" in str(error)
