"""Zeros ahead of the log: written where small writes are each synced, never over a frame, and nothing depends on them."""

import errno
import itertools
from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from topics.broker.log.sync_policy import MAX_SMALL_SYNC_BYTES, MIN_SMALL_SYNCS
from topics.testing.disk.fake_disk import FakeDisk, Fault, PowerCut, ShortWrite
from topics.testing.disk.survival import Survive, Torn

WAYS: list[tuple[Survive, Torn]] = list(itertools.product(("none", "all", "random"), ("prefix", "zero", "garbage")))


def disk_of(**options: Any) -> FakeDisk:
    disk = FakeDisk(sector_bytes=128, **options)
    disk.make_directory("")
    return disk


def is_log_write(op: str, path: str) -> bool:
    return op == "write_at" and path.startswith("wal/")


def log_writes(disk: FakeDisk) -> int:
    return sum([is_log_write(step.op, step.path) for step in disk.trace])


def fills(disk: FakeDisk) -> list[str]:
    """The files that were filled ahead, once for each time. No frame of these tests is as long."""
    return [step.path for step in disk.trace if is_log_write(step.op, step.path) and int(step.detail.split()[0]) > 2000]


def writes_for(under_test: BrokerUnderTest, *datas: Any, topic: str = "t") -> int:
    """How often the log was written for one append."""
    before = log_writes(under_test.disk)
    under_test.append(topic, *datas)
    return log_writes(under_test.disk) - before


def synced_broker(disk: FakeDisk | None = None, appends: int = 0) -> BrokerUnderTest:
    under_test = BrokerUnderTest(disk)
    under_test.configure("t", durability="fsync")
    for number in range(appends):
        under_test.append("t", number)
    return under_test


def test_after_some_small_writes_that_were_each_synced_zeros_go_ahead_and_the_next_ones_need_none() -> None:
    under_test = synced_broker()
    counts = [writes_for(under_test, number) for number in range(MIN_SMALL_SYNCS + 20)]
    # One of them wrote zeros behind its frame, up to the end of this small file, and those after it found them there.
    assert sorted(counts) == [1] * (MIN_SMALL_SYNCS + 19) + [2]
    assert counts.index(2) <= MIN_SMALL_SYNCS
    assert under_test.after_kill().datas("t") == list(range(MIN_SMALL_SYNCS + 20))


def test_each_new_file_of_the_log_gets_its_zeros_and_keeps_its_frames() -> None:
    under_test = synced_broker()
    wal = under_test.broker.committer.wal
    texts = ["x" * 900 + str(number) for number in range(60)]
    for text in texts:
        under_test.append("t", text)
    assert wal.rotations >= 3
    assert len(fills(under_test.disk)) == wal.rotations + 1
    assert len(set(fills(under_test.disk))) == wal.rotations + 1
    assert under_test.after_kill().datas("t") == texts
    assert under_test.after_power_cut("none").datas("t") == texts


def test_no_zeros_are_written_ahead_when_no_request_waits_for_syncs() -> None:
    under_test = BrokerUnderTest()
    for number in range(3 * MIN_SMALL_SYNCS):
        under_test.append("disk", number)
        under_test.wait(1500)
    assert under_test.broker.committer.syncs_total > 2 * MIN_SMALL_SYNCS
    assert not fills(under_test.disk)


def test_nothing_goes_ahead_of_syncs_that_are_of_much() -> None:
    under_test = BrokerUnderTest(
        settings=msgspec.structs.replace(SMALL, wal_file_bytes=4 << 20, segment_bytes=8 << 20, hot_bytes=8 << 20)
    )
    under_test.configure("t", durability="fsync")
    text = "x" * MAX_SMALL_SYNC_BYTES
    before = log_writes(under_test.disk)
    for _ in range(2 * MIN_SMALL_SYNCS):
        under_test.append("t", text)
    assert log_writes(under_test.disk) - before == 2 * MIN_SMALL_SYNCS


def test_a_sync_that_writes_zeros_as_well_and_takes_longer_does_not_make_the_disk_a_slow_one() -> None:
    under_test = synced_broker(appends=MIN_SMALL_SYNCS - 1)
    committer = under_test.broker.committer
    filled = False

    def slow_behind_zeros(_step: int, op: str, _path: str) -> None:
        nonlocal filled
        if op == "sync_data" and fills(under_test.disk) and not filled:
            filled = True
            under_test.runtime.clock.advance(3)

    under_test.disk.fault = slow_behind_zeros
    quick = committer.policy.fast_syncs
    for _ in range(4):
        under_test.append("t", 0)
    assert filled
    assert committer.policy.fast_syncs == quick + 3, "the slower one counts neither way"


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, ShortWrite(0), ShortWrite(1), ShortWrite(200)], ids=repr)
def test_failure_to_write_zeros_ahead_affects_no_write(fault: Fault) -> None:
    under_test = synced_broker()
    count = 0

    def fail_zeros(_step: int, op: str, path: str) -> Fault | None:
        nonlocal count
        count += is_log_write(op, path)
        return fault if is_log_write(op, path) and count == 2 else None

    for number in range(MIN_SMALL_SYNCS + 10):
        count = 0
        under_test.disk.fault = fail_zeros
        under_test.append("t", number)
    under_test.disk.fault = None
    assert not under_test.broker.committer.read_only
    for life in (under_test.after_kill(), under_test.after_power_cut("none"), under_test.after_power_cut("all")):
        assert life.datas("t") == list(range(MIN_SMALL_SYNCS + 10))


def test_what_was_acknowledged_survives_a_power_cut_at_every_step_around_the_zeros() -> None:
    whole = disk_of()
    synced_broker(whole, MIN_SMALL_SYNCS - 2)
    first = whole.steps
    synced_broker(whole := disk_of(), MIN_SMALL_SYNCS + 6)
    ahead = 0
    for step in range(first, whole.steps):
        for survive, torn in WAYS:
            disk = disk_of(cut_at=step)
            acked: list[int] = []
            under_test = BrokerUnderTest(disk)
            try:
                under_test.configure("t", durability="fsync")
                for number in range(MIN_SMALL_SYNCS + 6):
                    under_test.append("t", number)
                    acked.append(number)
            except PowerCut:
                pass
            ahead += len(fills(disk))
            after = BrokerUnderTest(disk.after_power_cut(survive, torn=torn, seed=step))
            found = after.datas("t")
            assert found[: len(acked)] == acked, (step, survive, torn)
            assert found in (acked, [*acked, len(acked)]), (step, survive, torn)
            after.append("t", "next")
            assert after.after_power_cut("none").datas("t") == [*found, "next"], (step, survive, torn)
    assert ahead, "no power cut came behind the zeros"
