"""Starting on a damaged segment: whatever looks at all records copes, and keeps its promises for the rest."""

from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from tests.broker.routers.test_routers import route
from topics.engine.groups.group import lag
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.model.errors import CorruptStorage
from topics.model.records.match import TagMatch


def seal(under_test: BrokerUnderTest, name: str) -> None:
    topic = under_test.broker.topic(name)
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.runtime.run()


def damaged(under_test: BrokerUnderTest, name: str, suffix: str = ".arrow", number: int = 0) -> BrokerUnderTest:
    """The same after a clean checkpoint and a kill, one segment file of the topic emptied."""
    disk = under_test.disk.after_kill()
    prefix = f"segments/{under_test.broker.topic(name).id:016x}-"
    path = sorted([path for path in disk.snapshot_tree() if path.startswith(prefix) and path.endswith(suffix)])[number]
    file = disk.open(path)
    file.truncate(0)
    file.close()
    again = BrokerUnderTest(disk, under_test.settings, under_test.limits)
    again.runtime.clock.advance(under_test.runtime.clock.now_ms() - again.runtime.clock.now_ms())
    return again


def two_segments(**config: Any) -> BrokerUnderTest:
    """Topic `t`: records 1 to 10 and 11 to 20 sealed, ten seconds apart, 21 to 30 in memory."""
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SMALL, retention_interval_ms=0))
    under_test.configure("t", **config)
    for first in (1, 11, 21):
        under_test.append("t", *[{"data": n, "tag": f"t{n}"} for n in range(first, first + 10)])
        if first < 21:
            seal(under_test, "t")
        under_test.runtime.clock.advance(10_000)
    under_test.checkpoint()
    return under_test


def test_expired_records_of_a_damaged_segment_leave_together_with_the_last_of_them() -> None:
    under_test = damaged(two_segments(ttl_ms=35_000), "t")
    partition = under_test.broker.topic("t").partitions[0]
    assert (partition.count, partition.earliest_seq) == (30, 1)
    assert partition.oldest_ts <= under_test.runtime.now_ms() - 30_000
    under_test.runtime.clock.advance(6_000)
    under_test.append("t", 31)
    assert (partition.count, partition.earliest_seq, partition.evict_floor) == (21, 11, 11)
    assert not under_test.broker.health.degraded
    under_test.runtime.clock.advance(10_000)
    under_test.append("t", 32)
    assert (partition.count, partition.bytes > 0) == (12, True)


def test_cap_takes_a_damaged_segment_as_a_whole() -> None:
    under_test = damaged(two_segments(), "t")
    under_test.configure("t", cap_records=25)
    partition = under_test.broker.topic("t").partitions[0]
    for number in range(5):
        # The surplus record cannot be distinguished from the others: all of the segment stays until all of it must go.
        assert partition.earliest_seq == 1
        under_test.append("t", number)
    assert (partition.count, partition.earliest_seq) == (25, 11)
    assert not under_test.broker.health.degraded
    assert under_test.after_kill().broker.topic("t").partitions[0].count == 25


def test_deletes_that_only_the_log_knows_are_replayed_over_a_damaged_segment() -> None:
    under_test = two_segments()
    under_test.ask(under_test.broker.delete_records, "t", 5, None, 0)
    under_test.ask(under_test.broker.delete_records, "t", None, TagMatch("t7", False), 0)
    under_test.ask(under_test.broker.delete_records, "t", None, TagMatch("t1", True), 0)
    for suffix in (".arrow", ".dead", ".tags"):
        again = damaged(under_test, "t", suffix)
        partition = again.broker.topic("t").partitions[0]
        # 5, 6, 8, 9 (7 and 10 have a tag that was deleted), 20 and those in memory.
        assert (partition.count, partition.earliest_seq) == (15, 5)
        again.checkpoint()
        again.checkpoint()
        assert again.after_kill().broker.topic("t").partitions[0].count >= 15


def test_delete_by_tag_is_refused_only_when_it_concerns_damaged_records() -> None:
    under_test = damaged(two_segments(), "t")
    assert under_test.ask(under_test.broker.delete_records, "t", None, TagMatch("t12", False), 0).deleted == 1
    with pytest.raises(CorruptStorage) as refused:
        under_test.ask(under_test.broker.delete_records, "t", None, TagMatch("t3", False), 0)
    assert refused.value.records == (1, 10)


def test_group_lag_of_a_damaged_record_is_counted() -> None:
    under_test = damaged(two_segments(), "t")
    partition = under_test.broker.topic("t").partitions[0]
    found = lag(partition, 1, under_test.runtime.now_ms())
    assert (found.records, found.seconds) == (30, 30.0)


def test_copies_that_cannot_be_made_again_from_damaged_records_are_reported() -> None:
    under_test = two_segments()
    route(under_test, "t", "d", earliest=True)
    assert under_test.datas("d") == list(range(1, 31))
    again = damaged(under_test, "t")
    partition = again.broker.topic("d").partitions[0]
    read = read_records(partition, 0, 100, 1 << 20, View())
    assert read.tombstone is not None
    assert (read.tombstone.gap_from, read.tombstone.gap_to, read.tombstone.cause) == (1, 10, "damage")
    assert again.datas("d") == list(range(11, 31))
    again.append("t", 31)
    assert again.datas("d", 30) == [31]


def test_queue_with_damaged_jobs_starts_and_keeps_its_leases() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("q", type="queue", leases_durable=True, lease_ms=60_000)
    under_test.append("q", *range(1, 6))
    seal(under_test, "q")
    under_test.append("q", *range(6, 11))
    claimed: list[Any] = []
    under_test.broker.queues.claim("q", 0, "node", 7, None, 0, claimed.append)
    under_test.runtime.run()
    under_test.checkpoint()
    again = damaged(under_test, "q")
    counters = again.broker.queues.stats(again.broker.topic("q"))
    assert (counters.ready, counters.in_flight) == (3, 7)
    outcomes: list[Any] = []
    again.broker.queues.ack("q", 0, "node", [6, 7], None, outcomes.append)
    with pytest.raises(CorruptStorage):
        again.broker.queues.ack("q", 0, "node", [1], None, outcomes.append)
    again.runtime.run()
    assert [outcome.count for outcome in outcomes] == [2]
