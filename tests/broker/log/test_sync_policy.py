"""When a write waits for more writers, when a sync runs on the loop, and when zeros are written ahead."""

import pytest

from topics.broker.log.sync_policy import (
    FAST_SECONDS,
    MAX_BATCH_TURNS,
    MAX_LOOP_SYNC_BYTES,
    MAX_SMALL_SYNC_BYTES,
    MIN_BATCH_WRITERS,
    MIN_FAST_SYNCS,
    MIN_FAST_SYNCS_AFTER_SLOW,
    MIN_SMALL_SYNCS,
    SLOW_SECONDS,
    SyncPolicy,
    must_sync,
)
from topics.engine.cache import Cache
from topics.engine.partitions.partition import Partition, Totals
from topics.model.config import TopicConfig


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_first_record_of_a_partition_is_synced_whatever_the_class(durability: str) -> None:
    partition = Partition(1, 0, Cache(1), Totals())
    config = TopicConfig(durability=durability)  # type: ignore[arg-type]
    assert must_sync(config, partition)
    partition.restore_position(1, 0)
    assert must_sync(config, partition) is (durability == "fsync")


def policy_after(*writers: int) -> SyncPolicy:
    policy = SyncPolicy()
    for each in writers:
        policy.start_write()
        policy.count_write(each)
    return policy


def test_write_waits_one_turn_when_many_writers_shared_the_last_one() -> None:
    assert not policy_after(MIN_BATCH_WRITERS - 1).delays_write()
    assert policy_after(MIN_BATCH_WRITERS).delays_write()
    assert not policy_after(MIN_BATCH_WRITERS, 1).delays_write()


def test_sync_waits_as_long_as_each_turn_brings_another_writer() -> None:
    policy = policy_after(MIN_BATCH_WRITERS)
    assert policy.delays_sync(1)
    assert policy.delays_sync(2)
    assert not policy.delays_sync(2)


def test_sync_waits_for_a_bounded_number_of_turns() -> None:
    policy = policy_after(MIN_BATCH_WRITERS)
    assert sum([policy.delays_sync(waiters) for waiters in range(1, 100)]) == MAX_BATCH_TURNS


def test_lone_writer_never_waits() -> None:
    policy = policy_after(1)
    assert not policy.delays_write()
    assert not policy.delays_sync(1)


def test_syncs_run_on_the_loop_after_enough_fast_ones() -> None:
    policy = SyncPolicy()
    for _ in range(MIN_FAST_SYNCS):
        assert not policy.syncs_are_fast
        policy.count_sync(FAST_SECONDS / 2, wrote_zeros=False)
    assert policy.syncs_are_fast


def test_sync_that_is_not_fast_starts_the_count_again() -> None:
    policy = SyncPolicy()
    for _ in range(MIN_FAST_SYNCS):
        policy.count_sync(0, wrote_zeros=False)
    policy.count_sync(FAST_SECONDS, wrote_zeros=False)
    assert policy.fast_syncs == 0


def test_slow_sync_moves_many_syncs_to_the_thread() -> None:
    policy = SyncPolicy()
    policy.count_sync(SLOW_SECONDS, wrote_zeros=True)
    for _ in range(MIN_FAST_SYNCS_AFTER_SLOW):
        assert not policy.syncs_are_fast
        policy.count_sync(0, wrote_zeros=False)
    assert policy.syncs_are_fast


def test_sync_that_wrote_zeros_and_took_a_little_longer_does_not_count() -> None:
    policy = SyncPolicy()
    policy.count_sync(0, wrote_zeros=False)
    policy.count_sync(FAST_SECONDS, wrote_zeros=True)
    assert policy.fast_syncs == 1


def test_sync_of_much_data_or_beside_other_disk_work_is_not_light() -> None:
    policy = SyncPolicy()
    assert policy.is_light(MAX_LOOP_SYNC_BYTES, disk_jobs=0)
    assert not policy.is_light(MAX_LOOP_SYNC_BYTES + 1, disk_jobs=0)
    assert not policy.is_light(1, disk_jobs=1)


def test_zeros_are_written_ahead_after_enough_small_syncs_that_requests_wait_for() -> None:
    policy = SyncPolicy()
    small = [policy.start_sync(MAX_SMALL_SYNC_BYTES, awaited=True) for _ in range(MIN_SMALL_SYNCS)]
    assert small == [False] * (MIN_SMALL_SYNCS - 1) + [True]
    assert not policy.start_sync(MAX_SMALL_SYNC_BYTES + 1, awaited=True)
    assert not policy.start_sync(1, awaited=True)
    assert not SyncPolicy().start_sync(1, awaited=False)
