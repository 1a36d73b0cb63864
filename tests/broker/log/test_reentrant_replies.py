"""A reply may submit the next request at once: everything that was decided with it is settled by then."""

import errno
from typing import Any

import msgspec

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.groups.groups import ack
from topics.broker.routers.routers import WantedRouter
from topics.model.config import ConfigChange
from topics.model.errors import Conflict, TopicsError, Unavailable
from topics.model.limits import Limits
from topics.model.tables.change import Defaults, Events, change_topic, decode_changes
from topics.testing.disk.fake_disk import FakeDisk


def broker_on_a_disk_that_fails() -> tuple[BrokerUnderTest, FakeDisk]:
    disk = FakeDisk()
    disk.make_directory("")
    return BrokerUnderTest(disk), disk


def fail_writes(disk: FakeDisk) -> None:
    disk.fault = lambda _step, op, _path: errno.EIO if op == "write_at" else None


def test_an_ack_sent_when_another_failed_does_not_count_what_failed_with_it() -> None:
    under_test, disk = broker_on_a_disk_that_fails()
    under_test.append("t", *range(30))
    topic = under_test.broker.topic("t")
    partition = topic.partitions[0]
    failed: list[Any] = []
    acked: list[Any] = []

    def again(outcome: int | TopicsError) -> None:
        failed.append(outcome)
        disk.fault = None
        ack(under_test.broker, topic, "g", partition, 5, acked.append)

    fail_writes(disk)
    ack(under_test.broker, topic, "g", partition, 10, failed.append)
    ack(under_test.broker, topic, "g", partition, 20, again)
    under_test.runtime.run()
    assert [type(outcome) for outcome in failed] == [Unavailable, Unavailable]
    assert acked == [5]
    assert topic.groups["g"].decided == {}
    assert under_test.ask(ack, under_test.broker, topic, "g", partition, 7) == 7
    assert under_test.after_kill().broker.topic("t").groups["g"].positions[0].acked == 7


def test_an_ack_that_failed_behind_one_that_did_not_leaves_nothing_decided() -> None:
    under_test, disk = broker_on_a_disk_that_fails()
    under_test.configure("t", durability="fsync")
    under_test.append("t", *range(30))
    topic = under_test.broker.topic("t")
    partition = topic.partitions[0]
    got: list[Any] = []
    ack(under_test.broker, topic, "g", partition, 10, got.append)
    under_test.runtime.turn()
    # Written, and its sync is under way; the next one fails when that is over.
    ack(under_test.broker, topic, "g", partition, 20, got.append)
    fail_writes(disk)
    under_test.runtime.run()
    assert (len(got), got.count(10), sum([isinstance(each, Unavailable) for each in got])) == (2, 1, 1)
    assert topic.groups["g"].decided == {}
    assert topic.groups["g"].positions[0].acked == 10


def test_topic_created_inside_a_reply_counts_once_against_max_topics() -> None:
    under_test = BrokerUnderTest(limits=Limits(max_topics=4))
    got: list[Any] = []

    def create(name: str, then: Any = None) -> None:
        def replied(outcome: Any) -> None:
            got.append(outcome)
            if then is not None:
                then()

        under_test.broker.configure(name, ConfigChange(), replied)

    create("a", lambda: create("b"))
    under_test.runtime.run()
    wanted = WantedRouter("r", "a", "c")
    under_test.broker.routers.put(wanted, lambda outcome: (got.append(outcome), create("d")))
    under_test.runtime.run()
    assert [outcome.created for outcome in got] == [True] * 4
    assert not under_test.broker.state.creating


def test_alias_is_free_in_the_reply_that_reports_a_failed_create() -> None:
    under_test, disk = broker_on_a_disk_that_fails()
    got: list[Any] = []

    def create(name: str, reply: Any) -> None:
        under_test.broker.create_topic(name, ConfigChange(), "alias", if_absent=False, reply=reply)

    def again(outcome: Any) -> None:
        got.append(outcome)
        disk.fault = None
        create("b", got.append)

    fail_writes(disk)
    create("a", again)
    under_test.runtime.run()
    assert isinstance(got[0], Unavailable)
    assert not isinstance(got[1], Conflict)
    assert under_test.broker.state.aliases["alias"].name == "b"


# A topic that goes meanwhile


def test_changes_that_wait_for_the_end_of_their_topic_are_marked_in_the_next_of_its_name() -> None:
    under_test = BrokerUnderTest()
    name = change_topic("chat.messages")

    def changes(number: int) -> Events:
        event = {"op": "insert", "key": {"id": 1}, "after": {"id": 1}, "position": number}
        return decode_changes(msgspec.json.encode([event]), Defaults(1), 1000)

    under_test.ask(under_test.broker.changes.append, "chat.messages", changes(1))
    got: list[Any] = []
    under_test.broker.delete_topic(name, if_empty=False, reply=got.append)
    under_test.broker.create_topic(name, ConfigChange(durability="fsync"), None, if_absent=True, reply=got.append)
    under_test.broker.changes.append("chat.messages", changes(2), got.append)
    under_test.runtime.run()
    under_test.wait(100)
    assert len(got) == 3
    assert got[-1].appended == 1
    again = under_test.after_kill()
    kept = again.ask(again.broker.changes.append, "chat.messages", changes(2))
    assert (kept.appended, kept.duplicates) == (0, 1)
    assert len(again.datas(name)) == 1


def test_changes_that_wait_for_the_end_of_their_topic_create_it_again() -> None:
    under_test = BrokerUnderTest()
    event = {"op": "insert", "key": {"id": 1}, "after": {"id": 1}, "position": 1}
    events = decode_changes(msgspec.json.encode([event]), Defaults(1), 1000)
    under_test.ask(under_test.broker.changes.append, "chat.messages", events)
    got: list[Any] = []
    under_test.broker.delete_topic(change_topic("chat.messages"), if_empty=False, reply=got.append)
    under_test.broker.changes.append("chat.messages", events, got.append)
    under_test.runtime.run()
    under_test.wait(100)
    assert (got[0].deleted, got[1].appended, got[1].duplicates) == (True, 1, 0)
