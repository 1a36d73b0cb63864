"""Watch streams under everything at once: slow and broken clients, deletes, evictions, expiry, killed servers.

The handlers of the server run on a broker whose disk and clock belong to the test, so that a seed replays a history
exactly. Every frame of every client is checked as it is read.
"""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from topics.api.live import WatchBody, WatchQuery
from topics.broker.transactions.stages import commit
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.server.live.shared import Live, LiveSettings
from topics.server.live.watch import get_watch, post_watch
from topics.server.operations import Call
from topics.server.ops.connection_limits import StreamSlots
from topics.server.service import Service
from topics.testing.broker import BrokerBench
from topics.testing.events import EventParser
from topics.testing.history import History, Truth
from topics.testing.wire import DirectRequest

FRAMES = 1_000_000
SEEDS = 4

# Name and configuration: everything kept, synced before it is seen, lossy by number, lossy by bytes, lossy by age.
TOPICS: dict[str, dict[str, object]] = {
    "kept": {},
    "synced": {"durability": "fsync"},
    "few": {"cap_records": 40},
    "small": {"cap_bytes": 4000, "durability": "fsync"},
    "young": {"ttl_ms": 2000},
}
decode = msgspec.json.decode
encode = msgspec.json.encode


class Client:
    """Watches some topics, reads when it is let, and comes back with the last id it has seen."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        chance = world.chance
        self.history = History(own_node=number % 3 if number % 2 else None)
        self.names = chance.sample(sorted(TOPICS), chance.randint(1, len(TOPICS)))
        self.wishes = {
            "limit": chance.choice([1, 3, 20, 256]),
            "max_batch_bytes": chance.choice([1, 500, 100_000]),
            "consistency": chance.choice(["strong", "eventual"]),
            "heartbeat_ms": 60_000,
            **({} if self.history.own_node is None else {"node": f"n{self.history.own_node}"}),
        }
        self.high = chance.choice([0, 300, 5000])
        self.eagerness = chance.choice([0.01, 0.1, 0.9])
        self.url = b""
        self.last_id = b""
        self.wire = DirectRequest(b"GET", b"/").wire
        self.parser = EventParser()

    def subscribe(self) -> None:
        """A new session: at first, after the server lost the old one, or when every topic is over."""
        history = self.history
        starts = {}
        for name in self.names:
            truth = self.world.truths[name]
            if history.instances.get(name) is not truth:
                # A write under way counts as written in the truth, but a strong reader may not begin behind it.
                head = self.world.bench.broker.topic(name).partitions[0].head_seq
                history.begin(truth, head if self.world.chance.random() < 0.3 else 0)
            history.over.discard(name)
            starts[name] = {"from_seq": history.cursors[name]}
        request = DirectRequest(
            b"POST", b"/v0/watch", encode({"topics": starts, **self.wishes}), {b"content-type": b"application/json"}
        )
        call = self.world.call(request, "")
        call.body, call.query = decode(request.request.body, type=WatchBody), WatchQuery()
        post_watch(call)
        assert request.status == 200, request.answer
        self.url = decode(request.answer)["wid"].encode()
        self.last_id = b""

    def connect(self) -> None:
        headers = {b"last-event-id": self.last_id} if self.last_id else {}
        request = DirectRequest(b"GET", b"/v0/watch/" + self.url, headers=headers, high=self.high)
        get_watch(self.world.call(request, self.url.decode()))
        self.wire = request.wire
        self.parser = EventParser()

    def cut(self) -> None:
        """The connection breaks; what was on its way is lost."""
        self.wire.cut()

    def come_back(self) -> None:
        # Without an id the session goes on behind what was sent, seen or not: a reader that has seen nothing begins again.
        if not self.last_id:
            self.subscribe()
        self.connect()

    def read(self) -> None:
        world = self.world
        world.note_losses()
        for event in self.parser.feed(self.wire.take()):
            if event.name and event.name != "error":
                body = decode(event.text)
                self.history.receive(event.name, body, world.ever)
                self.last_id = event.id.encode()
        if len(self.history.over) == len(self.names):
            if not any([world.truths[name].gone for name in self.names]):
                self.wire.cut()
                self.subscribe()
                self.connect()
        elif self.wire.ended or self.wire.is_closing:
            self.come_back()

    def behind(self) -> bool:
        """Whether this client should still get a frame."""
        history = self.history
        return any(
            [
                not history.may_pass(name, truth.head)
                for name in self.names
                if name not in history.over and (truth := history.instances[name]) is self.world.truths[name]
            ]
        )


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = BrokerBench()
        # The topics as they are now, and all there ever were.
        self.truths: dict[str, Truth] = {}
        self.ever: dict[int, Truth] = {}
        self.instances = 0
        self.restarts = 0
        self.batches = 0
        for name in TOPICS:
            self.create(name)
        self.live = self.new_live()
        self.clients = [Client(self, number) for number in range(24)]
        for client in self.clients:
            client.subscribe()
            client.connect()

    @property
    def frames(self) -> int:
        return sum([client.history.frames for client in self.clients])

    def run(self, frames: int) -> None:
        """Run until this many frames were checked."""
        rare: list[Callable[[], None]] = [
            self.delete_below, self.delete_tag, self.pass_time, self.recreate, self.restart, self.stall,
        ]  # fmt: skip
        weights = [20, 20, 40, 6, 1, 2]
        while self.frames < frames:
            for _ in range(8):
                self.append()
                for client in self.clients:
                    if self.chance.random() < client.eagerness:
                        client.read()
            self.cut_some()
            self.chance.choices(rare, weights)[0]()
        self.drain()

    def new_live(self) -> Live:
        limits = Limits()
        settings = LiveSettings(session_ttl_ms=300_000, buffer_grace_ms=500, slow_consumer_timeout_ms=5_000)
        return Live(limits, settings, StreamSlots(limits))

    def call(self, request: DirectRequest, name: str) -> Call[Any, Any]:
        """A call as the server makes it after its checks."""
        return Call(cast(Service, SimpleNamespace(live=self.live)), self.bench.broker, request.request, name)

    def create(self, name: str) -> None:
        self.instances += 1
        self.truths[name] = self.ever[self.instances] = Truth(name, self.instances)
        self.bench.configure(name, **TOPICS[name])

    def append(self) -> None:
        truth = self.truths[self.chance.choice(list(TOPICS))]
        committed: list[object] = []
        if commits := self.chance.random() < 0.2:
            # A commit is synced, whatever the topic's class; the write below comes behind it.
            batch = decode_batch(self.body(truth), self.bench.limits)
            self.batches += 1
            commit(
                self.bench.broker, CommitRequest([], [Write(truth.name, batch)], "p", self.batches), committed.append
            )
        outcome = self.bench.submit(truth.name, self.body(truth))
        # The log has it; who reads what is not synced yet may read now.
        self.bench.runtime.turn()
        self.chance.choice(self.clients).read()
        self.bench.runtime.run()
        assert outcome[0].last_seq == truth.head
        assert len(committed) == commits

    def body(self, truth: Truth) -> bytes:
        """The next records of the topic."""
        records = []
        for _ in range(self.chance.choice([1, 1, 1, 2, 5, 30])):
            truth.head += 1
            seq = truth.head
            records.append({"data": truth.data(seq), "node": f"n{truth.node(seq)}", "tag": f"t{truth.tag(seq)}"})
        return encode({"records": records})

    def delete_below(self) -> None:
        truth = self.truths[self.chance.choice(list(TOPICS))]
        truth.deleted_below = max(truth.deleted_below, self.chance.randint(max(1, truth.head - 100), truth.head + 1))
        self.bench.delete_records(truth.name, before_seq=truth.deleted_below)

    def delete_tag(self) -> None:
        truth = self.truths[self.chance.choice(list(TOPICS))]
        tag = self.chance.randrange(7)
        truth.deleted_tags[tag] = truth.head
        self.bench.delete_records(truth.name, tag=f"t{tag}")

    def pass_time(self) -> None:
        self.bench.clock.advance(self.chance.choice([1, 100, 600, 3000]))
        self.bench.runtime.run()

    def stall(self) -> None:
        """Long enough for those who do not read to be let go."""
        self.bench.clock.advance(6000)
        self.bench.runtime.run()

    def recreate(self) -> None:
        name = self.chance.choice(list(TOPICS))
        self.note_losses()
        self.truths[name].gone = True
        self.bench.delete_topic(name)
        for client in self.clients:
            if self.chance.random() < 0.5:
                client.read()
        self.create(name)

    def restart(self) -> None:
        self.restarts += 1
        for client in self.clients:
            client.cut()
        self.bench = self.bench.after_kill()
        self.live = self.new_live()
        for client in self.clients:
            client.subscribe()
            client.connect()

    def cut_some(self) -> None:
        for client in self.clients:
            if self.chance.random() < 0.05:
                client.cut()
                client.come_back()
        self.bench.disk.trace.clear()

    def drain(self) -> None:
        """Everybody reads to the end: nothing that can be had is left out."""
        for _ in range(10_000):
            for client in self.clients:
                client.read()
            self.bench.runtime.run()
            if not any([client.behind() for client in self.clients]):
                return
        raise AssertionError("a client never catches up")

    def note_losses(self) -> None:
        for name, truth in self.truths.items():
            topic = self.bench.broker.state.topics.get(name)
            if topic is not None and not truth.gone:
                truth.lost_below = topic.partitions[0].evict_floor


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [0, *[pytest.param(seed, marks=pytest.mark.long) for seed in range(1, SEEDS)]])
def test_a_million_frames_keep_every_promise(seed: int) -> None:
    world = World(seed)
    world.run(FRAMES // SEEDS)
    histories = [client.history for client in world.clients]
    assert sum([history.frames for history in histories]) >= FRAMES // SEEDS
    # A history in which nothing went wrong would prove nothing.
    assert sum([history.tombstones for history in histories]) > 300
    assert world.instances > len(TOPICS) + 10
    assert world.restarts > 0
    assert sum([history.records for history in histories]) > 100_000


def test_a_short_history_keeps_every_promise() -> None:
    World(99).run(10_000)
