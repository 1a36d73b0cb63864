"""Random histories of all that is about topics: routers, groups, aliases, routes and archives come, change and go.

Each answered client continues at once, as a pipelining client does; syncs and storage work end in any order and
some writes fail. A version never has two meanings, every request is answered once, and a kill changes nothing.
"""

import errno
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import tests.broker.broker_under_test
import topics.broker.durability.checkpointer
import topics.broker.routers.forwarder
from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.groups.groups import ack, drop_group
from topics.broker.log.commit import Note
from topics.broker.routers.routers import WantedRouter
from topics.broker.tables.archives import clear_archive, set_archive
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.router import RouterChange
from topics.model.storage_settings import StorageSettings
from topics.model.tables.archive import ArchiveOptions
from topics.model.tables.route import Route
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

NAMES = ("s", "a", "b", "c")
ROUTES = (("s", "a"), ("s", "a"), ("s", "b"), ("a", "c"), ("c", "s"))


class AnyOrder(ManualRuntime):
    """Work aside is done in the order of its thread, and threads in any order."""

    chance = random.Random(0)

    def run_in_thread(
        self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        self._lanes = [*getattr(self, "_lanes", []), lane]
        super().run_in_thread(lane, work, done)

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
            wal_file_bytes=16 << 10,
            segment_bytes=500,
            hot_bytes=5000,
            checkpoint_bytes=self.chance.choice([1 << 30, 4000]),
            margin=50,
        )
        self.under_test = BrokerUnderTest(disk, settings)
        self.broker = self.under_test.broker
        self.untold = self.asked = 0
        self.versions: dict[tuple[str, int], Any] = {}
        if self.chance.random() < 0.5:
            disk.fault = lambda _step, op, path: (
                errno.EIO if op == "write_at" and path.startswith("wal") and self.chance.random() < 0.1 else None
            )

    def ask(self, operation: Callable[..., None], *arguments: Any, **options: Any) -> None:
        outcomes: list[Any] = []
        self.untold += 1

        def reply(outcome: Any) -> None:
            outcomes.append(outcome)
            assert len(outcomes) == 1
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
        runtime = self.under_test.runtime
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
            self.broker.checkpointer.checkpoint()

    def check_versions(self) -> None:
        state = self.broker.state
        routes = sorted([(topic.id, route.version) for topic in state.by_id.values() for route in topic.routes])
        archives = sorted([(topic.id, topic.archive.begun) for topic in state.archived.values() if topic.archive])
        for kind, version, content in (
            ("routes", state.versions.routes.now, routes),
            ("archives", state.versions.archives.now, archives),
        ):
            assert self.versions.setdefault((kind, version), content) == content


def state_of(under_test: BrokerUnderTest) -> Any:
    state = under_test.broker.state
    topics_ = [
        (name, topic.id, topic.config, topic.alias, topic.routes, topic.archive, under_test.read(name))
        for name, topic in sorted(state.topics.items())
    ]
    routers = sorted([(each.name, each.source_id, each.dest_id, each.cursors) for each in state.routers.by_id.values()])
    groups = [(topic.name, {name: group.positions for name, group in topic.groups.items() if group.positions}) for topic in state.by_id.values()]  # fmt: skip
    versions = (state.versions.routes.now, state.versions.archives.now)
    return topics_, routers, sorted(groups, key=lambda each: each[0]), versions, sorted(state.aliases)


@pytest.mark.parametrize("seed", range(25))
def test_everything_reported_is_true_live_and_after_a_kill(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.broker.broker_under_test, "ManualRuntime", AnyOrder)
    monkeypatch.setattr(topics.broker.durability.checkpointer, "IMAGES_PER_TURN", 1)
    monkeypatch.setattr(topics.broker.routers.forwarder, "MAX_RUN_RECORDS", 3)
    world = World(seed)
    for _ in range(300):
        world.step()
    world.asked = 1000
    world.under_test.disk.fault = None
    world.under_test.wait(7000)
    # Notes whose write failed are written with the next write that succeeds.
    world.broker.committer.submit(Note([]))
    world.under_test.wait(50)
    assert world.untold == 0
    for topic in world.broker.state.by_id.values():
        partition = topic.partitions[0]
        assert (partition.pending_records, partition.waiting_sync) == (0, 0)
        assert partition.next_seq == partition.head_seq + 1
    assert state_of(world.under_test.after_kill()) == state_of(world.under_test)
