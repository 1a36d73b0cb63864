"""Failures of the server's own work are logged, counted and shown until they are repaired."""

import errno
import logging

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import TopicsError
from topics.runtime.backoff import MAX_DELAY_MS
from topics.runtime.health import LOG_INTERVAL_MS, Health
from topics.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(clock.now_ms)


def test_condition_stays_raised_from_its_first_failure_until_it_is_cleared(health: Health, clock: ManualClock) -> None:
    health.declare("seal", "snapshot")
    assert (health.degraded, health.conditions) == (False, [])
    since_ms = clock.now_ms()
    health.fail("seal", "no space")
    clock.advance(5)
    health.fail("seal", "still no space")
    (condition,) = health.conditions
    assert (condition.kind, condition.reason, condition.since_ms) == ("seal", "still no space", since_ms)
    assert condition.failures == 2
    health.clear("seal")
    health.clear("seal")
    assert (health.degraded, health.failures_total) == (False, {"seal": 2, "snapshot": 0})


def test_conditions_of_one_kind_differ_by_their_subject(health: Health) -> None:
    health.fail("damaged_file", "checksum", "segments/a.arrow")
    health.fail("damaged_file", "checksum", "segments/b.arrow")
    health.clear("damaged_file", "segments/a.arrow")
    assert [condition.subject for condition in health.conditions] == ["segments/b.arrow"]
    assert health.is_raised("damaged_file", "segments/b.arrow")
    assert not health.is_raised("damaged_file")


def test_condition_is_logged_when_raised_when_it_changes_and_once_a_minute(
    health: Health, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "topics.health")

    def logged() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    for _ in range(100):
        health.fail("seal", "no space")
    assert logged() == ["degraded: no space"]
    health.fail("seal", "input/output error")
    assert logged() == ["degraded: input/output error"]
    clock.advance(LOG_INTERVAL_MS)
    health.fail("seal", "input/output error")
    assert logged() == ["degraded: input/output error"]
    health.clear("seal")
    assert logged() == ["repaired: input/output error"]


@pytest.mark.parametrize(
    ("kind", "op", "path"),
    [
        ("seal", "write_at", "segments/"),
        ("snapshot", "write_at", "snapshots/"),
        ("log_rotation", "allocate", "wal/"),
        ("log_trim", "remove", "wal/"),
        ("segment_removal", "remove", "segments/"),
    ],
)
def test_failed_storage_work_degrades_the_server_until_it_succeeds(kind: str, op: str, path: str) -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")

    def work() -> None:
        under_test.append("t", *["x" * 100] * 5)
        topic = under_test.broker.topic("t")
        under_test.broker.sealer.seal(topic, topic.partitions[0])
        under_test.runtime.run()
        under_test.ask(under_test.broker.delete_records, "t", topic.partitions[0].head_seq, None, 0)
        for _ in range(3):
            under_test.checkpoint()

    work()
    health = under_test.broker.health
    assert not health.degraded
    under_test.disk.fault = lambda _, called, at: errno.EIO if called == op and at.startswith(path) else None
    work()
    assert kind in [condition.kind for condition in health.conditions]
    assert health.failures_total[kind] > 0
    under_test.disk.fault = None
    work()
    under_test.wait(MAX_DELAY_MS)
    assert not health.degraded


def test_refused_writes_degrade_the_server_until_one_succeeds() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 1)
    under_test.disk.fault = lambda _, called, at: errno.ENOSPC if called == "write_at" else None
    with pytest.raises(TopicsError):
        under_test.append("t", 2)
    assert [condition.kind for condition in under_test.broker.health.conditions] == ["log_write"]
    under_test.disk.fault = None
    under_test.append("t", 3)
    assert not under_test.broker.health.degraded


def test_failed_sync_of_the_log_degrades_the_server_until_it_is_restarted() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="fsync")
    under_test.disk.fault = lambda _, called, at: errno.EIO if called == "sync_data" else None
    for _ in range(3):
        with pytest.raises(TopicsError):
            under_test.append("t", 1)
    under_test.disk.fault = None
    with pytest.raises(TopicsError):
        under_test.append("t", 2)
    assert [condition.kind for condition in under_test.broker.health.conditions] == ["log_sync"]
    assert not under_test.after_kill().broker.health.degraded
