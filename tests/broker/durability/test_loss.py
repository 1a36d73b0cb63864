"""What a power cut and a kill may cost, case by case: the histories that once went wrong."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.crash.history import texts
from tests.crash.world import SMALL, Text, World, read_all, verify
from topics.broker.durability.checkpointer import IMAGES_PER_TURN
from topics.broker.transactions.stages import commit, stage
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.errors import TopicsError
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.testing.disk.fake_disk import FakeDisk


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
    world.broker.sealer.seal(topic, topic.partitions[0])
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
def test_loss_by_a_power_cut_is_reported_once_and_not_again_after_kills(numbers: Iterator[int], clean: bool) -> None:
    world = world_on()
    for name in ("a", "b", "c", "d"):
        world.append(name, texts(numbers, 2))
    world.run()
    if clean:
        assert world.stop()
    world = verify(world.fs.after_power_cut("all"), world.promises, world.clock, "power", world.settings)
    heads = {name: topic.partitions[0].head_seq for name, topic in world.broker.state.topics.items()}
    assert set(heads.values()) == ({2} if clean else {2 + SMALL.margin})
    for _ in range(3):
        world = verify(world.fs.after_kill(), world.promises, world.clock, "kill", world.settings)
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
    assert world.broker.checkpointer.snapshots_total == 0
    world.configure("a", durability="ephemeral")
    world.append("a", texts(numbers, 3))
    world.configure("a", durability="disk")
    world.append("a", texts(numbers, 3))
    world.run()
    world.advance(1)
    assert world.broker.checkpointer.snapshots_total == 1
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
    assert after.recovered.restart_facts == []


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
    world.broker.sealer.seal(topic, topic.partitions[0])
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


def test_nothing_of_an_ephemeral_topic_s_records_ever_reaches_the_disk(numbers: Iterator[int]) -> None:
    """Not with the log, a stage, a seal, a snapshot or the last snapshot of a clean stop; nor after another class was asked for."""
    disk = FakeDisk()
    disk.make_directory("")
    world = world_on(disk, segment_bytes=300)
    world.configure("a", durability="ephemeral")
    world.run()
    needle = [Text(b'"needle"', b'"needle-tag"', b'"needle-node"', b'{"needle":"meta"}')] * 3
    broker = world.broker

    def nothing_there() -> None:
        assert not [path for path, content in disk.snapshot_tree().items() if b"needle" in content]

    for _ in range(4):
        world.append("a", needle, key="needle-key")
        world.append("a", needle)
        world.run()
    broker.sealer.seal(broker.topic("a"), broker.topic("a").partitions[0])
    nothing_there()
    staged: list[Any] = []
    batch = decode_batch(b'{"records":[%b]}' % needle[0].body(), world.broker.limits)
    stage(broker, "kept", broker.topic("a"), [batch], staged.append)
    stage(broker, "committed", broker.topic("a"), [batch], staged.append)
    world.run()
    commit(broker, CommitRequest(["committed"], [Write("a", batch)], "p", 1), staged.append)
    world.run()
    assert [isinstance(each, TopicsError) for each in staged] == [False] * 3
    nothing_there()
    world.checkpoint()
    world.run()
    nothing_there()
    world.configure("a", durability="disk")
    world.run()
    world.configure("a", durability="ephemeral")
    world.run()
    assert world.stop()
    assert broker.checkpointer.snapshots_total > 1
    nothing_there()
