"""Images in a snapshot: every cut and garbage are refused, and recovery does not start from them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.crash.world import SMALL
from topics.broker.durability.recovery import recover
from topics.model.errors import CorruptStorage
from topics.storage.snapshots.snapshot import write_snapshot
from topics.storage.snapshots.snapshot_format import decode_header
from topics.testing.disk.fake_disk import FakeDisk


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
