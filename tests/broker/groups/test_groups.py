"""Positions of consumer groups are durable as their topic's class promises, whatever step the power fails at."""

import errno
import itertools
from typing import Any

import msgspec
import pytest

from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.broker.groups.groups import ack, drop_group, group_of, pin, seek
from topics.engine.groups.group_requests import EARLIEST, LATEST, Offset
from topics.model.config import ConfigChange
from topics.model.errors import Conflict, TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings
from topics.model.tables.route import ChangePosition, Route
from topics.testing.disk.fake_disk import FakeDisk, PowerCut
from topics.testing.runtime import ManualRuntime

SMALL = StorageSettings(
    segment_bytes=4000, wal_file_bytes=16 << 10, checkpoint_bytes=3000, hot_bytes=20_000, margin=100
)


class Site:
    """A broker on a fake disk, one step at a time."""

    def __init__(self, disk: FakeDisk) -> None:
        self.runtime = ManualRuntime()
        self.broker = Broker(disk, self.runtime, recover(disk, SMALL), Limits(), SMALL)
        self.broker.start()
        self.runtime.run()

    def outcome(self, act: Any) -> Any:
        got: list[Any] = []
        act(got.append)
        self.runtime.run()
        (outcome,) = got
        if isinstance(outcome, TopicsError):
            raise outcome
        return outcome

    def create(self, name: str, alias: str | None = None, **config: Any) -> None:
        change = ConfigChange(**config)
        self.outcome(lambda reply: self.broker.create_topic(name, change, alias, if_absent=True, reply=reply))

    def append(self, name: str, records: int = 1, partition: int = 0) -> None:
        body = b'{"records":[%b],"partition":%d}' % (b",".join([b'{"data":1}'] * records), partition)
        self.outcome(lambda reply: self.broker.append(name, decode_batch(body, Limits()), reply))

    def pin(self, name: str, group: str, start: Any, partitions: tuple[int, ...] = (0,)) -> None:
        topic = self.broker.topic(name)
        chosen = [topic.partitions[number] for number in partitions]
        self.outcome(lambda reply: pin(self.broker, topic, group_of(self.broker, topic, group), chosen, start, reply))

    def ack(self, name: str, group: str, offset: int, partition: int = 0) -> int:
        topic = self.broker.topic(name)
        acked: int = self.outcome(
            lambda reply: ack(self.broker, topic, group, topic.partitions[partition], offset, reply)
        )
        return acked

    def seek(self, name: str, group: str, target: Any) -> None:
        topic = self.broker.topic(name)
        self.outcome(
            lambda reply: seek(self.broker, topic, group, topic.partitions, target, dry_run=False, reply=reply)
        )

    def position(self, name: str, group: str, partition: int = 0) -> tuple[int, int] | None:
        found = self.broker.topic(name).groups.get(group)
        position = None if found is None else found.positions.get(partition)
        return None if position is None else (position.start, position.acked)


def fresh_disk(cut_at: int | None = None) -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("")
    disk.cut_at = None if cut_at is None else disk.steps + cut_at
    return disk


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_pins_and_acks_survive_the_end_of_the_process(durability: str) -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("t", durability=durability, partitions=3)
    site.append("t", 5)
    site.append("t", 5, partition=2)
    site.pin("t", "late", LATEST)
    site.pin("t", "all", EARLIEST, (0, 1, 2))
    site.ack("t", "all", 3, partition=2)
    again = Site(disk.after_kill())
    assert again.position("t", "late") == (6, 0)
    assert [again.position("t", "all", number) for number in range(3)] == [(1, 0), (1, 0), (1, 3)]


def test_positions_survive_snapshots_with_facts_replayed_over_them() -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("t", durability="disk")
    site.pin("t", "g", EARLIEST)
    for number in range(1, 200):
        site.append("t")
        site.ack("t", "g", number)
        if number % 50 == 0:
            site.seek("t", "g", Offset(number - 20))
    assert site.broker.checkpointer.snapshots_total > 2
    want = site.position("t", "g")
    assert Site(disk.after_kill()).position("t", "g") == want
    site.outcome(lambda reply: site.broker.stop(reply))
    assert Site(disk).position("t", "g") == want


def test_an_acked_position_on_an_fsync_topic_survives_a_power_cut_at_every_step() -> None:
    for step in itertools.count():
        disk = fresh_disk(cut_at=step)
        pinned, acked, sought = False, 0, 0
        try:
            site = Site(disk)
            site.create("t", durability="fsync", partitions=2)
            site.append("t", 3)
            site.append("t", 4, partition=1)
            site.pin("t", "g", EARLIEST, (0, 1))
            pinned = True
            acked = site.ack("t", "g", 1, partition=1)
            acked = site.ack("t", "g", 3, partition=1)
            site.seek("t", "g", Offset(2))
            sought = 2
        except PowerCut:
            pass
        again = Site(disk.after_power_cut(survive="none"))
        if pinned and not sought:
            position = again.position("t", "g", 1)
            assert position is not None, step
            assert position[1] >= acked or position == (2, 1), (step, position)
            assert again.position("t", "g", 0) in [(1, 0), (2, 1)]
        if sought:
            assert [again.position("t", "g", number) for number in range(2)] == [(2, 1), (2, 1)]
            break
    assert step > 10


@pytest.mark.parametrize("survive", ["none", "all"])
def test_a_power_cut_never_invents_a_position(survive: str) -> None:
    """A disk topic may lose what was not synced, but what comes back is a state that once was."""
    for step in itertools.count():
        disk = fresh_disk(cut_at=step)
        states: list[Any] = [None]
        try:
            site = Site(disk)
            site.create("t", durability="disk")
            site.append("t", 9)
            site.pin("t", "g", EARLIEST)
            states.append((1, 0))
            for offset in (2, 5, 9):
                states.append((1, offset))
                site.ack("t", "g", offset)
        except PowerCut:
            pass
        else:
            break
        again = Site(disk.after_power_cut(survive=survive))
        if "t" in again.broker.state.topics:
            assert again.position("t", "g") in [*states, (1, 0)], step
    assert step > 5


def test_acks_in_flight_together_never_rewind() -> None:
    site = Site(fresh_disk())
    site.create("t", durability="fsync")
    site.append("t", 9)
    topic = site.broker.topic("t")
    got: list[Any] = []
    for offset in (5, 3, 9, 4):
        ack(site.broker, topic, "g", topic.partitions[0], offset, got.append)
    assert got == []
    site.runtime.run()
    assert got == [5, 5, 9, 9]
    assert site.position("t", "g") == (6, 9)
    assert topic.groups["g"].decided == {}


def test_an_ack_that_cannot_be_written_is_taken_back() -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("t", durability="disk")
    site.append("t", 9)
    site.ack("t", "g", 2)
    disk.fault = lambda step, op, path: errno.EIO if op == "write_at" else None
    topic = site.broker.topic("t")
    got: list[Any] = []
    ack(site.broker, topic, "g", topic.partitions[0], 5, got.append)
    ack(site.broker, topic, "g", topic.partitions[0], 7, got.append)
    site.runtime.run()
    disk.fault = None
    assert all([isinstance(outcome, TopicsError) for outcome in got])
    assert topic.groups["g"].decided == {}
    assert site.position("t", "g") == (3, 2)
    assert site.ack("t", "g", 4) == 4


def test_a_dropped_group_is_gone_for_good_and_can_begin_again() -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("t")
    site.append("t", 3)
    site.ack("t", "g", 3)
    topic = site.broker.topic("t")
    site.outcome(lambda reply: drop_group(site.broker, topic, "g", reply))
    assert Site(disk.after_kill()).position("t", "g") is None
    site.pin("t", "g", EARLIEST)
    assert Site(disk.after_kill()).position("t", "g") == (1, 0)


def test_a_group_forgotten_while_a_pin_waits_comes_back_in_the_order_of_the_log() -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("t", durability="disk")
    site.append("t", 3)
    site.ack("t", "g", 3)
    topic = site.broker.topic("t")
    got: list[Any] = []
    drop_group(site.broker, topic, "g", got.append)
    ack(site.broker, topic, "g", topic.partitions[0], 3, got.append)
    site.runtime.run()
    live = site.position("t", "g")
    assert Site(disk.after_kill()).position("t", "g") == live


# Aliases and routes


def add_route(site: Site, name: str, table: str) -> None:
    site.outcome(
        lambda reply: site.broker.change_routes(
            name, lambda routes, version: [*routes, Route(table, "Insert", "Key", version)], reply
        )
    )


def test_aliases_and_routes_survive_and_are_found() -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("a", alias="other")
    site.create("b")
    add_route(site, "a", "chat.messages")
    add_route(site, "b", "chat.messages")
    add_route(site, "b", "chat.users")
    assert site.broker.state.versions.routes.now == 3
    for each in (site, Site(disk.after_kill()), Site(disk.after_power_cut(survive="none"))):
        state = each.broker.state
        assert each.broker.name_of("other") == "a"
        assert [topic.name for topic, _ in state.routes["chat.messages", "Insert"]] == ["a", "b"]
        assert state.versions.routes.now == 3
        assert ("chat.messages", "Delete") not in state.routes


def test_where_a_route_begins_survives_kills_power_cuts_and_snapshots() -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("a")
    latest = Route("t", "Insert", "Key", 1, starts_at=ChangePosition(7, (1, 2**40)))
    earliest = Route("t", "Update", "Key", 1, start="Earliest")
    site.outcome(lambda reply: site.broker.change_routes("a", lambda _routes, _version: [latest, earliest], reply))
    lives = [Site(disk.after_kill()), Site(disk.after_power_cut(survive="none"))]
    site.broker.checkpointer.checkpoint()
    site.runtime.run()
    lives.append(Site(disk.after_kill()))
    for each in (site, *lives):
        assert each.broker.topic("a").routes == [latest, earliest]


def test_routes_that_an_earlier_version_wrote_begin_with_all_that_there_is() -> None:
    old = {"table": "t", "op": "Insert", "payload_mode": "Key", "version": 3}
    route = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=Route)
    assert (route.start, route.starts_at) == ("Latest", None)


def test_the_version_of_the_routes_rises_when_a_topic_with_routes_goes_and_never_falls() -> None:
    disk = fresh_disk()
    site = Site(disk)
    site.create("a")
    add_route(site, "a", "x")
    notified: list[int] = []
    site.broker.state.versions.routes.watchers.add(lambda: notified.append(site.broker.state.versions.routes.now))
    site.outcome(lambda reply: site.broker.delete_topic("a", if_empty=False, reply=reply))
    assert (site.broker.state.versions.routes.now, site.broker.state.routes, notified) == (2, {}, [2])
    again = Site(disk.after_kill())
    assert again.broker.state.versions.routes.now == 2
    again.outcome(lambda reply: again.broker.stop(reply))
    assert Site(disk.after_kill()).broker.state.versions.routes.now == 2


def test_an_alias_belongs_to_one_topic_and_is_no_topics_name() -> None:
    site = Site(fresh_disk())
    site.create("a", alias="x")
    for name, alias in (("b", "x"), ("b", "a"), ("b", "b"), ("x", None)):
        with pytest.raises(Conflict):
            site.create(name, alias=alias)
    assert "b" not in site.broker.state.topics
    site.outcome(lambda reply: site.broker.set_alias("a", None, reply))
    site.create("b", alias="x")
    assert site.broker.name_of("x") == "b"


def test_two_topics_asking_for_one_alias_at_once_get_it_once() -> None:
    site = Site(fresh_disk())
    got: list[Any] = []
    site.broker.create_topic("a", ConfigChange(), "x", if_absent=False, reply=got.append)
    with pytest.raises(Conflict):
        site.broker.create_topic("b", ConfigChange(), "x", if_absent=False, reply=got.append)
    site.runtime.run()
    assert site.broker.name_of("x") == "a"
    assert site.broker.aliases_in_flight == set()
