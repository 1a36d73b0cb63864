"""A segment may be written under the name of one that was dropped before; the log may still name the old one."""

import itertools

from topics.model.records.page import Page
from topics.storage.segments.segment_format import read_flags, remove_segment, segment_base, segment_exists, write_flags
from topics.storage.segments.segment_writer import write_segment
from topics.testing.disk.fake_disk import FakeDisk, PowerCut


def page(count: int) -> Page:
    return Page(1, count, 5, b"\0".join([b"1"] * count), None, None, None, 9 * count)


def test_a_partial_segment_with_an_old_name_is_not_read_as_complete() -> None:
    base = segment_base(1, 0, 1)
    for step in itertools.count():
        disk = FakeDisk(step)
        disk.make_directory("")
        old = write_segment(disk, base, [page(3)], [])
        write_flags(disk, base, 1, b"\1\1\1")
        remove_segment(disk, base)
        disk.cut_at = disk.steps + step
        try:
            write_segment(disk, base, [page(3)], [])
        except PowerCut:
            pass
        for found in (disk.after_kill(), *[disk.after_power_cut(seed=seed) for seed in range(5)]):
            if segment_exists(found, base, old):
                assert len(read_flags(found, base, old)) == 3, disk.trace
        if not disk.was_cut:
            break
    assert step > 5
