"""Random histories in which turns are torn apart: callbacks run one by one, requests come between any two of them.

A reply may bring the next request at once, as a pipelined one does. Single records join groups, syncs are done on the spot
or aside by chance, segments are sealed and snapshots taken all the while, the disk is full for a while, a sync may
fail, topics come and go, and jobs of queues are claimed and settled. What was acknowledged is held against the model of
`tests/crash/world.py`: while it runs, after a kill, after a power cut. Each history follows from its seed.
"""

import errno
import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings

from tests.crash.history import texts
from tests.crash.world import SMALL, Known, Text, World, Write, compare, verify
from tests.simulation.live_and_replayed import compare as compare_with_replay
from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.broker.log.sync_policy import MIN_FAST_SYNCS
from topics.broker.topics.append import Append, AppendGroup, Runs
from topics.broker.transactions.stages import commit as commit_together
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.engine.transactions.commit_request import CommitRequest
from topics.engine.transactions.commit_request import Write as StagedWrite
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.server.topics.pending_appends import PendingAppends
from topics.server.topics.throttle import Throttle
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

LONG = hypothesis_settings().max_examples >= 1000
LIMITS = Limits()
LOGS = ["fsync", "fsync2", "disk", "memory", "capped", "full", "short", "gone", "loose"]
FOLLOWED = ["fsync", "fsync2", "disk", "memory", "loose"]
QUEUES = ["queue", "firm"]
NODES = ["a", "b"]
REFUSALS = {"storage_full", "storage_error", "read_only", "topic_full", "topic_not_found"}


class OneByOne(ManualRuntime):
    """Callbacks run when the history says so, one at a time."""

    def step(self) -> bool:
        if not self._soon:
            return False
        self._soon.popleft()()
        return True


class Errors(list[TopicsError]):
    """Calls back for every refused request."""

    def __init__(self, answered: Callable[[], None]) -> None:
        super().__init__()
        self._answered = answered

    def append(self, error: TopicsError) -> None:
        super().append(error)
        self._answered()


class Names(set[str]):
    """Names of topics that may exist without having been heard of. A name is never removed: requests for it arrive all the time."""

    def discard(self, name: str) -> None:
        pass


class Asked:
    """A request for a single record, as an pending sees it; also its head."""

    def __init__(self, world: "TornWorld", topic: str, text: Text) -> None:
        self.write = Write(topic, [text], None)
        self.body = b'{"records":[%b]}' % text.body()
        self.head = self
        self.door: object = None
        self.received_at = 0.0
        self._world = world

    def renew(self, body: bytes, received_at: float) -> None:
        pass

    def handle(self) -> None:
        """It does not wait with the others; what becomes of it is another write to the model."""
        world, write = self._world, self.write
        world.promises.writes.remove(write)
        if not world.join(write.topic, write.texts[0]):
            world.append(write.topic, write.texts)


class TornWorld(World):
    """A world whose requests may come at any moment, also while others are under way."""

    runtime: OneByOne
    # What pending_appends want to know of a service.
    stopping = False
    throttle = Throttle()

    def boot(self) -> None:
        self.runtime = OneByOne(self.clock)
        self.recovered = recover(self.fs, self.settings)
        self.broker = Broker(self.fs, self.runtime, self.recovered, LIMITS, self.settings)
        self.broker.start()
        self.run()
        self.deleting: list[str] = []
        # One object for all: writes join only those who are answered by the same.
        self.answer = self.answer_joined
        self.pending_appends: dict[str, PendingAppends] = {}
        self.configuring: set[str] = set()

    def know(self, topic: Any) -> Known:
        known = super().know(topic)
        if topic.name in self.deleting:
            known.deleting = True
        return known

    def hand_in(self, topic: str, text: Text) -> bool:
        """Into the pending of the topic, as a connection does whose head is known; there must be such a topic."""
        asked = Asked(self, topic, text)
        pending = self.pending_appends.setdefault(topic, PendingAppends(self, self.broker, topic, self.answer))  # type: ignore[arg-type]
        if not pending.add(asked):  # type: ignore[arg-type]
            return False
        self.promises.writes.append(asked.write)
        return True

    def join(self, topic: str, text: Text) -> bool:
        """The short way of a single record, when it may take it."""
        asked = Asked(self, topic, text)
        if not self.broker.join(topic, decode_batch(asked.body, LIMITS), [asked], self.answer):
            return False
        self.promises.writes.append(asked.write)
        return True

    def answer_joined(self, name: bytes, head_seq: int, _timing: bytes, runs: Runs, error: TopicsError | None) -> None:
        topic = self.broker.state.topics.get(name.decode())
        for first_seq, run in runs:
            for seq, asked in enumerate(run, first_seq):
                write = asked.write
                assert write.state == "open", "answered twice"
                if error is not None:
                    write.state = "unknown" if error.code == "read_only" else "refused"
                    self.errors.append(error)
                else:
                    assert topic is not None
                    assert seq <= head_seq == topic.partitions[0].head_seq
                    self.acked(write, self.placed(topic, topic.partitions[0], seq, 1))

    def placed(self, topic: Topic, partition: Partition, first_seq: int, count: int) -> Append:
        """The outcome of a write whose records start at `first_seq`."""
        outcome = Append(topic, partition, first_seq, count, None, lambda _: None)
        outcome.group = AppendGroup(self.broker, topic, partition)
        page = partition.find(first_seq)
        if page is not None:
            times = page.times
            outcome.group.reservation.ts = (
                times if isinstance(times, int) else memoryview(times).cast("q")[first_seq - page.first_seq]
            )
        return outcome

    def acked(self, write: Write, outcome: Any) -> None:
        assert write.state == "open", "answered twice"
        super().acked(write, outcome)
        self.answered()

    def answered(self) -> None:
        """A request was answered."""

    def remove(self, name: str) -> None:
        self.deleting.append(name)
        for known in self.promises.topics.values():
            if known.name == name and not known.deleted:
                known.deleting = True

        def reply(outcome: Any) -> None:
            if isinstance(outcome, TopicsError):
                self.errors.append(outcome)
                return
            self.deleting.remove(name)
            for known in self.promises.topics.values():
                known.deleted = known.deleted or known.name == name

        try:
            self.broker.delete_topic(name, if_empty=False, reply=reply)
        except TopicsError as error:
            reply(error)

    def delete_below(self, name: str, before_seq: int) -> None:
        topic = self.broker.state.topics.get(name)
        if topic is None or self.broker.is_busy(name):
            return
        known = self.know(topic)
        seqs = set(range(1, min(before_seq, topic.partitions[0].head_seq + 1)))
        known.going |= seqs

        def reply(outcome: Any) -> None:
            if isinstance(outcome, TopicsError):
                self.errors.append(outcome)
                return
            known.gone |= seqs
            if outcome.topic.config.durability == "fsync":
                known.gone_firmly |= seqs

        try:
            self.broker.delete_records(name, before_seq, None, 0, reply)
        except TopicsError as error:
            reply(error)

    def change(self, name: str, **fields: Any) -> None:
        """One change of a topic at a time, so that the model knows which configurations are possible."""
        busy = name in self.configuring or name in self.deleting or self.broker.is_busy(name)
        # What a failed sync has left undecided stays so until the next start.
        if busy or self.broker.committer.read_only:
            return
        self.configuring.add(name)
        known = self.promises.named(name)
        if known is not None:
            known.was_capped = True
        before = self.broker.configure

        def configure(name: str, change: Any, reply: Callable[[Any], None]) -> None:
            def done(outcome: Any) -> None:
                self.configuring.discard(name)
                reply(outcome)

            try:
                before(name, change, done)
            except TopicsError:
                self.configuring.discard(name)
                raise

        self.broker.configure = configure  # type: ignore[method-assign]
        try:
            self.configure(name, **fields)
        finally:
            self.broker.configure = before  # type: ignore[method-assign]


class Lease:
    def __init__(self, node: str, until: int, lease_id: str) -> None:
        self.node = node
        self.until = until
        self.lease_id = lease_id


class History:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.numbers = itertools.count()
        disk = FakeDisk(seed, sector_bytes=128)
        disk.make_directory("")
        self.disk = disk
        margin = self.chance.choice([12, 1000])
        # All writes in the thread, those of more than one record, or none.
        max_loop_write_bytes = (0, 200, 1 << 20)[seed % 3]
        settings = msgspec.structs.replace(SMALL, margin=margin, max_loop_write_bytes=max_loop_write_bytes)
        if self.chance.random() < 0.3:
            settings = msgspec.structs.replace(settings, segment_bytes=1 << 20, hot_bytes=1 << 22)
        self.world = TornWorld(disk, settings)
        self.world.answered = self.maybe_go_on  # type: ignore[method-assign]
        self.world.errors = Errors(self.maybe_go_on)
        self.world.promises.creating = Names()
        # Jobs as they were delivered, by topic and seq; and how many deep requests follow each other at once.
        self.leases: dict[tuple[int, int], Lease] = {}
        self.depth = 0
        self.full_until = 0
        # After how many steps the live state is compared with the replayed one.
        self.replay_every = 1 if LONG or seed % 10 == 0 else 20
        disk.fault = self.fault
        self.sync_fails = False
        self.faulty = self.chance.random() < 0.4
        self.crowds = self.chance.choice([0, 0.2, 0.4])
        world = self.world
        world.change("fsync", durability="fsync")
        world.change("fsync2", durability="fsync")
        world.change("disk", durability="disk")
        world.change("memory", durability="memory")
        world.change("capped", durability="fsync", cap_records=9)
        world.change("full", durability="disk", cap_records=20, discard="reject")
        world.change("loose", durability="ephemeral")
        world.change("short", ttl_ms=3000)
        ttl = self.chance.choice([0, 0, 2000])
        world.change("queue", type="queue", durability=self.chance.choice(["disk", "fsync"]), lease_ms=1000, ttl_ms=ttl)
        world.change("firm", type="queue", durability="fsync", leases_durable=True, lease_ms=1000, ttl_ms=ttl)
        world.run()
        # How far those who watch a log have come.
        self.followed: dict[str, int] = {}
        for name in FOLLOWED:
            self.follow(name)

    def follow(self, name: str) -> None:
        """Read the head whenever the watcher is called."""
        topic = self.world.broker.topic(name)

        def look() -> None:
            self.followed[name] = topic.partitions[0].head_seq

        self.world.broker.watch(topic, look)
        look()

    def fault(self, _step: int, op: str, path: str) -> int | None:
        if not path.endswith(".wal"):
            return None
        if op == "sync_data" and self.sync_fails:
            return errno.EIO
        if self.full_until and op in ("write_at", "allocate"):
            return errno.ENOSPC
        return None

    # One step after the other

    def play(self, steps: int) -> None:
        for number in range(steps):
            self.step()
            committer = self.world.broker.committer
            # What is written and waits for its sync is in the log, and not yet in the live state.
            if number % self.replay_every == 0 and committer.idle and not committer.disk_busy:
                compare_with_replay(self.world.broker, self.disk, self.world.settings, self.world.clock.now_ms())

    def step(self) -> None:
        chance, world = self.chance, self.world
        if chance.random() < self.crowds:
            self.crowd()
            return
        what = chance.random()
        if what < 0.45:
            self.request()
        elif what < 0.75:
            for _ in range(chance.choice([1, 1, 2, 5])):
                world.runtime.step()
        elif what < 0.88:
            if world.runtime.waiting_aside:
                world.runtime.finish_one()
        elif what < 0.91:
            world.clock.advance(chance.choice([0, 1, 1, 20, 700]))
        elif what < 0.93:
            world.checkpoint()
        elif what < 0.95:
            name = chance.choice(LOGS + QUEUES)
            topic = world.broker.state.topics.get(name)
            if topic is not None:
                world.broker.sealer.seal(topic, topic.partitions[0])
        elif what < 0.98:
            world.broker.committer.policy.fast_syncs = chance.choice([0, MIN_FAST_SYNCS, MIN_FAST_SYNCS])
        elif what < 0.99:
            self.full_until = int(self.faulty and chance.random() < 0.5)
        else:
            self.rest()
            self.check()

    def crowd(self) -> None:
        """Single records for one log, when nothing else may be on its way there; then perhaps others before they are read."""
        chance, world = self.chance, self.world
        for _ in range(chance.choice([0, 5, 50])):
            world.runtime.step()
        name = chance.choice(["disk", "memory", "gone", "short", "queue"])
        for text in texts(self.numbers, chance.randint(2, 6), size=chance.choice([5, 60])):
            world.hand_in(name, text)
        if chance.random() < 0.7:
            for _ in range(chance.choice([1, 2, 3])):
                world.runtime.step()

    def request(self) -> None:
        chance, world = self.chance, self.world
        what = chance.random()
        name = chance.choice(LOGS)
        if what < 0.4:
            (text,) = texts(self.numbers, 1, size=chance.choice([5, 60]))
            if (chance.random() < 0.4 or not world.hand_in(name, text)) and not world.join(name, text):
                world.append(name, [text])
        elif what < 0.55:
            world.append(name, texts(self.numbers, chance.randint(1, 4), tag=chance.choice([None, "a"]), size=30))
        elif what < 0.6:
            # A key of its own: a repeat would be another write to the model.
            world.append(name, texts(self.numbers, 1), key=f"k{next(self.numbers)}")
        elif what < 0.65:
            world.append(chance.choice(QUEUES), texts(self.numbers, chance.randint(1, 6), size=20))
        elif what < 0.85:
            self.queue_request()
        elif what < 0.9:
            self.commit()
        elif what < 0.94:
            topic = world.broker.state.topics.get(name)
            # An eviction is noted when it can be; where it meets a delete the model would have to know which came first.
            if topic is not None and name != "capped":
                head = topic.partitions[0].head_seq
                world.delete_below(name, chance.randint(max(0, head - 6), head + 3))
        elif what < 0.98:
            change = chance.choice([{"durability": "fsync"}, {"durability": "disk"}, {"ttl_ms": 4000}, {"ttl_ms": 0}])
            world.change(chance.choice(["gone", "disk", "memory"]), **change)
        else:
            world.remove("gone")

    def maybe_go_on(self) -> None:
        """Maybe send another request inside the reply."""
        if self.depth < 3 and self.chance.random() < 0.4:
            self.depth += 1
            try:
                self.request()
            finally:
                self.depth -= 1

    def commit(self) -> None:
        """Records of two topics that become readable together."""
        world, chance = self.world, self.chance
        names = chance.sample(["fsync", "fsync2", "disk", "memory", "queue"], 2)
        writes = [Write(name, texts(self.numbers, 2), None) for name in names]
        staged = []
        for write in writes:
            body = b'{"records":[%b]}' % b",".join([text.body() for text in write.texts])
            staged.append(StagedWrite(write.topic, decode_batch(body, LIMITS)))

        def reply(outcome: Any) -> None:
            for write in writes:
                assert write.state == "open", "answered twice"
            if isinstance(outcome, TopicsError):
                world.errors.append(outcome)
                for write in writes:
                    write.state = "unknown" if outcome.code == "read_only" else "refused"
                return
            for write, placed in zip(writes, outcome.placed, strict=True):
                topic = world.broker.state.topics[write.topic]
                done = world.placed(topic, topic.partitions[0], placed.first_seq, placed.count)
                world.acked(write, done)
            self.maybe_go_on()

        for write in writes:
            world.promises.writes.append(write)
        try:
            commit_together(world.broker, CommitRequest([], staged), reply)
        except TopicsError as error:
            reply(error)

    # Queues

    def queue_request(self) -> None:
        world, chance = self.world, self.chance
        name = chance.choice(QUEUES)
        topic = world.broker.state.topics.get(name)
        if topic is None:
            return
        node = chance.choice(NODES)
        queues = world.broker.queues
        mine = [seq for (topic_id, seq), lease in self.leases.items() if topic_id == topic.id and lease.node == node]
        what = chance.random()
        if what < 0.5 or not mine:
            most = chance.randint(1, 5)
            lease_ms = chance.choice([100, 1000])

            def claimed(outcome: Any) -> None:
                if isinstance(outcome, TopicsError):
                    world.errors.append(outcome)
                elif outcome.delivery is not None:
                    now = world.clock.now_ms()
                    for seq in outcome.delivery.seqs:
                        held = self.leases.get((topic.id, seq))
                        assert held is None or held.until < now or held.node == node, (
                            f"{name} {seq} was delivered twice"
                        )
                        assert seq not in world.know(topic).gone, f"{name} {seq} is done and was delivered"
                        self.leases[topic.id, seq] = Lease(
                            node, outcome.delivery.deadline, outcome.delivery.lease_id(seq)
                        )
                self.maybe_go_on()

            try:
                queues.claim(name, 0, node, most, lease_ms, 0, claimed)
            except TopicsError as error:
                claimed(error)
            return
        seqs = chance.sample(mine, chance.randint(1, len(mine)))
        if chance.random() < 0.7:
            seqs.sort()
        # Removed before the request: from here on another node may get them first.
        before = {seq: self.leases.pop((topic.id, seq)) for seq in seqs}
        # Without ids the node could give up a lease whose reply it has not got yet; only a durable one takes that long.
        ids = [before[seq].lease_id for seq in seqs] if name == "firm" or chance.random() < 0.5 else None
        if what < 0.8:
            known = world.know(topic)
            known.going |= set(seqs)

            def acked(outcome: Any) -> None:
                if isinstance(outcome, TopicsError):
                    world.errors.append(outcome)
                    return
                done = set(seqs) - set(outcome.skipped)
                assert outcome.count == len(done)
                known.gone |= done
                if topic.config.durability == "fsync":
                    known.gone_firmly |= done
                self.maybe_go_on()

            try:
                queues.ack(name, 0, node, seqs, ids, acked, lambda answers: [each(out) for each, out in answers])
            except TopicsError as error:
                acked(error)
        elif what < 0.9:
            try:
                queues.nack(name, 0, node, seqs, ids, chance.choice([0, 0, 500]), self.settled)
            except TopicsError as error:
                self.settled(error)
        else:

            def extended(outcome: Any) -> None:
                if isinstance(outcome, TopicsError):
                    world.errors.append(outcome)
                else:
                    for seq in outcome.seqs:
                        held = self.leases.get((topic.id, seq))
                        if held is not None and held.node == node:
                            self.leases[topic.id, seq] = Lease(node, outcome.deadline, held.lease_id)

            self.leases.update({(topic.id, seq): lease for seq, lease in before.items()})
            try:
                queues.extend(name, 0, node, seqs, ids, 1000, extended)
            except TopicsError as error:
                extended(error)

    def settled(self, outcome: Any) -> None:
        if isinstance(outcome, TopicsError):
            self.world.errors.append(outcome)

    # Looking

    def rest(self) -> None:
        """Until nothing is under way. Commits over several topics look again after a millisecond."""
        self.full_until = 0
        self.depth += 3
        for _ in range(50):
            self.world.run()
            self.world.clock.advance(1)
        self.world.run()
        self.depth -= 3

    def check(self) -> None:
        """Nothing is under way."""
        world = self.world
        committer = world.broker.committer
        assert committer.idle
        assert {error.code for error in world.errors} <= REFUSALS, world.errors
        assert all([write.state != "open" for write in world.promises.writes]), "a request was never answered"
        for topic in world.broker.state.by_id.values() if not committer.read_only else ():
            for partition in topic.partitions:
                assert partition not in world.broker.open_groups
                assert (partition.pending_records, partition.pending_bytes, partition.waiting_sync) == (0, 0, 0)
                assert not partition.unsynced
                assert partition.next_seq == partition.head_seq + 1, (
                    topic.name,
                    partition.next_seq,
                    partition.head_seq,
                )
        for name, seq in self.followed.items():
            assert seq == world.broker.topic(name).partitions[0].head_seq, f"the watcher of {name} was not called"
        if not committer.read_only:
            world.look()
            compare(world.broker, world.promises, "clean")

    def end(self) -> None:
        world, chance = self.world, self.chance
        if self.faulty and chance.random() < 0.3:
            self.sync_fails = True
            self.play(10)
        if chance.random() < 0.5:
            self.rest()
            self.check()
            self.sync_fails = False
            if not committer_failed(world):
                self.drain()
        disk = self.disk
        disk.fault = None
        verify(disk.after_kill(), world.promises, world.clock, "kill", world.settings)
        verify(disk.after_power_cut("none"), world.promises, world.clock, "power", world.settings)
        verify(disk.after_power_cut("random"), world.promises, world.clock, "power", world.settings)

    def drain(self) -> None:
        """When all leases have run out every job that is left can be had, once."""
        world = self.world
        for _ in range(3):
            world.clock.advance(1000)
            world.run()
        for name in QUEUES:
            topic = world.broker.state.topics[name]
            partition = topic.partitions[0]
            world.broker.evict(topic, partition)
            counters = world.broker.queues.stats(topic)
            assert (counters.ready, counters.in_flight) == (partition.count, 0)
            left = [seq for seq in range(1, partition.head_seq + 1) if partition.is_live(seq)]
            got: list[int] = []
            answers: list[Any] = []
            world.broker.queues.claim(name, 0, "last", 10_000, 60_000, 0, answers.append)
            world.run()
            for answer in answers:
                assert not isinstance(answer, TopicsError), answer
                got += answer.delivery.seqs if answer.delivery is not None else []
            assert sorted(got) == left, f"{name}: not all of {left} can be had"
        world.run()


def committer_failed(world: World) -> bool:
    return world.broker.committer.read_only


def test_a_segment_without_live_records_is_not_there_after_a_replay() -> None:
    """Its saved delete flags are ahead of the deletes that the log repeats, which then find nothing to delete."""
    history = History(24)
    history.replay_every = 1
    history.play(200)


@pytest.mark.parametrize("seeds", [range(first, first + 10) for first in range(0, 3000 if LONG else 60, 10)], ids=str)
def test_torn_turns_keep_every_promise(seeds: range) -> None:
    for seed in seeds:
        try:
            history = History(seed)
            history.play(200)
            history.end()
        except BaseException as failure:
            failure.add_note(f"seed {seed}")
            raise
