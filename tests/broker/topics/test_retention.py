"""Expired records are evicted in topics that are neither read nor written."""

from collections.abc import Callable

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.broker.topics.retention import PARTITIONS_PER_TURN, Retention
from topics.model.config import ConfigChange
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings
from topics.runtime.interface import Timer
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

SMALL = StorageSettings(
    segment_bytes=4000, wal_file_bytes=64 << 10, hot_bytes=8000, retention_interval_ms=1000, sync_interval_ms=100
)
BODY = b'{"records":[%b]}' % b",".join([b'{"data":"%b"}' % (b"x" * 100)] * 50)


class Site:
    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.disk = disk or FakeDisk()
        if disk is None:
            self.disk.make_directory("")
        self.runtime = ManualRuntime()
        self.broker = Broker(self.disk, self.runtime, recover(self.disk, SMALL), Limits(), SMALL)
        self.broker.start()
        self.runtime.run()

    def fill(self, name: str, **config: int) -> None:
        self.broker.configure(name, ConfigChange(**config), lambda _: None)  # type: ignore[arg-type]
        self.runtime.run()
        for partition in range(int(config.get("partitions", 1))):
            body = BODY[:-1] + b',"partition":%d}' % partition
            self.broker.append(name, decode_batch(body, Limits()), lambda _: None)
            self.runtime.run()

    def pass_time(self, milliseconds: int) -> None:
        for _ in range(milliseconds // 100):
            self.runtime.clock.advance(100)
            self.runtime.run()

    def segments(self) -> list[str]:
        return [name for name in self.disk.list("segments") if name.endswith(".arrow")]


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_what_a_write_larger_than_the_cap_evicts_stays_evicted_after_a_kill_and_a_power_cut(durability: str) -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=3, durability=durability)
    under_test.append("t", "first")
    under_test.append("t", *range(30))
    lives = [under_test, under_test.after_kill()]
    if durability == "fsync":
        lives.append(under_test.after_power_cut())
    for life in lives:
        partition = life.broker.topic("t").partitions[0]
        assert [record["$seq"] for record in life.read("t")] == [29, 30, 31]
        assert (partition.head_seq, partition.evict_floor, partition.count) == (31, 29, 3)
        assert life.append("t", "next").first_seq == 32


def test_an_idle_topic_gives_its_segments_back() -> None:
    site = Site()
    for _ in range(4):
        site.fill("t", ttl_ms=5000)
    assert site.segments()
    site.pass_time(4000)
    assert site.broker.topic("t").count == 200
    assert site.segments()
    site.pass_time(4000)
    assert site.broker.topic("t").count == 0
    assert site.segments() == []


def test_readers_get_a_tombstone_for_records_the_pass_evicted() -> None:
    site = Site()
    site.fill("t", ttl_ms=1000)
    site.pass_time(4000)
    partition = site.broker.topic("t").partitions[0]
    assert (partition.evict_floor, partition.head_seq, partition.earliest_seq) == (51, 50, 51)


def test_what_was_given_back_stays_gone_after_a_restart() -> None:
    site = Site()
    site.fill("t", ttl_ms=1000)
    site.pass_time(4000)
    again = Site(site.disk.after_kill())
    assert again.broker.topic("t").partitions[0].evict_floor == 51


class OneStep(ManualRuntime):
    """Timers wait until the test takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        self.steps.append(callback)
        return super().call_later(1 << 40, callback)


def test_every_partition_of_every_topic_is_looked_at_some_per_turn() -> None:
    site = Site()
    for number in range(6):
        site.fill(f"t{number}", ttl_ms=1000, partitions=PARTITIONS_PER_TURN // 2)
    site.fill("kept")
    looked: list[tuple[int, int]] = []
    runtime = OneStep()
    retention = Retention(
        site.broker.state,
        runtime,
        lambda topic, partition: looked.append((topic.id, partition.number)),
        1000,
        lambda: None,
    )
    retention.start()
    turns = []
    while not retention.passes_total:
        before = len(looked)
        runtime.steps.pop(0)()
        turns.append(len(looked) - before)
    assert turns == [PARTITIONS_PER_TURN] * 3 + [0] * (len(turns) - 3)
    assert len(set(looked)) == len(looked) == 6 * PARTITIONS_PER_TURN // 2


def test_a_stopped_broker_walks_no_more() -> None:
    site = Site()
    site.fill("t", ttl_ms=1000)
    done: list[bool] = []
    site.broker.stop(done.append)
    site.runtime.run()
    assert done == [True]
    passes = site.broker.retention.passes_total
    site.pass_time(3000)
    assert site.broker.retention.passes_total == passes
