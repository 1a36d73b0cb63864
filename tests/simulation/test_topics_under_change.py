"""Random histories of all that is about topics: routers, groups, aliases, routes and archives come, change and go.

Whoever is told an outcome goes on at once, as a pipelining client does; syncs of several shards end in any order and
some writes fail. A version never means two things, everybody is told once, and after a kill all is as it was.
"""

import errno
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import tests.broker.house
import topics.broker.checkpoint
import topics.broker.forward
from tests.broker.house import House
from topics.broker.archives import clear_archive, set_archive
from topics.broker.checkpoint import StorageSettings
from topics.broker.committer import Note
from topics.broker.groups import ack, drop_group
from topics.broker.routers import WantedRouter
from topics.model.archive import ArchiveOptions
from topics.model.batch import decode_batch
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.route import Route
from topics.model.router import RouterChange
from topics.testing.disk import FakeDisk
from topics.testing.runtime import ManualRuntime

NAMES = ("s", "a", "b", "c")
ROUTES = (("s", "a"), ("s", "a"), ("s", "b"), ("a", "c"), ("c", "s"))


class AnyOrder(ManualRuntime):
    """Work aside is done in the order of its thread, and threads in any order."""

    chance = random.Random(0)

    def run_aside(self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._lanes = [*getattr(self, "_lanes", []), lane]
        super().run_aside(lane, work, done)

    def finish_one(self) -> None:
        index = self._lanes.index(self.chance.choice(self._lanes))
        del self._lanes[index]
        self._aside.rotate(-index)
        first = self._aside.popleft()
        self._aside.rotate(index)
        self._aside.appendleft(first)
        super().finish_one()


class World:
    def __init__(self, seed: int) -> None:
        self.chance = AnyOrder.chance = random.Random(seed)
        disk = FakeDisk(seed)
        disk.make_directory("")
        settings = StorageSettings(
            shards=self.chance.choice([1, 2, 3]),
            wal_file_bytes=16 << 10,
            segment_bytes=500,
            hot_bytes=5000,
            checkpoint_bytes=self.chance.choice([1 << 30, 4000]),
            margin=50,
        )
        self.house = House(disk, settings)
        self.broker = self.house.broker
        self.untold = self.asked = 0
        self.versions: dict[tuple[str, int], Any] = {}
        if self.chance.random() < 0.5:
            disk.fault = lambda _step, op, path: (
                errno.EIO if op == "write_at" and path.startswith("wal") and self.chance.random() < 0.1 else None
            )

    def ask(self, operation: Callable[..., None], *arguments: Any, **options: Any) -> None:
        told: list[Any] = []
        self.untold += 1

        def reply(outcome: Any) -> None:
            told.append(outcome)
            assert len(told) == 1
            self.untold -= 1
            self.check_versions()
            if self.chance.random() < 0.25:
                self.act()

        try:
            operation(*arguments, **options, reply=reply)
        except TopicsError as error:
            reply(error)

    def act(self) -> None:
        self.asked += 1
        if self.asked > 300:
            return
        chance, broker = self.chance, self.broker
        name = chance.choice(NAMES)
        topic = broker.state.topics.get(name)
        kind = chance.randrange(14)
        if topic is None or kind == 0:
            caps = {"cap_records": 8, "discard": chance.choice(["old", "reject"])} if chance.random() < 0.4 else {}
            self.ask(broker.configure, name, ConfigChange(durability=chance.choice(["disk", "fsync"]), **caps))
        elif kind == 1:
            self.ask(broker.delete_topic, name, if_empty=chance.random() < 0.5)
        elif kind == 2:
            self.ask(broker.set_alias, name, chance.choice([None, "alias"]))
        elif kind == 3:
            self.ask(set_archive, broker, name, ArchiveOptions(f"s3://lake/{chance.randrange(3)}"))
        elif kind == 4:
            self.ask(clear_archive, broker, name)
        elif kind == 5:
            self.ask(
                broker.change_routes, name, lambda routes, version: [*routes, Route("t", "Insert", "Key", version)][-3:]
            )
        elif kind == 6:
            number = chance.randrange(len(ROUTES))
            change = RouterChange(allow_cycle=True, guarantee=chance.choice(["at_least_once", "exactly_once"]))
            self.ask(broker.routers.put, WantedRouter(f"r{number}", *ROUTES[number], change))
        elif kind == 7:
            self.ask(broker.routers.delete, f"r{chance.randrange(len(ROUTES))}")
        elif kind == 8:
            head = topic.partitions[0].head_seq
            self.ask(ack, broker, topic, "g", topic.partitions[0], chance.randrange(head + 1))
        elif kind == 9:
            self.ask(drop_group, broker, topic, "g")
        else:
            records = [{"data": self.asked}] * chance.choice([1, 2, 5])
            self.ask(broker.append, name, decode_batch(msgspec.json.encode({"records": records}), Limits()))

    def step(self) -> None:
        runtime = self.house.runtime
        kind = self.chance.randrange(24)
        if kind < 8:
            self.act()
        elif kind < 15:
            runtime.turn()
        elif kind < 20:
            if runtime.waiting_aside:
                runtime.finish_one()
        elif kind < 23:
            runtime.clock.advance(self.chance.choice([0, 1, 5, 20]))
        else:
            self.broker.keeper.checkpoint()

    def check_versions(self) -> None:
        state = self.broker.state
        routes = sorted([(topic.id, route.version) for topic in state.by_id.values() for route in topic.routes])
        archives = sorted([(topic.id, topic.archive.begun) for topic in state.archived.values() if topic.archive])
        for kind, version, content in (
            ("routes", state.versions.routes.now, routes),
            ("archives", state.versions.archives.now, archives),
        ):
            assert self.versions.setdefault((kind, version), content) == content


def state_of(house: House) -> Any:
    state = house.broker.state
    topics_ = [
        (name, topic.id, topic.config, topic.alias, topic.routes, topic.archive, house.read(name))
        for name, topic in sorted(state.topics.items())
    ]
    routers = sorted([(each.name, each.source_id, each.dest_id, each.cursors) for each in state.routers.by_id.values()])
    groups = [(topic.name, {name: group.positions for name, group in topic.groups.items() if group.positions}) for topic in state.by_id.values()]  # fmt: skip
    versions = (state.versions.routes.now, state.versions.archives.now)
    return topics_, routers, sorted(groups, key=lambda each: each[0]), versions, sorted(state.aliases)


@pytest.mark.parametrize("seed", range(25))
def test_all_that_was_told_is_true_once_and_again_after_a_kill(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.broker.house, "ManualRuntime", AnyOrder)
    monkeypatch.setattr(topics.broker.checkpoint, "IMAGES_PER_TURN", 1)
    monkeypatch.setattr(topics.broker.forward, "RUN_RECORDS", 3)
    world = World(seed)
    for _ in range(300):
        world.step()
    world.asked = 1000
    world.house.disk.fault = None
    world.house.wait(7000)
    for lane in world.broker.committer.lanes:
        # Notes that could not be written are, behind the next write that works.
        world.broker.committer.submit(lane, Note([]))
    world.house.wait(50)
    assert world.untold == 0
    for topic in world.broker.state.by_id.values():
        partition = topic.partitions[0]
        assert (partition.pending_records, partition.waiting_sync) == (0, 0)
        assert partition.next_seq == partition.head_seq + 1
    assert state_of(world.house.after_kill()) == state_of(world.house)
