"""Checkpoints: what a snapshot holds is never ahead of the log that survives with it."""

import errno
from collections.abc import Callable

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from tests.crash.world import watched
from topics.broker.durability.checkpointer import IMAGES_PER_TURN
from topics.broker.log.apply import apply
from topics.broker.transactions.stages import commit, stage
from topics.engine.checkpoint_state import CheckpointState
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.errors import Unavailable
from topics.model.facts import RESTART, SOURCE_TRIM, Lost
from topics.model.limits import Limits
from topics.model.records.batch import Batch, decode_batch
from topics.model.records.match import TagMatch
from topics.runtime.backoff import MAX_DELAY_MS
from topics.testing.disk.fake_disk import FakeDisk

FIRST, LAST = "first", "last"


def batch(text: str) -> Batch:
    return decode_batch(b'{"records":[{"data":"%b"}]}' % text.encode(), Limits())


def broker_with_many_topics() -> BrokerUnderTest:
    """A server whose image of topic `last` is taken a turn later than that of `first`; all are of class disk and synced."""
    disk = FakeDisk()
    disk.make_directory("")
    under_test = BrokerUnderTest(watched(disk))
    for name in [FIRST, *[f"other-{number}" for number in range(IMAGES_PER_TURN)], LAST]:
        under_test.append(name, "before")
    under_test.broker.committer.sync()
    under_test.runtime.run()
    return under_test


def checkpoint_around(
    under_test: BrokerUnderTest, work: Callable[[], None], check: Callable[[BrokerUnderTest], None]
) -> None:
    """Take a checkpoint, do `work` between two turns of taking images, and `check` what a power cut at each step leaves."""
    snapshots = under_test.broker.checkpointer.snapshots_total
    under_test.broker.checkpointer.checkpoint()
    under_test.runtime.run()
    assert under_test.broker.checkpointer.snapshots_total == snapshots, "images are still being taken"
    work()
    under_test.runtime.turn()
    under_test.disk.watcher = lambda _: check(under_test.after_power_cut("none"))  # type: ignore[attr-defined]
    under_test.runtime.clock.advance(1)
    under_test.runtime.run()
    assert under_test.broker.checkpointer.snapshots_total == snapshots + 1
    check(under_test.after_power_cut("none"))


def test_commit_over_several_topics_during_a_checkpoint_is_whole_or_absent_after_a_power_cut() -> None:
    under_test = broker_with_many_topics()
    outcomes: list[object] = []
    request = CommitRequest([], [Write(FIRST, batch("new")), Write(LAST, batch("new"))], None, 0)

    def check(found: BrokerUnderTest) -> None:
        assert found.datas(FIRST) == found.datas(LAST)

    checkpoint_around(under_test, lambda: commit(under_test.broker, request, outcomes.append), check)
    assert len(outcomes) == 1, "the commit was acknowledged without a sync"


def test_stage_committed_during_a_checkpoint_is_not_there_beside_its_records_after_a_power_cut() -> None:
    under_test = broker_with_many_topics()
    under_test.ask(stage, under_test.broker, "s", under_test.broker.topic(LAST), [batch("staged")])
    request = CommitRequest(["s"], [], None, 0)

    def check(found: BrokerUnderTest) -> None:
        assert ("staged" in found.datas(LAST)) != ("s" in found.broker.state.stages.stages)

    checkpoint_around(under_test, lambda: commit(under_test.broker, request, lambda _: None), check)


def test_delete_flags_on_disk_are_never_ahead_of_the_log() -> None:
    under_test = broker_with_many_topics()
    under_test.append(LAST, *[{"data": "x" * 100, "tag": f"t{number}"} for number in range(10)])
    topic = under_test.broker.topic(LAST)
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.ask(under_test.broker.delete_records, LAST, None, TagMatch("t3", False), 0)
    under_test.broker.committer.sync()
    under_test.runtime.run()
    under_test.broker.checkpointer.checkpoint()
    under_test.runtime.run()
    under_test.runtime.clock.advance(1)
    under_test.runtime.turn()
    # The images are complete and the snapshot is not written: only flags can show this delete after a power cut.
    under_test.broker.append(FIRST, batch("written first"), lambda _: None)
    under_test.broker.delete_records(LAST, None, TagMatch("t5", False), 0, lambda _: None)
    under_test.runtime.turn()

    def check(found: BrokerUnderTest) -> None:
        assert len(found.datas(LAST)) == 10 or "written first" in found.datas(FIRST)

    under_test.disk.watcher = lambda _: check(under_test.after_power_cut("none"))  # type: ignore[attr-defined]
    under_test.runtime.run()
    assert under_test.broker.checkpointer.snapshots_total == 1
    check(under_test.after_power_cut("none"))


def test_checkpoint_is_taken_although_segments_are_sealed_all_the_time() -> None:
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SMALL, checkpoint_bytes=20_000))
    runtime = under_test.runtime
    for number in range(7):
        under_test.append(f"t{number}", "first")
    # Each record is a segment, and a new one is sealed before the last ones are done.
    for number in range(100):
        under_test.broker.append(f"t{number % 7}", batch("x" * 2000), lambda _: None)
        runtime.turn()
        while runtime.waiting_aside > 3:
            runtime.finish_one()
            runtime.turn()
        runtime.clock.advance(1)
    assert under_test.broker.checkpointer.snapshots_total >= 3, "200,000 bytes were written"


@pytest.mark.parametrize("reasons", [RESTART, SOURCE_TRIM])
def test_segments_closed_by_holes_count_as_hot_and_are_sealed(reasons: int) -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")
    partition = under_test.broker.topic("t").partitions[0]
    for _ in range(100):
        under_test.append("t", *["x" * 200] * 5)
        head = partition.head_seq
        apply(under_test.broker.state, Lost(partition.topic_id, 0, head + 1, head + 3, reasons))
        hot = [segment for segment in partition.segments if not segment.sealed]
        assert sum([segment.live_bytes for segment in hot]) <= SMALL.hot_bytes + 5 * 250
    assert len(under_test.datas("t")) == 500
    assert len(under_test.after_kill().datas("t")) == 500


def test_hot_segments_closed_by_holes_are_counted_after_a_restart() -> None:
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SMALL, hot_bytes=1 << 20))
    under_test.configure("t")
    partition = under_test.broker.topic("t").partitions[0]
    for _ in range(50):
        under_test.append("t", *["x" * 200] * 5)
        head = partition.head_seq
        under_test.ask(
            under_test.broker.commit_facts,
            [Lost(partition.topic_id, 0, head + 1, head + 3, 1)],
        )
    under_test = BrokerUnderTest(under_test.disk.after_kill())
    under_test.append("t", "one more")
    hot = [segment for segment in under_test.broker.topic("t").partitions[0].segments if not segment.sealed]
    assert sum([segment.live_bytes for segment in hot]) <= SMALL.hot_bytes


@pytest.mark.parametrize(("op", "path"), [("allocate", "wal/"), ("write_at", "snapshots/"), ("remove", "wal/")])
def test_failing_checkpoints_are_tried_less_and_less_often(op: str, path: str) -> None:
    under_test = BrokerUnderTest(
        settings=msgspec.structs.replace(SMALL, checkpoint_bytes=2000, wal_file_bytes=64 << 10)
    )
    under_test.append("t", "first")
    for _ in range(3):
        under_test.checkpoint()
    under_test.disk.fault = lambda _, called, at: errno.EIO if called == op and at.startswith(path) else None
    health = under_test.broker.health

    def failures() -> int:
        return max(health.failures_total.values())

    for _ in range(200):
        under_test.append("t", "x" * 100)
    assert 0 < failures() <= 3
    under_test.wait(10 * MAX_DELAY_MS)
    assert 10 <= failures() <= 20
    under_test.disk.fault = None
    under_test.wait(MAX_DELAY_MS)
    assert not health.degraded
    assert under_test.broker.checkpointer.snapshots_total > 3


def test_failing_seals_are_tried_less_and_less_often_and_memory_keeps_its_bound() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", "first")
    under_test.disk.fault = lambda _, called, at: (
        errno.EIO if called == "write_at" and at.startswith("segments/") else None
    )
    written = 0
    while not under_test.broker.sealer.full:
        under_test.append("t", "x" * 100)
        written += 1
    assert written * 100 <= 2 * SMALL.hot_bytes
    with pytest.raises(Unavailable, match="segments cannot be written"):
        under_test.append("t", "x" * 100)
    assert under_test.broker.health.failures_total["seal"] <= 3
    under_test.wait(10 * MAX_DELAY_MS)
    assert under_test.broker.health.failures_total["seal"] <= 60
    # Deletes are never refused for this, and make room.
    under_test.ask(under_test.broker.delete_records, "t", written // 2, None, 0)
    under_test.disk.fault = None
    under_test.wait(MAX_DELAY_MS)
    assert not under_test.broker.health.degraded
    under_test.append("t", "last")
    assert under_test.datas("t")[-1] == "last"


def test_writes_waiting_for_sealing_are_refused_when_it_fails() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", "first")
    outcomes: list[object] = []
    while not under_test.broker.sealer.full:
        under_test.broker.append("t", batch("x" * 500), lambda _: None)
        under_test.runtime.turn()
    under_test.broker.append("t", batch("waits"), outcomes.append)
    assert outcomes == []
    under_test.disk.fault = lambda _, called, at: (
        errno.EIO if called == "write_at" and at.startswith("segments/") else None
    )
    under_test.runtime.run()
    assert [getattr(each, "code", None) for each in outcomes] == ["storage_error"]


def test_files_of_dropped_segments_that_cannot_be_removed_are_removed_later() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *["x" * 100] * 30)
    topic = under_test.broker.topic("t")
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.runtime.run()
    assert under_test.disk.list("segments")
    under_test.disk.fault = lambda _, called, at: (
        errno.EIO if called == "remove" and at.startswith("segments/") else None
    )
    under_test.ask(under_test.broker.delete_topic, "t", if_empty=False)
    under_test.wait(1000)
    assert under_test.broker.health.is_raised("segment_removal")
    under_test.disk.fault = None
    under_test.wait(MAX_DELAY_MS)
    assert not under_test.broker.health.degraded
    assert under_test.disk.list("segments") == []


def test_server_that_stops_during_a_checkpoint_takes_a_last_one_that_has_what_was_written_meanwhile() -> None:
    under_test = broker_with_many_topics()
    checkpointer = under_test.broker.checkpointer
    checkpointer.checkpoint()
    under_test.runtime.run()
    under_test.append(FIRST, "meanwhile")
    stopped: list[bool] = []
    under_test.broker.stop(stopped.append)
    under_test.wait(50)
    assert (stopped, checkpointer.snapshots_total) == ([True], 2)
    checkpointer.checkpoint()
    assert checkpointer.state is CheckpointState.IDLE, "nothing is written behind the last one"
    again = under_test.after_power_cut()
    assert (again.recovered.ending, again.datas(FIRST)) == ("clean", ["before", "meanwhile"])


def test_last_checkpoint_follows_one_that_failed() -> None:
    under_test = broker_with_many_topics()
    failures = iter([errno.EIO])
    under_test.disk.fault = lambda _step, _op, path: next(failures, None) if "snapshots" in path else None
    under_test.broker.checkpointer.checkpoint()
    under_test.runtime.run()
    stopped: list[bool] = []
    under_test.broker.stop(stopped.append)
    under_test.wait(50)
    assert (next(failures, None), stopped, under_test.broker.checkpointer.snapshots_total) == (None, [True], 1)
    assert under_test.after_power_cut().recovered.ending == "clean"
