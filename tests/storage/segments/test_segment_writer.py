"""Writing segments on a disk that fails."""

import errno

import pytest

from topics.model.records.page import SEPARATOR, Page, page_size
from topics.storage.segments.segment_format import ROOT, segment_base, write_flags
from topics.storage.segments.segment_writer import write_segment
from topics.testing.disk.fake_disk import FakeDisk, ShortWrite

DATA = SEPARATOR.join([b'"%d"' % number for number in range(3)])


def page() -> Page:
    tags = SEPARATOR.join([b'"t"'] * 3)
    return Page(1, 3, 1000, DATA, None, None, tags, page_size(3, DATA, None, None, tags))


def empty_disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("")
    return disk


def steps_of_writing() -> list[tuple[int, str]]:
    disk = empty_disk()
    first = disk.steps
    write_segment(disk, segment_base(1, 0, 1), [page()], [(b"t", [1, 2, 3])])
    return [(step.step, step.op) for step in disk.trace if step.step > first]


@pytest.mark.parametrize(("step", "op"), steps_of_writing())
def test_failed_write_of_a_segment_leaves_no_file(step: int, op: str) -> None:
    disk = empty_disk()
    disk.fail_at = {step: ShortWrite(1, errno.ENOSPC) if op == "write_at" else errno.ENOSPC}
    with pytest.raises(OSError, match="No space left"):
        write_segment(disk, segment_base(1, 0, 1), [page()], [(b"t", [1, 2, 3])])
    assert disk.list(ROOT) == []


@pytest.mark.parametrize("op", ["write_at", "sync_data"])
def test_failed_write_of_flags_keeps_the_old_flags(op: str) -> None:
    disk = empty_disk()
    base = segment_base(1, 0, 1)
    write_segment(disk, base, [page()], [])
    before = disk.snapshot_tree()
    disk.fault = lambda _, called, __: errno.ENOSPC if called == op else None
    with pytest.raises(OSError, match="No space left"):
        write_flags(disk, base, 1, b"\1\0\0")
    assert disk.snapshot_tree() == before
