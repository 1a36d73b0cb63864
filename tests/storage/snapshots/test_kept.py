"""What only the older of the two kept snapshots needs."""

from topics.storage.log.frame import encode_facts
from topics.storage.log.wal import LOG, WalWriter, file_numbers
from topics.storage.log.wal import ROOT as WAL
from topics.storage.snapshots.kept import remove_spare, spare_bytes
from topics.storage.snapshots.snapshot import ROOT as SNAPSHOTS
from topics.storage.snapshots.snapshot import snapshot_numbers, write_snapshot
from topics.testing.disk.fake_disk import FakeDisk

FILE_BYTES = 1000


def test_spare_files_are_measured_and_removed_and_the_others_stay() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    wal = WalWriter(disk, last_lsn=0, next_file=1, file_bytes=FILE_BYTES)
    for lsn in range(1, 5):
        wal.rotate()
        wal.write([encode_facts(lsn, 0, [])], lsn)
    wal.sync()
    disk.make_directory(SNAPSHOTS)
    for path in ("", WAL):
        disk.sync_directory(path)
    older_bytes = write_snapshot(disk, 1, [b"older"])
    write_snapshot(disk, 2, [b"newest"])
    assert spare_bytes(disk, 2, {LOG: 3}) == older_bytes + 2 * FILE_BYTES
    remove_spare(disk, 2, {LOG: 3})
    assert snapshot_numbers(disk) == [2]
    assert file_numbers(disk, LOG) == [3, 4]
    assert spare_bytes(disk, 2, {LOG: 3}) == 0
    after = disk.after_power_cut("none")
    assert (snapshot_numbers(after), file_numbers(after, LOG)) == ([2], [3, 4])


def test_nothing_is_spare_without_a_snapshot() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    wal = WalWriter(disk, last_lsn=0, next_file=1, file_bytes=FILE_BYTES)
    wal.rotate()
    assert spare_bytes(disk, 0, {}) == 0
    remove_spare(disk, 0, {})
    assert file_numbers(disk, LOG) == [1]
