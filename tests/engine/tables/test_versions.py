"""Versions of routes, tables and archives: changes are applied in the order of the versions they were given."""

import errno
from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.broker import Broker
from topics.broker.tables.archives import clear_archive, set_archive
from topics.model.errors import TopicsError, Unavailable
from topics.model.tables.archive import ArchiveOptions
from topics.model.tables.route import Route


def add_route(broker: Broker, name: str, reply: Any) -> None:
    broker.change_routes(name, lambda routes, version: [*routes, Route("t", "Insert", "Key", version)], reply)


def broker_with_topics() -> BrokerUnderTest:
    under_test = BrokerUnderTest()
    for name in "ab":
        under_test.configure(name)
    return under_test


def test_no_route_is_applied_under_a_version_that_was_reported_before() -> None:
    under_test = broker_with_topics()
    broker = under_test.broker
    notified: list[tuple[int, int]] = []

    def tell(_: Any) -> None:
        notified.append((broker.state.versions.routes.now, len(broker.state.routes.get(("t", "Insert"), []))))

    add_route(broker, "a", tell)
    add_route(broker, "b", tell)
    under_test.runtime.run()
    assert notified == [(1, 1), (2, 2)]
    # One goes with its topic, one comes.
    broker.delete_topic("a", if_empty=False, reply=tell)
    add_route(broker, "b", tell)
    under_test.runtime.run()
    assert notified[2:] == [(3, 1), (4, 2)]
    again = under_test.after_power_cut().broker
    assert again.state.versions.routes.now == 4


def test_no_archive_is_applied_under_a_version_that_was_reported_before() -> None:
    under_test = broker_with_topics()
    broker = under_test.broker
    notified: list[tuple[int, int]] = []

    def tell(_: Any) -> None:
        notified.append((broker.state.versions.archives.now, len(broker.state.archived)))

    for name in "ab":
        set_archive(broker, name, ArchiveOptions(f"s3://lake/{name}"), tell)
    under_test.runtime.run()
    assert notified == [(1, 1), (2, 2)]
    clear_archive(broker, "a", tell)
    broker.delete_topic("b", if_empty=False, reply=tell)
    under_test.runtime.run()
    assert notified[2:] == [(3, 1), (4, 0)]


def test_change_after_a_failed_one_is_applied_and_reported() -> None:
    under_test = broker_with_topics()
    outcomes: list[Any] = []
    under_test.disk.fault = lambda _step, op, path: errno.EIO if op == "write_at" and path.startswith("wal") else None
    add_route(under_test.broker, "a", outcomes.append)
    under_test.runtime.run()
    under_test.disk.fault = None
    for name in ("a", "b", "missing"):
        try:
            add_route(under_test.broker, name, outcomes.append)
        except TopicsError as error:
            assert name == "missing"
            outcomes.append(error)
    under_test.broker.delete_topic("b", if_empty=False, reply=outcomes.append)
    under_test.runtime.run()
    assert len(outcomes) == 5
    assert sum([isinstance(outcome, Unavailable) for outcome in outcomes]) == 1
    assert "b" not in under_test.broker.state.topics
    again = under_test.after_power_cut().broker.state.versions
    assert again.routes.now == under_test.broker.state.versions.routes.now
