"""Zeros ahead of the log: written where small writes are each synced, never over a frame, and nothing depends on them."""

import errno
import itertools
from typing import Any

import msgspec
import pytest

from tests.broker.house import SMALL, House
from topics.broker.committer import CLOSE_BYTES, CLOSE_LEAST
from topics.testing.disk import FakeDisk, Fault, PowerCut, ShortWrite
from topics.testing.survival import Survive, Torn

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


def writes_for(house: House, *datas: Any, topic: str = "t") -> int:
    """How often the log was written for one append."""
    before = log_writes(house.disk)
    house.append(topic, *datas)
    return log_writes(house.disk) - before


def synced_house(disk: FakeDisk | None = None, appends: int = 0) -> House:
    house = House(disk)
    house.configure("t", durability="fsync")
    for number in range(appends):
        house.append("t", number)
    return house


def test_after_some_small_writes_that_were_each_synced_zeros_go_ahead_and_the_next_ones_need_none() -> None:
    house = synced_house()
    counts = [writes_for(house, number) for number in range(CLOSE_LEAST + 20)]
    # One of them wrote zeros behind its frame, up to the end of this small file, and those after it found them there.
    assert sorted(counts) == [1] * (CLOSE_LEAST + 19) + [2]
    assert counts.index(2) <= CLOSE_LEAST
    assert house.after_kill().datas("t") == list(range(CLOSE_LEAST + 20))


def test_each_new_file_of_the_log_gets_its_zeros_and_keeps_its_frames() -> None:
    house = synced_house()
    shard = house.broker.committer.lanes[0].shard
    texts = ["x" * 900 + str(number) for number in range(60)]
    for text in texts:
        house.append("t", text)
    assert shard.rotations >= 3
    assert len(fills(house.disk)) == shard.rotations + 1
    assert len(set(fills(house.disk))) == shard.rotations + 1
    assert house.after_kill().datas("t") == texts
    assert house.after_power_cut("none").datas("t") == texts


def test_nothing_goes_ahead_where_nobody_waits_for_syncs() -> None:
    house = House()
    for number in range(3 * CLOSE_LEAST):
        house.append("disk", number)
        house.wait(1500)
    assert house.broker.committer.syncs_total > 2 * CLOSE_LEAST
    assert not fills(house.disk)


def test_nothing_goes_ahead_of_syncs_that_are_of_much() -> None:
    house = House(
        settings=msgspec.structs.replace(SMALL, wal_file_bytes=4 << 20, segment_bytes=8 << 20, hot_bytes=8 << 20)
    )
    house.configure("t", durability="fsync")
    text = "x" * CLOSE_BYTES
    before = log_writes(house.disk)
    for _ in range(2 * CLOSE_LEAST):
        house.append("t", text)
    assert log_writes(house.disk) - before == 2 * CLOSE_LEAST


def test_a_sync_that_writes_zeros_as_well_and_takes_longer_does_not_make_the_disk_a_slow_one() -> None:
    house = synced_house(appends=CLOSE_LEAST - 1)
    lane = house.broker.committer.lanes[0]
    filled = False

    def slow_behind_zeros(_step: int, op: str, _path: str) -> None:
        nonlocal filled
        if op == "sync_data" and fills(house.disk) and not filled:
            filled = True
            house.runtime.clock.advance(3)

    house.disk.fault = slow_behind_zeros
    quick = lane.quick_syncs
    for _ in range(4):
        house.append("t", 0)
    assert filled
    assert lane.quick_syncs == quick + 3, "the slower one counts neither way"


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, ShortWrite(0), ShortWrite(1), ShortWrite(200)], ids=repr)
def test_zeros_that_cannot_be_written_cost_nobody_anything(fault: Fault) -> None:
    house = synced_house()
    count = 0

    def fail_zeros(_step: int, op: str, path: str) -> Fault | None:
        nonlocal count
        count += is_log_write(op, path)
        return fault if is_log_write(op, path) and count == 2 else None

    for number in range(CLOSE_LEAST + 10):
        count = 0
        house.disk.fault = fail_zeros
        house.append("t", number)
    house.disk.fault = None
    assert not house.broker.committer.read_only
    for life in (house.after_kill(), house.after_power_cut("none"), house.after_power_cut("all")):
        assert life.datas("t") == list(range(CLOSE_LEAST + 10))


def test_what_was_acknowledged_survives_a_power_cut_at_every_step_around_the_zeros() -> None:
    whole = disk_of()
    synced_house(whole, CLOSE_LEAST - 2)
    first = whole.steps
    synced_house(whole := disk_of(), CLOSE_LEAST + 6)
    ahead = 0
    for step in range(first, whole.steps):
        for survive, torn in WAYS:
            disk = disk_of(cut_at=step)
            acked: list[int] = []
            house = House(disk)
            try:
                house.configure("t", durability="fsync")
                for number in range(CLOSE_LEAST + 6):
                    house.append("t", number)
                    acked.append(number)
            except PowerCut:
                pass
            ahead += len(fills(disk))
            after = House(disk.after_power_cut(survive, torn=torn, seed=step))
            found = after.datas("t")
            assert found[: len(acked)] == acked, (step, survive, torn)
            assert found in (acked, [*acked, len(acked)]), (step, survive, torn)
            after.append("t", "next")
            assert after.after_power_cut("none").datas("t") == [*found, "next"], (step, survive, torn)
    assert ahead, "no power cut came behind the zeros"
