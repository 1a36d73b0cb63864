"""Writes to the log that run in the thread, because they are large: order, failures, and the end of the machine meanwhile."""

import errno
from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from tests.crash.world import watched
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import Batch, decode_batch
from topics.model.records.large_batch import decode_large
from topics.model.steps import finish
from topics.testing.disk.fake_disk import FakeDisk, ShortWrite
from topics.testing.disk.survival import Survive

# Every write of more than one record runs in the thread.
SETTINGS = msgspec.structs.replace(SMALL, max_loop_write_bytes=150)
LIMITS = Limits()
LARGE = [f"{number}-" + "x" * 1000 for number in range(3000)]


def large_batch() -> Batch:
    """A batch that stays in pages, each of which is a part of the frame."""
    body = msgspec.json.encode({"records": [{"data": data} for data in LARGE]})
    batch = finish(decode_large(body, LIMITS))
    assert batch.pages is not None
    return batch


def batch(*datas: Any) -> Batch:
    return decode_batch(msgspec.json.encode({"records": [{"data": data} for data in datas]}), LIMITS)


class Run:
    """A broker with a topic, and what its requests were answered, in order."""

    def __init__(self, durability: str = "disk", under_test: BrokerUnderTest | None = None) -> None:
        self.under_test = under_test or BrokerUnderTest(settings=SETTINGS)
        self.under_test.configure("t", durability=durability)
        self.under_test.append("t", 0)
        self.answers: list[tuple[str, Any]] = []

    def append(self, name: str, records: Batch) -> None:
        self.append_to("t", name, records)

    def append_to(self, topic: str, name: str, records: Batch) -> None:
        def reply(outcome: Any) -> None:
            self.answers.append((name, outcome.code if isinstance(outcome, TopicsError) else outcome.first_seq))

        self.under_test.broker.append(topic, records, reply)

    def begin_large(self) -> None:
        """A write is queued for the thread."""
        self.append("large", batch(*["x" * 100] * 5))
        self.under_test.runtime.turn()
        assert self.under_test.broker.committer.writing


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_commits_submitted_during_a_large_write_follow_it_in_order(durability: str) -> None:
    run = Run(durability)
    run.begin_large()
    run.append("second", batch(1))
    run.under_test.runtime.turn()
    run.append("third", batch(2, 3))
    assert run.answers == []
    run.under_test.runtime.run()
    assert run.answers == [("large", 2), ("second", 7), ("third", 8)]
    assert run.under_test.after_power_cut("all").datas("t") == [0, *["x" * 100] * 5, 1, 2, 3]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("fault", [errno.EIO, ShortWrite(300, errno.EIO), ShortWrite(300, errno.ENOSPC)])
def test_failed_large_write_releases_its_seqs_and_those_behind_it(durability: str, fault: Any) -> None:
    run = Run(durability)
    run.begin_large()
    run.append("second", batch(1))
    run.append("third", batch(2))
    run.under_test.disk.fault = lambda _step, op, path: fault if op == "write_at" and path.endswith(".wal") else None
    run.under_test.runtime.finish_one()
    run.under_test.disk.fault = None
    run.under_test.runtime.run()
    code = "storage_full" if isinstance(fault, ShortWrite) and fault.error == errno.ENOSPC else "storage_error"
    assert dict(run.answers) == {"large": code, "second": code, "third": code}
    if code == "storage_error":
        assert run.under_test.append("t", 4).first_seq == 2
        assert run.under_test.datas("t") == run.under_test.after_kill().datas("t") == [0, 4]


def test_failed_sync_before_a_large_write_fails_it_and_those_behind_it() -> None:
    run = Run("fsync")
    run.under_test.append("other", 0)
    run.append("first", batch(1))
    run.under_test.runtime.turn()
    assert run.under_test.runtime.waiting_aside == 1, "the sync is under way"
    run.append_to("other", "large", batch(*["x" * 100] * 5))
    run.under_test.runtime.turn()
    assert run.under_test.broker.committer.writing
    run.append_to("other", "behind", batch(2))
    run.under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    run.under_test.runtime.finish_one()
    run.under_test.runtime.turn()
    # Before the thread has ended the write.
    assert sorted(run.answers) == [("behind", "read_only"), ("first", "read_only"), ("large", "read_only")]
    run.append_to("other", "later", batch(3))
    run.under_test.runtime.run()
    assert run.answers[3:] == [("later", "read_only")]
    assert run.under_test.datas("t") == run.under_test.datas("other") == [0]


def test_checkpoint_during_a_large_write_loses_nothing() -> None:
    run = Run()
    run.begin_large()
    run.append("second", batch(1))
    run.under_test.broker.checkpointer.checkpoint()
    for _ in range(3):
        run.under_test.runtime.turn()
    assert run.answers == []
    run.under_test.runtime.run()
    run.under_test.wait(0)
    assert run.under_test.broker.checkpointer.snapshots_total == 1
    expected = [0, *["x" * 100] * 5, 1]
    assert run.under_test.after_kill().datas("t") == run.under_test.after_power_cut("none").datas("t") == expected


def test_checkpoint_is_not_delayed_by_large_writes_that_follow_each_other() -> None:
    run = Run()
    run.begin_large()
    run.under_test.broker.checkpointer.checkpoint()
    rotations = run.under_test.broker.committer.wal.rotations
    for number in range(6):
        # The next one is submitted before the one in the thread has ended.
        run.append(f"{number}", batch(*["y" * 100] * 5))
        run.under_test.runtime.finish_one()
        run.under_test.runtime.turn()
    assert run.under_test.broker.committer.wal.rotations > rotations
    run.under_test.runtime.run()


def test_stop_waits_for_a_large_write() -> None:
    run = Run()
    run.begin_large()
    stopped: list[bool] = []
    run.under_test.broker.stop(stopped.append)
    run.under_test.runtime.turn()
    assert stopped == []
    run.under_test.runtime.run()
    assert stopped == [True]
    assert run.answers == [("large", 2)]
    assert run.under_test.after_power_cut("none").datas("t") == [0, *["x" * 100] * 5]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("survive", ["none", "random"])
def test_power_cut_or_kill_at_any_step_of_a_large_write_leaves_all_of_it_or_nothing(
    durability: str, survive: Survive
) -> None:
    disk = watched(FakeDisk())
    disk.make_directory("")
    settings = msgspec.structs.replace(SMALL, wal_file_bytes=1 << 20, segment_bytes=1 << 23, hot_bytes=1 << 24)
    run = Run(durability, BrokerUnderTest(disk, settings))
    everything = [0, *LARGE]
    steps = 0

    def end(step: int) -> None:
        nonlocal steps
        steps += 1
        acknowledged = ("large", 2) in run.answers
        cut = BrokerUnderTest(disk.after_power_cut(survive, torn="prefix", seed=step), settings).datas("t")
        assert cut == everything if acknowledged and durability == "fsync" else cut in ([0], everything)
        killed = BrokerUnderTest(disk.after_kill(), settings).datas("t")
        assert killed == everything if acknowledged else killed in ([0], everything)

    disk.watcher = end
    run.append("large", large_batch())
    run.under_test.runtime.run()
    run.under_test.checkpoint()
    assert run.answers == [("large", 2)]
    assert steps > 10


def test_kill_after_a_large_write_was_acknowledged_keeps_all_of_it() -> None:
    run = Run()
    run.append("large", large_batch())
    run.under_test.runtime.run()
    assert run.answers == [("large", 2)]
    assert run.under_test.after_kill().datas("t") == [0, *LARGE]
