"""Directories with a log of several shards, as earlier versions wrote them, open and keep what was acknowledged."""

import itertools
from typing import Literal

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from tests.crash.history import STAGES, play, texts
from tests.crash.shards import spread_log
from tests.crash.world import SMALL, World, compare, dump, verify, watched
from topics.broker.routers.routers import WantedRouter
from topics.broker.transactions.stages import commit
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.records.batch import decode_batch
from topics.storage.log.wal import file_numbers
from topics.testing.disk.fake_disk import FakeDisk

SHARDS = 3


def played(stages: int) -> World:
    disk = FakeDisk(sector_bytes=128)
    disk.make_directory("")
    world = World(disk, SMALL)
    play(world, stages)
    return world


def with_files(disk: FakeDisk) -> list[int]:
    return [shard for shard in range(SHARDS) if file_numbers(disk, shard)]


@pytest.mark.parametrize("shards", [2, 4])
def test_frames_of_all_shards_are_replayed_in_the_order_of_their_lsn(shards: int) -> None:
    for stages in range(1, len(STAGES) + 1):
        world = played(stages)
        single = verify(world.fs.after_kill(), world.promises, world.clock, "kill")  # type: ignore[attr-defined]
        disk = spread_log(world.fs.after_kill(), shards)  # type: ignore[attr-defined]
        sharded = verify(disk, world.promises, world.clock, "kill")
        assert dump(sharded.broker) == dump(single.broker), f"after {stages} stages"


@pytest.mark.parametrize("shards", [2, 3, 4])
def test_facts_about_topics_of_several_shards_are_replayed_in_the_order_of_their_lsn(shards: int) -> None:
    """Commits over several topics, dead letters, copies and aliases: what one shard says depends on what another says."""
    under_test = BrokerUnderTest()
    broker = under_test.broker
    for name in ("one", "two", "three"):
        under_test.configure(name)
    under_test.configure("jobs", type="queue", max_deliveries=1, dead_letter="two", lease_ms=100)
    under_test.ask(broker.routers.put, WantedRouter("r", "one", "copies"))
    for number in range(4):
        for name in ("one", "two", "three", "jobs"):
            under_test.append(name, f"{name} {number}")
        writes = [
            Write(name, decode_batch(b'{"records":[{"data":"commit %d"}]}' % number, under_test.limits))
            for name in (*("three", "one", "two")[number % 3 :], "one")
        ]
        under_test.ask(commit, broker, CommitRequest([], writes, "p", number))
        for _ in range(2):
            broker.queues.claim("jobs", 0, "w", 1, 100, 0, lambda _: None)
            under_test.wait(200)
        for name in ("three", "one", "two", "three"):
            under_test.ask(broker.set_alias, name, "alias")
            under_test.ask(broker.set_alias, name, None)
        under_test.ask(broker.set_alias, ("one", "two")[number % 2], "alias")
        under_test.ask(broker.set_alias, ("one", "two")[number % 2], None if number < 3 else "alias")
        under_test.ask(broker.delete_records, "one", number, None, 0)
    again = BrokerUnderTest(spread_log(under_test.disk.after_kill(), shards))
    for name in ("one", "two", "three", "jobs", "copies"):
        assert again.read(name) == under_test.read(name), name
        assert [(hole.first, hole.last) for hole in again.broker.topic(name).partitions[0].holes] == []
    assert again.broker.state.aliases["alias"].name == "two"
    assert again.broker.state.stages.fences.keys() == {"p"}


@pytest.mark.parametrize("end", ["power", "kill"])
def test_a_directory_with_several_shards_keeps_what_was_acknowledged_when_its_first_server_ends_at_any_step(
    end: Literal["power", "kill"],
) -> None:
    """From the first start until the files of the old shards are removed."""
    before = played(10)
    disk = watched(spread_log(before.fs.after_kill(), SHARDS))  # type: ignore[attr-defined]
    assert with_files(disk) == [0, 1, 2]
    promises, clock = before.promises, before.clock

    def ended(step: int) -> None:
        if step % 3:
            return
        try:
            after = disk.after_kill() if end == "kill" else disk.after_power_cut("random", seed=step)
            heads = verify(after, promises, clock, end)
            # What follows from the end follows once, not with every start.
            again = verify(after.after_kill(), heads.promises, clock, "kill")
            assert dump(again.broker) == dump(heads.broker)
        except BaseException as error:
            error.add_note(f"at step {step}")
            raise

    disk.watcher = ended
    world = verify(disk, promises, clock, "kill")
    promises, clock = world.promises, world.clock
    numbers = itertools.count(1_000_000)
    for _ in range(2):
        for name in list(world.broker.state.topics):
            world.append(name, texts(numbers, 2))
        world.run()
        world.checkpoint()
        world.run()
    compare(world.broker, world.promises, "clean")
    assert with_files(disk) == [0]


def test_files_of_old_shards_stay_as_long_as_a_kept_snapshot_needs_them() -> None:
    before = played(10)
    disk = spread_log(before.fs.after_kill(), SHARDS)  # type: ignore[attr-defined]
    world = verify(disk, before.promises, before.clock, "kill")
    world.checkpoint()
    world.run()
    assert with_files(disk) == [0, 1, 2]
    world.checkpoint()
    world.run()
    assert with_files(disk) == [0]
