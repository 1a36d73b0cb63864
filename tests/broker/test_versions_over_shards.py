"""With several shards of the log, what is counted by one version becomes true in the order of its versions."""

import errno
from typing import Any

import pytest

from tests.broker.house import House
from tests.broker.test_routers import TWO_SHARDS
from topics.broker.archives import clear_archive, set_archive
from topics.broker.broker import Broker
from topics.broker.routers import WantedRouter
from topics.model.archive import ArchiveOptions
from topics.model.errors import Conflict, TopicsError, Unavailable
from topics.model.route import Route
from topics.testing.disk import FakeDisk


def add_route(broker: Broker, name: str, reply: Any) -> None:
    broker.change_routes(name, lambda routes, version: [*routes, Route("t", "Insert", "Key", version)], reply)


def in_different_shards(house: House) -> None:
    """Of "a" and "b", which are made here, the second one's shard is written and synced first."""
    for name in "ab":
        house.configure(name)
    numbers = [house.broker.committer.lane_of(house.broker.topic(name).id).shard.number for name in "ab"]
    assert numbers == [1, 0]


def test_no_route_becomes_true_under_a_version_that_was_told_before() -> None:
    house = House(settings=TWO_SHARDS)
    in_different_shards(house)
    broker = house.broker
    told: list[tuple[int, int]] = []

    def tell(_: Any) -> None:
        told.append((broker.state.versions.routes.now, len(broker.state.routes.get(("t", "Insert"), []))))

    add_route(broker, "a", tell)
    add_route(broker, "b", tell)
    house.runtime.run()
    assert told == [(1, 1), (2, 2)]
    # One goes with its topic, one comes.
    broker.delete_topic("a", if_empty=False, reply=tell)
    add_route(broker, "b", tell)
    house.runtime.run()
    assert told[2:] == [(3, 1), (4, 2)]
    again = house.after_power_cut().broker
    assert again.state.versions.routes.now == 4


def test_no_archive_becomes_true_under_a_version_that_was_told_before() -> None:
    house = House(settings=TWO_SHARDS)
    in_different_shards(house)
    broker = house.broker
    told: list[tuple[int, int]] = []

    def tell(_: Any) -> None:
        told.append((broker.state.versions.archives.now, len(broker.state.archived)))

    for name in "ab":
        set_archive(broker, name, ArchiveOptions(f"s3://lake/{name}"), tell)
    house.runtime.run()
    assert told == [(1, 1), (2, 2)]
    clear_archive(broker, "a", tell)
    broker.delete_topic("b", if_empty=False, reply=tell)
    house.runtime.run()
    assert told[2:] == [(3, 1), (4, 0)]


def test_a_change_behind_one_that_failed_is_decided_and_told() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    house = House(disk, TWO_SHARDS)
    in_different_shards(house)
    told: list[Any] = []
    disk.fault = lambda _step, op, path: errno.EIO if op == "write_at" and "shard-01" in path else None
    for name in ("a", "a", "b", "missing"):
        try:
            add_route(house.broker, name, told.append)
        except TopicsError as error:
            assert name == "missing"
            told.append(error)
    house.broker.delete_topic("b", if_empty=False, reply=told.append)
    house.runtime.run()
    assert len(told) == 5
    assert sum([isinstance(outcome, Unavailable) for outcome in told]) == 2
    assert "b" not in house.broker.state.topics
    assert house.broker.state.versions.routes.under_way == 0


# A sync that failed: its shard takes no more, the others go on, and the next start may find what was never answered.


@pytest.fixture
def half_failed() -> House:
    """A sync of shard 1 fails from here on."""
    disk = FakeDisk()
    disk.make_directory("")
    house = House(disk, TWO_SHARDS)
    in_different_shards(house)
    house.configure("c")
    house.configure("d")
    disk.fault = lambda _step, op, path: errno.EIO if op == "sync_data" and "shard-01" in path else None
    return house


def test_a_router_that_could_not_be_made_is_not_there_beside_the_next_of_its_name(half_failed: House) -> None:
    house = half_failed
    with pytest.raises(Unavailable):
        house.ask(house.broker.routers.put, WantedRouter("r", "b", "a"))
    house.ask(house.broker.routers.put, WantedRouter("r", "b", "d"))
    again = house.after_kill()
    assert [router.name for router in again.broker.state.routers.by_id.values()] == ["r"]
    again.append("b", 1)
    assert (again.datas("a"), again.datas("d")) == ([], [1])


def test_an_alias_that_could_not_be_given_belongs_to_the_next_that_got_it(half_failed: House) -> None:
    house = half_failed
    with pytest.raises(Unavailable):
        house.ask(house.broker.set_alias, "a", "alias")
    house.ask(house.broker.set_alias, "b", "alias")
    again = house.after_kill()
    assert [again.broker.topic(name).alias for name in "ab"] == [None, "alias"]
    again.checkpoint()
    assert again.after_kill().broker.state.aliases["alias"].name == "b"


def test_a_table_that_could_not_be_given_to_a_topic_is_given_to_no_other_before_the_next_start(
    half_failed: House,
) -> None:
    """Which may find that it was given after all; the archive the topic had before is gone then."""
    house = half_failed
    lake, other = ArchiveOptions("s3://lake/x"), ArchiveOptions("s3://lake/y")
    with pytest.raises(Unavailable):
        house.ask(set_archive, house.broker, "a", lake)
    with pytest.raises(Unavailable):
        house.ask(set_archive, house.broker, "a", lake)
    with pytest.raises(Conflict):
        house.ask(set_archive, house.broker, "b", lake)
    house.ask(set_archive, house.broker, "b", other)
    found = house.after_kill().broker.state.archived.values()
    assert {topic.name: topic.archive and topic.archive.options for topic in found} == {"a": lake, "b": other}
    without = house.after_power_cut()
    without.ask(set_archive, without.broker, "b", lake)
    assert [topic.name for topic in without.broker.state.archived.values()] == ["b"]


def test_new_topics_go_to_shards_that_work(half_failed: House) -> None:
    house = half_failed
    with pytest.raises(Unavailable):
        house.configure("a", cap_records=5)
    for name in ("e", "f"):
        house.append(name, name)
    house.ask(house.broker.routers.put, WantedRouter("r", "g", "h"))
    house.append("g", 1)
    for again in (house, house.after_kill(), house.after_power_cut()):
        assert [again.datas(name) for name in "efgh"] == [["e"], ["f"], [1], [1]]
