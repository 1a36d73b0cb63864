"""Recovery: what a start decides is durable before the server acknowledges anything."""

import errno
import struct
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from tests.crash.world import watched
from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.model.errors import Unavailable
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.storage.log.wal import HEADER_BYTES
from topics.testing.broker import BrokerBench
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime


def append_once(disk: FakeDisk, name: str) -> int:
    """Start a server, append one record as its very first work without letting any thread finish, and return its seq."""
    runtime = ManualRuntime()
    broker = Broker(disk, runtime, recover(disk, SMALL), Limits(), SMALL)
    broker.start()
    outcomes: list[Any] = []
    broker.append(name, decode_batch(b'{"records":[{"data":1}]}', Limits()), outcomes.append)
    runtime.turn()
    (outcome,) = outcomes
    seq: int = outcome.last_seq
    return seq


@pytest.mark.parametrize("durability", ["disk", "memory", "ephemeral"])
def test_seq_acknowledged_right_after_a_start_is_not_assigned_again_after_a_second_power_cut(durability: str) -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability=durability)
    for number in range(3):
        under_test.append("t", number)
    disk = under_test.disk
    seqs = [3]
    for _ in range(3):
        disk = disk.after_power_cut("none")
        seqs.append(append_once(disk, "t"))
    assert seqs == sorted(set(seqs)), "each seq is assigned once"


def holes(under_test: BrokerUnderTest, name: str = "t") -> list[tuple[int, int]]:
    return [(hole.first, hole.last) for hole in under_test.broker.topic(name).partitions[0].holes]


def broker_with_unsynced_records() -> BrokerUnderTest:
    """Topic `t` of class disk with two synced records and one that is not; topic `f` of class fsync with two."""
    under_test = BrokerUnderTest()
    under_test.append("t", 1)
    under_test.append("t", 2)
    under_test.configure("f", durability="fsync")
    under_test.append("f", 1)
    under_test.append("f", 2)
    under_test.append("t", 3)
    return under_test


def test_kill_reports_no_loss() -> None:
    under_test = broker_with_unsynced_records()
    for number in range(4, 8):
        under_test = under_test.after_kill()
        assert under_test.recovered.ending == "complete"
        assert (under_test.datas("t"), holes(under_test)) == (list(range(1, number)), [])
        under_test.append("t", number)


def test_clean_stop_reports_no_loss_after_a_restart_of_the_machine_and_without() -> None:
    under_test = broker_with_unsynced_records()
    under_test.broker.stop(lambda _: None)
    under_test.runtime.run()
    for disk in (under_test.disk.after_kill(), under_test.disk.after_power_cut("none")):
        again = BrokerUnderTest(disk)
        assert (again.datas("t"), holes(again), holes(again, "f")) == ([1, 2, 3], [], [])


@pytest.mark.parametrize("survive", ["none", "all"])
def test_restored_copy_that_lacks_unsynced_records_reports_them_and_never_assigns_their_seqs(survive: Any) -> None:
    under_test = broker_with_unsynced_records()
    copy = under_test.disk.after_power_cut(survive)
    under_test = BrokerUnderTest(under_test.disk.restored_from(copy))
    if survive == "all":
        assert (under_test.datas("t"), holes(under_test)) == ([1, 2, 3], [])
        return
    assert under_test.datas("t") == [1, 2]
    assert holes(under_test) == [(3, 2 + SMALL.margin)]
    assert under_test.append("t", "new").last_seq > 3
    # Reported once.
    under_test = under_test.after_kill()
    assert holes(under_test) == [(3, 2 + SMALL.margin)]


def test_restored_copy_of_an_earlier_moment_reports_synced_records_too() -> None:
    under_test = broker_with_unsynced_records()
    copy = under_test.disk.after_kill()
    for name in ("t", "f"):
        under_test.append(name, "later")
    under_test.configure("empty", durability="fsync")
    under_test = BrokerUnderTest(under_test.disk.restored_from(copy))
    assert under_test.recovered.ending == "behind"
    assert (under_test.datas("t"), under_test.datas("f")) == ([1, 2, 3], [1, 2])
    assert holes(under_test) == [(4, 3 + SMALL.margin)]
    assert holes(under_test, "f") == [(3, 2 + SMALL.margin)]
    assert under_test.after_kill().recovered.ending == "complete"


def test_restored_copy_of_a_stopped_server_is_noticed_without_a_restart_of_the_machine() -> None:
    under_test = broker_with_unsynced_records()
    under_test.broker.stop(lambda _: None)
    under_test.runtime.run()
    copy = under_test.disk.after_kill()
    under_test = BrokerUnderTest(under_test.disk.after_kill())
    under_test.append("t", 4)
    under_test.broker.stop(lambda _: None)
    under_test.runtime.run()
    under_test = BrokerUnderTest(under_test.disk.restored_from(copy))
    assert (under_test.recovered.ending, holes(under_test)) == ("behind", [(4, 3 + SMALL.margin)])


def test_copy_of_another_lineage_counts_as_unknown() -> None:
    """Restored twice: the second copy holds later lsns than the marker, but not what was written since the first."""
    under_test = broker_with_unsynced_records()
    early = under_test.disk.after_power_cut("none")
    for number in range(20):
        under_test.append("t", number)
    late = under_test.disk.after_kill()
    under_test = BrokerUnderTest(under_test.disk.restored_from(early))
    seq = under_test.append("t", "acknowledged").last_seq
    under_test = BrokerUnderTest(under_test.disk.restored_from(late))
    assert under_test.recovered.ending == "unknown"
    assert under_test.append("t", "new").last_seq > seq
    assert len(holes(under_test)) == 1


def test_without_a_marker_every_start_but_after_a_clean_stop_reports_possible_loss() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    disk.keeps_marker = False
    under_test = BrokerUnderTest(disk)
    assert under_test.recovered.marker_error is not None
    under_test.append("t", 1)
    under_test = under_test.after_kill()
    assert (under_test.recovered.ending, under_test.datas("t"), holes(under_test)) == (
        "unknown",
        [1],
        [(2, 1 + SMALL.margin)],
    )
    under_test.broker.stop(lambda _: None)
    under_test.runtime.run()
    under_test = BrokerUnderTest(under_test.disk.after_kill())
    assert (under_test.recovered.ending, holes(under_test)) == ("clean", [(2, 1 + SMALL.margin)])


def test_possible_loss_is_reported_once_wherever_the_start_is_killed() -> None:
    under_test = broker_with_unsynced_records()
    expected = [(3, 2 + SMALL.margin)]
    first = watched(under_test.disk.after_power_cut("none"))
    seen: list[int] = []

    def kill(step: int) -> None:
        seen.append(step)
        again = BrokerUnderTest(first.after_kill())
        assert holes(again) == expected, f"killed at step {step}"
        assert holes(again, "f") == []

    first.watcher = kill
    assert holes(BrokerUnderTest(first)) == expected
    assert len(seen) > 5


def test_log_of_version_1_is_read_and_counts_as_unknown() -> None:
    under_test = broker_with_unsynced_records()
    disk = under_test.disk.after_kill()
    layout = struct.Struct("<8sIIQQQ36sI")
    for name in disk.list("wal/shard-00"):
        file = disk.open(f"wal/shard-00/{name}")
        head = file.read_at(0, layout.size)
        head = head[:8] + struct.pack("<I", 1) + head[12:]
        file.write_at(0, [(head + struct.pack("<Q", xxh3_64_intdigest(head))).ljust(HEADER_BYTES, b"\0")])
    under_test = BrokerUnderTest(disk)
    assert (under_test.datas("t"), under_test.datas("f")) == ([1, 2, 3], [1, 2])
    assert (under_test.recovered.ending, holes(under_test)) == ("unknown", [(4, 3 + SMALL.margin)])
    assert holes(under_test, "f") == []
    assert under_test.after_kill().recovered.ending == "complete"


@pytest.mark.parametrize("op", ["allocate", "write_at", "sync_data"])
def test_server_that_cannot_write_what_its_start_decided_serves_reads_and_refuses_writes(op: str) -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 1)
    under_test.append("t", 2)
    under_test.broker.committer.sync()
    under_test.runtime.run()
    disk = under_test.disk.after_power_cut("none")
    files = len(disk.list("wal/shard-00"))
    disk.fault = lambda _, called, path: errno.EIO if called == op and path.endswith(f"{files + 1:012d}.wal") else None
    under_test = BrokerUnderTest(disk)
    assert under_test.datas("t") == [1, 2]
    with pytest.raises(Unavailable):
        under_test.append("t", 3)
    assert under_test.broker.health.is_raised("log_sync")
    disk.fault = None
    assert append_once(disk.after_kill(), "t") > 2


def test_segments_that_a_start_drops_are_removed_from_the_disk() -> None:
    bench = BrokerBench()
    topic = bench.configure("t", durability="disk")
    for _ in range(20):
        bench.append("t", b'"%b"' % (b"x" * 1000))
    bench.broker.sealer.seal(topic, topic.partitions[0])
    bench.runtime.run()
    assert bench.disk.list("segments")
    bench.configure("t", durability="ephemeral")
    started = bench.after_kill()
    for _ in range(3):
        done: list[bool] = []
        started.append("t", b"1")
        started.broker.checkpointer.checkpoint(done=done.append)
        started.runtime.run()
        assert done == [True]
    assert started.disk.list("segments") == []
