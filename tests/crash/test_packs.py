"""The power goes out, or the process is killed, at every step of writing, merging and cleaning packs.

One scripted run with many small topics is watched step by step, as in `test_every_cut.py`.
"""

import itertools
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings

from tests.crash.history import texts
from tests.crash.test_power_cuts import at, empty_disk, ways
from tests.crash.world import SMALL, World, compare, dump, verify, watched
from topics.maintenance.check import check
from topics.model.records.match import TagMatch

LONG = hypothesis_settings().max_examples >= 1000

# Every record leaves memory in a pack; packs are merged three by three.
PACKING = msgspec.structs.replace(
    SMALL,
    segment_bytes=100_000,
    hot_bytes=900,
    checkpoint_bytes=4000,
    min_segment_bytes=2000,
    pack_bytes=2000,
    pack_merge_count=3,
)
NAMES = [f"topic-{number}" for number in range(12)]


def play_small_topics(world: World) -> None:
    """Create, pack, pack again and merge, delete in packs, expire, drop topics, take snapshots, restart."""
    numbers = itertools.count()
    for number, name in enumerate(NAMES):
        config = ['{"durability":"fsync"}', '{"durability":"memory"}', '{"cap_records":5}', '{"ttl_ms":9000}'][
            number % 4
        ]
        world.append(name, texts(numbers, 2, tag="a", rich=number % 2 == 0), config=config)
        world.run()
    for _ in range(3):
        write_everywhere(world, numbers)
    world.checkpoint()
    world.run()
    delete_some(world)
    write_everywhere(world, numbers)
    for name in NAMES[6:9]:
        world.delete_topic(name)
    world.run()
    world.advance(1)
    world.checkpoint()
    world.run()
    world.advance(3000)
    assert world.stop()
    world.boot()
    write_everywhere(world, numbers)
    world.checkpoint()
    world.run()
    world.advance(3000)
    delete_some(world)
    world.advance(4000)
    write_everywhere(world, numbers)


def write_everywhere(world: World, numbers: Iterator[int]) -> None:
    for name in NAMES:
        if world.promises.named(name) is not None:
            world.append(name, texts(numbers, 1, tag="b", size=30))
            world.run()


def delete_some(world: World) -> None:
    """While a pack is being written, where one is."""
    for name in NAMES[:3]:
        world.delete(name, match=TagMatch("a-", True))
    for name in NAMES[3:6]:
        world.delete(name, before_seq=3)
    world.runtime.turn()
    world.delete(NAMES[0], match=TagMatch("b-1", False))
    world.run()


def test_the_run_meets_everything_it_is_meant_to_meet() -> None:
    disk = empty_disk()
    world = World(disk, PACKING)
    play_small_topics(world)
    compare(world.broker, world.promises, "clean")
    assert world.errors == []
    assert world.broker.sealer.seals_total == 0
    assert world.broker.state.next_pack > 12
    assert len([step for step in disk.trace if step.op == "rename" and step.path.startswith("snapshots/")]) > 4
    assert not any(world.broker.health.failures_total.values())
    removed = [step.path for step in disk.trace if step.op == "remove" and step.path.endswith(".pack")]
    assert len(removed) > 5
    assert check(disk.after_kill()).status == 0


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_packed_records_survive_a_power_cut_at_any_step() -> None:
    disk = watched(empty_disk())
    world = World(disk, PACKING)

    def cut(step: int) -> None:
        for survive, seed, torn in ways(step):
            with at(f"step {step}, {survive} survives, seed {seed}, torn {torn}"):
                after = disk.after_power_cut(survive, torn=torn, seed=seed)
                again = verify(after, world.promises, world.clock, "power", PACKING)
                if step % 10 == 0:
                    twice = verify(after.after_kill(), again.promises, again.clock, "kill", PACKING)
                    assert dump(twice.broker) == dump(again.broker)

    disk.watcher = cut
    play_small_topics(world)
    assert disk.steps > 300


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_packed_records_survive_a_kill_at_any_step() -> None:
    disk = watched(empty_disk())
    world = World(disk, PACKING)

    def kill(step: int) -> None:
        with at(f"step {step}"):
            after = disk.after_kill()
            verify(after, world.promises, world.clock, "kill", PACKING)
            if step % 10 == 0:
                assert check(disk.after_kill()).status < 2

    disk.watcher = kill
    play_small_topics(world)


@pytest.mark.slow
@pytest.mark.timeout(0 if LONG else 120)
def test_the_older_snapshot_and_the_log_replace_a_damaged_newest_snapshot() -> None:
    """Packs that only the older one names are still there."""
    disk = watched(empty_disk())
    world = World(disk, PACKING)
    tried = 0

    def kill(step: int) -> None:
        nonlocal tried
        if step % (1 if LONG else 7):
            return
        after = disk.after_kill()
        names = after.list("snapshots")
        if len([name for name in names if name.endswith(".snap")]) < 2:
            return
        tried += 1
        file = after.open(f"snapshots/{max(name for name in names if name.endswith('.snap'))}")
        file.write_at(file.size() - 1, [b"?"])
        file.close()
        with at(f"step {step}"):
            verify(after, world.promises, world.clock, "kill", PACKING)

    disk.watcher = kill
    play_small_topics(world)
    assert tried > 10
