"""What a power cut and a kill may cost, case by case: the histories that once went wrong."""

import itertools
from collections.abc import Iterator

import msgspec
import pytest

from tests.crash.history import texts
from tests.crash.world import SMALL, World, read_all, verify
from topics.broker.checkpoint import IMAGES_PER_TURN
from topics.model.match import TagMatch
from topics.testing.disk import FakeDisk


def world_on(disk: FakeDisk | None = None, **settings: int) -> World:
    if disk is None:
        disk = FakeDisk()
        disk.make_directory("")
    return World(disk, msgspec.structs.replace(SMALL, **settings))


@pytest.fixture
def numbers() -> Iterator[int]:
    return itertools.count()


def test_records_deleted_from_the_front_before_sealing_stay_deleted(numbers: Iterator[int]) -> None:
    world = world_on(segment_bytes=1 << 20)
    world.append("a", texts(numbers, 3, tag="old"))
    world.append("a", texts(numbers, 3, tag="new"))
    world.run()
    world.delete("a", match=TagMatch("old", True))
    world.run()
    topic = world.broker.topic("a")
    world.broker.keeper.seal(topic, topic.partitions[0])
    world.run()
    assert world.stop()
    verify(world.fs, world.promises, world.clock, "clean")


def test_deletes_in_sealed_segments_survive_when_the_log_that_tells_of_them_is_trimmed(
    numbers: Iterator[int],
) -> None:
    """Also when a kill came between the delete and the snapshots, and a power cut after them."""
    world = world_on(segment_bytes=600)
    world.append("a", texts(numbers, 12, tag="s"), config='{"durability":"fsync"}')
    world.run()
    world.delete("a", match=TagMatch("s-1", False))
    world.checkpoint()
    world.run()
    for _ in range(3):
        world = verify(world.fs.after_kill(), world.promises, world.clock, "kill", world.settings)
        world.checkpoint()
        world.run()
        verify(world.fs.after_power_cut("none"), world.promises, world.clock, "power", world.settings)


def test_an_acknowledged_first_write_to_a_disk_topic_keeps_its_seqs(numbers: Iterator[int]) -> None:
    world = world_on()
    world.configure("a")
    world.run()
    world.append("a", texts(numbers, 2))
    world.append("a", texts(numbers, 2))
    world.run()
    verify(world.fs.after_power_cut("none"), world.promises, world.clock, "power")


def test_writes_after_a_clean_stop_are_not_taken_for_none_when_the_power_takes_them_all(
    numbers: Iterator[int],
) -> None:
    world = world_on()
    world.append("a", texts(numbers, 2))
    world.run()
    assert world.stop()
    world.boot()
    world.append("a", texts(numbers, 2))
    world.run()
    verify(world.fs.after_power_cut("none"), world.promises, world.clock, "power")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("shards", [1, 3])
def test_loss_by_a_power_cut_is_told_once_and_not_again_after_kills(
    numbers: Iterator[int], clean: bool, shards: int
) -> None:
    world = world_on(shards=shards)
    for name in ("a", "b", "c", "d"):
        world.append(name, texts(numbers, 2))
    world.run()
    if clean:
        assert world.stop()
    world = verify(world.fs.after_power_cut("all"), world.promises, world.clock, "power", world.settings)
    heads = {name: topic.partitions[0].head_seq for name, topic in world.broker.state.topics.items()}
    assert set(heads.values()) == ({2} if clean else {2 + SMALL.margin})
    for shards_now in (shards, 1, 2):
        settings = msgspec.structs.replace(world.settings, shards=shards_now)
        world = verify(world.fs.after_kill(), world.promises, world.clock, "kill", settings)
        assert heads == {name: topic.partitions[0].head_seq for name, topic in world.broker.state.topics.items()}
        world.append("b", texts(numbers, 1))
        world.run()
        heads["b"] += 1


def test_seqs_are_not_used_again_when_the_margin_was_larger_before(numbers: Iterator[int]) -> None:
    world = world_on(margin=50)
    world.append("a", texts(numbers, 1))
    world.run()
    for _ in range(20):
        world.append("a", texts(numbers, 1))
    world.run()
    smaller = msgspec.structs.replace(SMALL, margin=1)
    verify(world.fs.after_power_cut("none"), world.promises, world.clock, "power", smaller)


def test_ephemeral_seqs_are_bounded_by_the_margin_too(numbers: Iterator[int]) -> None:
    world = world_on(margin=4)
    world.append("a", texts(numbers, 1), config='{"durability":"ephemeral"}')
    world.run()
    for _ in range(30):
        world.append("a", texts(numbers, 1))
        world.runtime.turn()
        verify(world.fs.after_power_cut("none"), world.promises, world.clock, "power", world.settings)


def test_a_shard_that_comes_back_goes_on_behind_the_snapshots_cut(numbers: Iterator[int]) -> None:
    """Its old files are trimmed while it is not written; new ones must not be numbered below the cut."""
    world = world_on(shards=2)
    world.append("a", texts(numbers, 1))
    world.append("b", texts(numbers, 1))
    world.run()
    for shards in (1, 2, 1, 2):
        settings = msgspec.structs.replace(world.settings, shards=shards)
        world = verify(world.fs.after_kill(), world.promises, world.clock, "kill", settings)
        for _ in range(3):
            for name in ("a", "b"):
                world.append(name, texts(numbers, 1))
            world.checkpoint()
            world.run()
        for name in ("a", "b"):
            world.append(name, texts(numbers, 1))
        world.run()
    verify(world.fs.after_kill(), world.promises, world.clock, "kill", world.settings)


def test_a_topic_that_was_ephemeral_for_a_while_keeps_what_it_wrote_since(numbers: Iterator[int]) -> None:
    """A snapshot taken afterwards already holds it when the log tells of the changes once more."""
    world = world_on(checkpoint_bytes=1 << 20, wal_file_bytes=1 << 16)
    for number in range(IMAGES_PER_TURN):
        world.configure(f"other-{number}")
    world.append("a", texts(numbers, 3))
    world.run()
    # The log is cut; the image of the last topic waits for the next turn of the loop.
    world.checkpoint()
    world.run()
    assert world.broker.keeper.snapshots_total == 0
    world.configure("a", durability="ephemeral")
    world.append("a", texts(numbers, 3))
    world.configure("a", durability="disk")
    world.append("a", texts(numbers, 3))
    world.run()
    world.advance(1)
    assert world.broker.keeper.snapshots_total == 1
    after = verify(world.fs.after_kill(), world.promises, world.clock, "kill")
    assert {7, 8, 9} <= read_all(after.broker.topic("a").partitions[0]).texts.keys()


def test_what_a_restart_took_from_an_ephemeral_topic_does_not_come_back_when_it_becomes_durable(
    numbers: Iterator[int],
) -> None:
    world = world_on()
    world.append("a", texts(numbers, 3))
    world.configure("a", durability="ephemeral")
    world.run()
    world = verify(world.fs.after_kill(), world.promises, world.clock, "kill")
    assert world.broker.topic("a").count == 0
    world.configure("a", durability="fsync")
    world.append("a", texts(numbers, 1))
    world.run()
    after = verify(world.fs.after_kill(), world.promises, world.clock, "kill")
    assert list(read_all(after.broker.topic("a").partitions[0]).texts) == [4]


def test_a_stop_while_a_checkpoint_is_under_way_leaves_nothing_to_replay(numbers: Iterator[int]) -> None:
    world = world_on()
    world.append("a", texts(numbers, 2))
    world.run()
    world.checkpoint()
    world.append("a", texts(numbers, 2))
    world.runtime.turn()
    assert world.stop()
    after = verify(world.fs, world.promises, world.clock, "clean")
    assert after.recovered.frames == 0
    assert after.recovered.consequences == []


def test_a_hot_segment_from_a_snapshot_can_be_sealed(numbers: Iterator[int]) -> None:
    """Memory stays bounded: a segment behind which another one was begun is closed when it is restored."""
    world = world_on(segment_bytes=1 << 20, hot_bytes=1 << 20)
    world.append("a", texts(numbers, 2))
    world.run()
    world = verify(world.fs.after_power_cut("all"), world.promises, world.clock, "power", world.settings)
    world.append("a", texts(numbers, 2))
    world.run()
    assert len(world.broker.topic("a").partitions[0].segments) == 2
    assert world.stop()
    world.boot()
    topic = world.broker.topic("a")
    world.broker.keeper.seal(topic, topic.partitions[0])
    world.run()
    assert [segment.sealed for segment in topic.partitions[0].segments] == [True, True]


def test_a_log_file_whose_header_was_lost_is_taken_for_one_of_an_earlier_boot(numbers: Iterator[int]) -> None:
    """The header may go with the frames behind it while a later sector stays; their seqs are skipped all the same."""
    world = world_on()
    world.append("a", texts(numbers, 2))
    world.run()
    assert world.stop()
    world.boot()
    world.checkpoint()
    world.run()
    for _ in range(3):
        world.append("a", texts(numbers, 2, size=200))
        world.run()
    for seed in range(40):
        after = world.fs.after_power_cut("random", seed=seed)
        verify(after, world.promises, world.clock, "power")
