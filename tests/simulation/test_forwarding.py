"""Random histories of routers: any order of events, any end, and readers of the dests are never contradicted.

A seed decides what happens next: a write, a delete, a checkpoint, a turn of the loop, the end of a sync, time passing, a
router made or removed. Runs are cut down to a few records and snapshots to a topic per turn, so that all of these fall
between each other. Then the process is killed or the power goes, and what readers saw is compared with what is there.
"""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings

import topics.broker.durability.checkpointer
import topics.broker.routers.forwarder
from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.routers.routers import WantedRouter
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.model.router import RouterChange
from topics.model.storage_settings import StorageSettings
from topics.testing.disk.fake_disk import FakeDisk

LIMITS = Limits()
SEEDS = range(3000 if hypothesis_settings().max_examples >= 1000 else 120)
STEPS = 250


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics.broker.durability.checkpointer, "IMAGES_PER_TURN", 1)
    monkeypatch.setattr(topics.broker.routers.forwarder, "MAX_RUN_RECORDS", 3)
    # The manual clock does not move within a turn, so this makes every run a step of its own.
    monkeypatch.setattr(topics.broker.routers.forwarder, "STEP_SECONDS", -1.0)


class World:
    """A server with two routed sources and the readers of their dests, driven by chance."""

    DURABILITY = ("memory", "disk", "fsync")

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        disk = FakeDisk(seed)
        disk.make_directory("")
        self.settings = StorageSettings(
            wal_file_bytes=16 << 10,
            checkpoint_bytes=1 << 30,
            margin=50,
            # Either segments with files of their own, or packs.
            **self.chance.choice(
                [
                    {"segment_bytes": 500, "hot_bytes": 5000, "min_segment_bytes": 500},
                    {"segment_bytes": 5000, "hot_bytes": 500, "min_segment_bytes": 2000, "pack_merge_count": 3},
                ]
            ),
        )
        self.under_test = BrokerUnderTest(disk, self.settings)
        self.durability = {name: self.chance.choice(self.DURABILITY) for name in ("s", "a", "b", "c")}
        for name, durability in self.durability.items():
            self.under_test.configure(name, durability=durability, **self.caps(name))
        self.routes = [("s", "a"), ("s", "b"), ("a", "c")]
        for source, dest in self.routes:
            self.under_test.ask(self.under_test.broker.routers.put, self.wanted(source, dest))
        self.number = 0
        self.seen: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in ("a", "b", "c")}
        self.checkpoints = 0

    def caps(self, name: str) -> dict[str, Any]:
        return {"cap_records": 12} if name == "s" and self.chance.random() < 0.5 else {}

    def wanted(self, source: str, dest: str) -> WantedRouter:
        options = RouterChange(
            preserve_node=self.chance.random() < 0.7,
            filter=TagMatch("even", False) if self.chance.random() < 0.3 else None,
            guarantee=self.chance.choice(["at_least_once", "exactly_once"]),
        )
        return WantedRouter(f"{source}->{dest}", source, dest, options)

    def step(self) -> None:
        events = [
            (6, self.write),
            (3, self.delete_below),
            (1, self.delete_tagged),
            (2, self.checkpoint),
            (10, self.under_test.runtime.turn),
            (8, self.finish),
            (6, lambda: self.under_test.runtime.clock.advance(self.chance.choice([0, 0, 0, 1, 20]))),
            (1, self.change_router),
        ]
        self.chance.choices([event for _, event in events], [weight for weight, _ in events])[0]()
        self.look()

    def write(self) -> None:
        records = []
        for _ in range(self.chance.choice([1, 1, 2, 7])):
            self.number += 1
            tag = "odd" if self.number % 2 else "even"
            records.append({"data": f"{self.number}-{'x' * self.chance.randrange(40)}", "tag": tag, "node": "n"})
        topic = self.chance.choices(["s", "a"], [9, 1])[0]
        batch = decode_batch(msgspec.json.encode({"records": records}), LIMITS)
        self.under_test.broker.append(topic, batch, lambda _: None)

    def delete_below(self) -> None:
        head = self.under_test.broker.topic("s").partitions[0].head_seq
        self.under_test.broker.delete_records("s", self.chance.randrange(head + 2), None, 0, lambda _: None)

    def delete_tagged(self) -> None:
        self.under_test.broker.delete_records(
            "s", None, TagMatch(self.chance.choice(["odd", "even"]), False), 0, lambda _: None
        )

    def checkpoint(self) -> None:
        if self.checkpoints < 8:
            self.checkpoints += 1
            self.under_test.broker.checkpointer.checkpoint()

    def finish(self) -> None:
        if self.under_test.runtime.waiting_aside:
            self.under_test.runtime.finish_one()

    def change_router(self) -> None:
        source, dest = self.chance.choice(self.routes)
        try:
            if self.chance.random() < 0.4:
                self.under_test.broker.routers.delete(f"{source}->{dest}", lambda _: None)
            else:
                self.under_test.broker.routers.put(self.wanted(source, dest), lambda _: None)
        except TopicsError:
            pass

    def look(self) -> None:
        for name, seen in self.seen.items():
            for record in self.under_test.read(name):
                known = seen.setdefault(record["$seq"], record)
                assert known == record, f"{name}: a record changed under its readers"

    def compare(self, under_test: BrokerUnderTest, *, power_cut: bool) -> None:
        for name, seen in self.seen.items():
            now = {record["$seq"]: record for record in under_test.read(name)}
            partition = under_test.broker.topic(name).partitions[0]
            assert partition.count == len(now)
            for seq, record in seen.items():
                if seq in now:
                    assert now[seq] == record, f"{name}: seq {seq} is another record now"
                else:
                    assert power_cut, f"{name}: seq {seq} is gone"
                    assert self.durability[name] != "fsync", f"{name}: seq {seq} is gone, and it was safe"
                    assert seq <= partition.head_seq, f"{name}: seq {seq} can be handed out again"


def settled(under_test: BrokerUnderTest) -> BrokerUnderTest:
    under_test.wait(600)
    for router in under_test.broker.state.routers.by_id.values():
        assert under_test.broker.forwarder.lag_of(router) == 0, f"{router.name} does not catch up"
    return under_test


@pytest.mark.parametrize("seed", SEEDS)
def test_readers_of_copies_are_never_contradicted(seed: int) -> None:
    world = World(seed)
    for _ in range(world.chance.randrange(20, STEPS)):
        world.step()
    disk = world.under_test.disk
    killed = BrokerUnderTest(disk.after_kill(), world.settings)
    world.compare(killed, power_cut=False)
    settled(killed)
    for survive in ("none", "random"):
        cut = BrokerUnderTest(disk.after_power_cut(survive=survive), world.settings)
        world.compare(cut, power_cut=True)
        settled(cut)
    again = BrokerUnderTest(killed.disk.after_kill(), world.settings)
    for name in world.seen:
        assert again.read(name) == killed.read(name)
    world.under_test.runtime.run()
    settled(world.under_test)
