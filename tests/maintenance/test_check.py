"""The check reads everything, changes nothing, and tells a torn tail from damage."""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.maintenance.check import check
from topics.testing.disk.fake_disk import FakeDisk


def written() -> FakeDisk:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="fsync")
    under_test.append("t", *range(10))
    return under_test.disk.after_kill()


def last_log_file(disk: FakeDisk) -> str:
    return max(path for path in disk.snapshot_tree() if path.endswith(".wal"))


def test_a_directory_without_damage_is_whole_and_is_not_changed() -> None:
    disk = written()
    before = disk.snapshot_tree()
    report = check(disk)
    assert (report.status, report.topics, report.records, report.starts) == (0, 1, 10, True)
    assert disk.snapshot_tree() == before
    assert [*report.lines()][-1] == "Everything is whole."


def test_bytes_after_the_last_frame_are_a_torn_tail() -> None:
    disk = written()
    path = last_log_file(disk)
    end = len(disk.snapshot_tree()[path].rstrip(b"\0"))
    disk.open(path).write_at((end + 15) // 8 * 8, [b"torn"])
    report = check(disk)
    assert (report.status, [finding.kind for finding in report.findings]) == (1, ["torn"])


def test_a_changed_byte_before_a_synced_frame_is_damage() -> None:
    disk = written()
    path = last_log_file(disk)
    place = disk.snapshot_tree()[path].index(b'"t"') if b'"t"' in disk.snapshot_tree()[path] else 120
    byte = disk.snapshot_tree()[path][place]
    disk.open(path).write_at(place, [bytes([byte ^ 1])])
    report = check(disk)
    assert (report.status, report.starts) == (2, False)
    assert report.findings[0].path == path
