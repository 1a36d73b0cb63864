"""A checker over random histories of a queue, with restarts, power cuts and clocks that jump.

Small enough to trust, it remembers only the replies: which jobs were appended, which acks were answered, which
leases were given and until when, how often each job was delivered. After every step it holds the server to

    never two live leases for one job, and none after its deadline; the node that got a lease is its holder
    an acked job never returns
    every job is acked, or a dead letter exactly once, or still there, with the data it came with
    no delivery is forgotten and none is invented
    the counters add up

What was asked for when the power went out may have happened or not, but not in part: such jobs are `unsure` until they
are heard of again. Everything else is known exactly. `test_queue_checker.py` shows that it notices what it should.

A history follows from its seed alone. What a step does is left to `chance`, how often it comes to STEPS.
"""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import settings

from tests.broker.queue_bench import Job, QueueBench
from tests.simulation.live_and_replayed import compare as compare_with_replay
from topics.broker.queues.claims import ClaimResult
from topics.model.errors import TopicsError
from topics.model.storage_settings import StorageSettings
from topics.testing.disk.fake_disk import FakeDisk, PowerCut

NODES = ["a", "b", "c"]
STORAGE = StorageSettings(wal_file_bytes=8192, segment_bytes=600, hot_bytes=2000, checkpoint_bytes=3000, margin=100)


class Lease:
    def __init__(self, node: str, lease_id: str, deadline: int) -> None:
        self.node = node
        self.lease_id = lease_id
        self.deadline = deadline


class Stream:
    """A worker's connection, as `ClaimWaiters` sees it."""

    lease_ms = 1000

    def __init__(self, history: "QueueHistory", node: str) -> None:
        self.node = node
        self.connection_jobs: set[int] | None = set()
        self.open = True
        self._history = history

    def capacity(self) -> int:
        assert self.connection_jobs is not None
        return 2 - len(self.connection_jobs) if self.open else 0

    def deliver(self, claimed: ClaimResult) -> None:
        if self.open:
            assert claimed.delivery is not None
            jobs: list[Job] = msgspec.json.decode(b"[%b]" % b",".join(claimed.jobs))
            self._history.delivered(self.node, jobs)

    def fail(self, error: TopicsError) -> None:
        raise AssertionError(f"the stream of {self.node} got {error}")


class QueueHistory:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.steps_taken: list[str] = []
        self.sent = 0
        # What each job holds.
        self.appended: dict[int, str] = {}
        self.acked: set[int] = set()
        # Jobs of acks whose answer was lost with the power.
        self.perhaps_acked: set[int] = set()
        # Leases as they were delivered, and when jobs that wait are due.
        self.leases: dict[int, Lease] = {}
        self.delays: dict[int, int] = {}
        self.ended_delays: set[int] = set()
        # Whether these are held or delayed is not known.
        self.unsure: set[int] = set()
        # At least and at most so often.
        self.deliveries: dict[int, tuple[int, int]] = {}
        self.stale: list[tuple[int, Lease]] = []
        self.lease_ids: set[str] = set()
        # How the next end in the middle of something comes: the process alone, or the power.
        self.killed = False
        self.streams: list[Stream] = []
        self.latest_ms = 0
        self.durable = self.chance.random() < 0.75
        self.leases_durable = self.chance.random() < 0.6
        self.max_deliveries = self.chance.choice([0, 0, 1, 2, 3])
        disk = FakeDisk(seed)
        disk.make_directory("")
        self.bench = QueueBench(disk, settings=STORAGE)
        self.bench.configure("dead", type="log", durable=True)
        self.bench.configure(
            durable=self.durable,
            leases_durable=self.leases_durable,
            max_deliveries=self.max_deliveries,
            dead_letter="dead",
            lease_ms=1000,
        )

    def play(self, steps: int) -> None:
        """Run this many steps; raises AssertionError as soon as a promise is broken."""
        names = list(STEPS)
        for name in self.chance.choices(names, list(STEPS.values()), k=steps):
            self.steps_taken.append(name)
            getattr(self, name)()
            self.check()

    # What clients do

    def append(self) -> None:
        count, delay_ms = self.chance.randint(1, 5), self.chance.choice([0, 0, 0, 500])
        datas = [f"{self.sent + each} {'x' * 40}" for each in range(count)]
        self.sent += count
        due = self.now + delay_ms
        try:
            seqs = self.bench.append(*datas, **({"delay_ms": delay_ms} if delay_ms else {}))
        except PowerCut:
            self.power_is_out()
            return
        self.appended.update(zip(seqs, datas, strict=True))
        if delay_ms:
            self.delays |= dict.fromkeys(seqs, due)

    def claim(self) -> None:
        """One worker, or several in the same turn."""
        nodes = self.chance.choices(NODES, k=self.chance.randint(1, 3))
        self._claim(nodes, self.chance.randint(1, 6), self.chance.choice([100, 1000, 1000]))

    def _claim(self, nodes: list[str], most: int, lease_ms: int) -> None:
        begun = []
        try:
            begun += [self.bench.start_claim(most, node, lease_ms) for node in nodes]
            self._finish(begun)
        except PowerCut:
            self.take_answers(nodes, begun, most)
            self.power_is_out()
            return
        assert all([len(answers) == 1 for answers, _ in begun]), "a claim was not answered"
        self.take_answers(nodes, begun, most)

    def _finish(self, begun: list[Any]) -> None:
        """Until all are answered."""
        self.bench.runtime.run()
        for _ in range(20):
            if all([answers for answers, _ in begun]):
                return
            self.bench.pass_time(1)

    def take_answers(self, nodes: list[str], begun: list[Any], most: int) -> None:
        for node, (answers, _) in zip(nodes, begun, strict=True):
            for answer in answers:
                assert isinstance(answer, ClaimResult), answer
                jobs: list[Job] = msgspec.json.decode(b"[%b]" % b",".join(answer.jobs))
                assert len(jobs) == answer.count <= most
                self.delivered(node, jobs)

    def delivered(self, node: str, jobs: list[Job]) -> None:
        for job in jobs:
            seq, count = job["$seq"], job["deliveries"]
            assert seq not in self.acked, "an acked job returned"
            if seq in self.appended:
                assert job["data"] == self.appended[seq]
            held = self.leases.get(seq)
            assert held is None or held.deadline < self.now, f"job {seq} is leased twice"
            assert seq in self.unsure or self.delays.get(seq, 0) <= self.now, f"job {seq} came before it was due"
            assert job["lease_id"] not in self.lease_ids, "a lease id came twice"
            assert not self.max_deliveries or count <= self.max_deliveries, f"job {seq} came too often"
            least, most = self.deliveries.get(seq, (0, 0))
            assert least + 1 <= count <= most + 1, f"job {seq}: delivery {count} after {least} to {most}"
            self.perhaps_acked.discard(seq)
            self.unsure.discard(seq)
            if self.delays.pop(seq, None) is not None:
                self.ended_delays.add(seq)
            self.deliveries[seq] = (count, count)
            self.lease_ids.add(job["lease_id"])
            if held is not None:
                self.stale.append((seq, held))
            self.leases[seq] = Lease(node, job["lease_id"], job["deadline"])

    def ack(self) -> None:
        """Perhaps the worker has slept too long, or the sync takes so long that the lease ends meanwhile."""
        chance = self.chance
        if self.leases:
            late = chance.choice([0, 0, 101, 1001]), chance.choice([0, 0, 0, 1001])
            self._ack(*self._some_of_one_node(), chance.random() < 0.5, *late)

    def _ack(self, node: str, seqs: list[int], fenced: bool = False, asleep_ms: int = 0, late_ms: int = 0) -> None:
        self.bench.clock.advance(asleep_ms)
        lease_ids = [self.leases[seq].lease_id for seq in seqs] if fenced else None
        over = {seq for seq in seqs if self.leases[seq].deadline < self.now}
        leases = {seq: self.leases[seq] for seq in seqs}
        self.perhaps_acked.update(seqs)
        answers: list[Any] = []
        others: list[Any] = []
        try:
            self.bench.broker.queues.ack("q", 0, node, seqs, lease_ids, answers.append)
            if late_ms:
                self.bench.runtime.turn()
                self.bench.clock.advance(late_ms)
                others = [self.bench.start_claim(6, "c", 1000)]
            self._finish([(answers, None), *others])
        except PowerCut:
            self.take_answers(["c"] * len(others), others, 6)
            self.power_is_out()
            return
        assert all([len(steps_taken) == 1 for steps_taken, _ in others]), "a claim was not answered"
        (outcome,) = answers
        assert set(outcome.skipped) == over, f"held {sorted(set(seqs) - over)}, over {over}: {outcome}"
        assert outcome.count == len(seqs) - len(over)
        for seq in seqs:
            self.perhaps_acked.discard(seq)
            if seq not in over:
                self.acked.add(seq)
                assert self.leases[seq] is leases[seq], f"job {seq} went to another while it was acked"
                self._no_longer_here(seq)
        self.take_answers(["c"] * len(others), others, 6)

    def a_worker_gives_everything_back(self) -> None:
        node = self.chance.choice(NODES)
        self._claim([node], 6, 1000)
        seqs = [seq for seq, lease in self.leases.items() if lease.node == node]
        if seqs:
            self._nack(node, seqs, 0)

    def a_worker_works(self) -> None:
        """What most workers do all day: some jobs, and an end for each of them."""
        before = set(self.leases)
        node = self.chance.choice(NODES)
        ends = self.chance.choices(["ack", "nack", "later", "longer", "keep"], k=self.chance.randint(1, 4))
        self._claim([node], len(ends), 1000)
        for seq, end in zip(sorted(self.leases.keys() - before), ends, strict=False):
            if seq not in self.leases or self.leases[seq].node != node or self.leases[seq].deadline < self.now:
                continue
            if end == "ack":
                self._ack(node, [seq])
            elif end == "longer":
                self._extend(node, [seq], 2000)
            elif end != "keep":
                self._nack(node, [seq], 300 if end == "later" else 0)

    def nack(self) -> None:
        if self.leases:
            self._nack(*self._some_of_one_node(), self.chance.choice([0, 300]))

    def _nack(self, node: str, seqs: list[int], delay_ms: int) -> None:
        given = {seq: self.leases.pop(seq) for seq in seqs}
        over = {seq for seq, lease in given.items() if lease.deadline < self.now}
        due = self.now + delay_ms
        # Streams may get them within the call.
        self.delays |= dict.fromkeys(given.keys() - over, due) if delay_ms else {}
        try:
            outcome = self.bench.nack(*seqs, node=node, delay_ms=delay_ms)
        except PowerCut:
            # Given back or not: the server knows, the lease ends by itself in the worst case.
            self.unsure.update(seqs)
            self.power_is_out()
            return
        assert set(outcome.skipped) == over

    def extend(self) -> None:
        if self.leases:
            self._extend(*self._some_of_one_node(), self.chance.choice([100, 2000]))

    def _extend(self, node: str, seqs: list[int], lease_ms: int) -> None:
        over = {seq for seq in seqs if self.leases[seq].deadline < self.now}
        deadline = self.now + lease_ms
        try:
            outcome = self.bench.extend(*seqs, node=node, lease_ms=lease_ms)
        except PowerCut:
            for seq in set(seqs) - over:
                del self.leases[seq]
                self.unsure.add(seq)
            self.power_is_out()
            return
        assert set(outcome.skipped) == over
        assert set(outcome.seqs) == set(seqs) - over
        for seq in outcome.seqs:
            self.leases[seq].deadline = deadline

    def ack_with_a_stale_lease(self) -> None:
        if not self.stale:
            return
        # The most useful ones: only the lease id differs, because the same worker has the job again.
        again = [
            (seq, lease) for seq, lease in self.stale if seq in self.leases and self.leases[seq].node == lease.node
        ]
        seq, lease = self.chance.choice(again or self.stale)
        try:
            outcome = self.bench.ack(seq, node=lease.node, lease_ids=[lease.lease_id])
        except PowerCut:
            self.power_is_out()
            return
        assert outcome.skipped == [seq], "a stale lease was honoured"

    def ack_what_another_holds(self) -> None:
        if not self.leases:
            return
        seq = self.chance.choice(sorted(self.leases))
        try:
            outcome = self.bench.ack(seq, node=self.leases[seq].node + "'")
        except PowerCut:
            self.power_is_out()
            return
        assert outcome.skipped == [seq], "a stranger's ack was honoured"

    def a_stream_opens(self) -> None:
        if len(self.streams) > 1:
            return
        stream = Stream(self, self.chance.choice(NODES))
        self.streams.append(stream)
        queues = self.bench.broker.queues
        waiters = queues.waiters(*queues.find("q", 0)[:2])
        waiters.add(stream)
        waiters.notify()
        self._pass_time(0)

    def a_stream_closes(self) -> None:
        if not self.streams:
            return
        stream = self.streams.pop(self.chance.randrange(len(self.streams)))
        stream.open = False
        assert stream.connection_jobs is not None
        released = set(stream.connection_jobs)
        queues = self.bench.broker.queues
        topic, partition, _ = queues.find("q", 0)
        queues.waiters(topic, partition).remove(stream)
        for seq in released:
            self.leases.pop(seq, None)
        try:
            queues.release(topic, partition, stream.connection_jobs)
            self.bench.runtime.run()
        except PowerCut:
            self.unsure |= released
            self.power_is_out()

    # What happens to clients and servers

    def time_passes(self) -> None:
        self._pass_time(self.chance.choice([50, 101, 1001]))

    def _pass_time(self, ms: int) -> None:
        try:
            self.bench.pass_time(ms)
        except PowerCut:
            self.power_is_out()

    def the_clock_jumps_backwards(self) -> None:
        self._look()
        self.bench.clock.set(self.now - self.chance.choice([200, 5000]))

    def the_process_is_killed(self) -> None:
        self._reopen(self.bench.after_kill())

    def the_power_goes_out(self) -> None:
        if self.durable:
            self.power_is_out()

    def the_end_will_come(self) -> None:
        """In the middle of something, a few steps from now."""
        self.killed = self.chance.random() < 0.3 or not self.durable
        self.bench.disk.cut_at = self.bench.disk.steps + self.chance.randint(0, 12)

    def a_snapshot_is_taken(self) -> None:
        try:
            self.bench.broker.checkpointer.checkpoint()
            self.bench.runtime.run()
            self.bench.pass_time(1)
        except PowerCut:
            self.power_is_out()

    def power_is_out(self) -> None:
        bench = self.bench
        disk = bench.disk.after_kill() if self.killed else bench.disk.after_power_cut()
        self._reopen(QueueBench(disk, bench.clock, bench.settings), in_the_middle=True)

    def _reopen(self, bench: QueueBench, *, in_the_middle: bool = False) -> None:
        self.bench = bench
        self.killed = False
        self.streams = []
        there, dead = self._there(), self._dead()
        # What had ended by then may have gone to a node whose reply was lost.
        self._let_go_of_ended()
        if not self.leases_durable:
            # Nothing was ever delivered; only what was delayed from the start still is.
            self.stale += [(seq, lease) for seq, lease in self.leases.items()]
            self.delays = {seq: due for seq, due in self.delays.items() if seq not in self.deliveries}
            self.leases, self.deliveries, self.unsure = {}, {}, self.unsure - self.deliveries.keys()
        # That a delay has ended is not written down; a clock that was put back makes it last again.
        self.unsure |= self.ended_delays
        for seq in there.keys() - self.leases.keys():
            if in_the_middle and self.leases_durable:
                # A claim whose reply was lost, an expiry that was seen but not synced.
                self.unsure.add(seq)
                if seq not in self.appended:
                    self.ended_delays.add(seq)
                least, most = self.deliveries.get(seq, (0, 0))
                self.deliveries[seq] = (least, most + 1)
            elif in_the_middle and seq not in self.appended:
                # Perhaps delayed, from now on and after every start.
                self.unsure.add(seq)
                self.ended_delays.add(seq)
        # What was asked for when the power went out may have happened.
        for seq, data in (there | dead).items():
            self.appended.setdefault(seq, data)
        self.acked |= self.perhaps_acked - there.keys() - dead.keys()
        for seq in self.acked | dead.keys():
            self._no_longer_here(seq)
        self.perhaps_acked.clear()

    def _look(self) -> None:
        """The next operation applies what time has changed; from then on it stays so."""
        try:
            self.bench.counters()
            self.bench.runtime.run()
            for _ in range(20):
                # Dead letters on their way.
                if self.bench.broker.queues.find("q", 0)[2].dead_lettering:
                    self.bench.pass_time(1)
        except PowerCut:
            self.power_is_out()
        self._let_go_of_ended()
        for seq in self._dead():
            self._no_longer_here(seq)

    def _let_go_of_ended(self) -> None:
        for seq in [seq for seq, due in self.delays.items() if due <= self.now]:
            del self.delays[seq]
            self.ended_delays.add(seq)
        for seq in [seq for seq, lease in self.leases.items() if lease.deadline < self.now]:
            self.stale.append((seq, self.leases.pop(seq)))

    # What must hold

    def check(self) -> None:
        self._look()
        self._every_job_is_in_one_place()
        self._counters_add_up()
        self._replay_gives_the_live_state()

    def _every_job_is_in_one_place(self) -> None:
        there, dead = self._there(), self._dead()
        assert not there.keys() & dead.keys(), "a dead letter is still a job"
        assert not (there.keys() | dead.keys()) & self.acked, "an acked job is back"
        assert there.keys() | dead.keys() | self.acked == self.appended.keys(), "a job is lost"
        for seq, data in (there | dead).items():
            assert data == self.appended[seq]

    def _counters_add_up(self) -> None:
        there = self._there()
        ready, in_flight, dead_lettered = self.bench.counters()
        unsure = len(self.unsure & there.keys())
        held, delayed = self.leases.keys() & there.keys(), self.delays.keys() - self.unsure
        assert dead_lettered == len(self._dead())
        assert len(held) == len(self.leases), "a held job is gone"
        assert len(held) <= in_flight <= len(held) + unsure, f"{in_flight} in flight, {len(held)} known"
        holders = self._holders()
        for seq, lease in self.leases.items():
            assert holders.get(seq) == (lease.node, lease.lease_id, lease.deadline, self.deliveries[seq][0]), (
                f"job {seq} is not with its holder"
            )
        waiting = len(there) - ready - in_flight
        assert len(delayed) <= waiting <= len(delayed) + unsure, f"{waiting} delayed, {len(delayed)} known"

    def _replay_gives_the_live_state(self) -> None:
        # The clock may have been set back. Leases and delays that had ended before stay ended.
        self.latest_ms = max(self.latest_ms, self.now)
        compare_with_replay(self.bench.broker, self.bench.disk, STORAGE, self.latest_ms)

    @property
    def now(self) -> int:
        return self.bench.clock.now_ms()

    def _there(self) -> dict[int, str]:
        return {record["$seq"]: record["data"] for record in self.bench.records()}

    def _dead(self) -> dict[int, str]:
        letters = self.bench.records("dead")
        metas = [record["meta"] for record in letters]
        assert all([meta["$dead_letter_deliveries"] == self.max_deliveries for meta in metas])
        seqs = [meta["$dead_letter_src_seq"] for meta in metas]
        assert len(seqs) == len(set(seqs)), "a dead letter came twice"
        return {seq: record["data"] for seq, record in zip(seqs, letters, strict=True)}

    def _holders(self) -> dict[int, tuple[str, str, int, int]]:
        """Who holds what until when, for the how-manieth time, as the server has it."""
        leases = self.bench.broker.queues.find("q", 0)[2]
        return {
            seq: (delivery.node, f"lease_{seq}{delivery.token.decode()}", delivery.deadline, count)
            for delivery in leases.delivery_images()
            for seq, count in zip(delivery.seqs, delivery.deliveries, strict=True)
        }

    def _no_longer_here(self, seq: int) -> None:
        self.leases.pop(seq, None)
        self.delays.pop(seq, None)
        self.ended_delays.discard(seq)
        self.unsure.discard(seq)

    def _some_of_one_node(self) -> tuple[str, list[int]]:
        node = self.chance.choice(sorted({lease.node for lease in self.leases.values()}))
        held = sorted([seq for seq, lease in self.leases.items() if lease.node == node])
        return node, self.chance.sample(held, self.chance.randint(1, len(held)))


# How often each comes, beside the others.
STEPS = {
    "append": 5,
    "claim": 4,
    "a_worker_works": 5,
    "ack": 4,
    "nack": 3,
    "extend": 2,
    "a_worker_gives_everything_back": 1,
    "ack_with_a_stale_lease": 2,
    "ack_what_another_holds": 1,
    "a_stream_opens": 2,
    "a_stream_closes": 1,
    "time_passes": 4,
    "the_clock_jumps_backwards": 1,
    "the_process_is_killed": 2,
    "the_power_goes_out": 2,
    "the_end_will_come": 2,
    "a_snapshot_is_taken": 2,
}
# The profile says how long: `make crash` plays many more and longer ones.
SEEDS = settings().max_examples
LENGTH = max(60, settings().stateful_step_count)


def play(seed: int) -> None:
    history = QueueHistory(seed)
    try:
        history.play(LENGTH)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\nafter {', '.join(history.steps_taken)}") from error


@pytest.mark.parametrize("part", range(10))
def test_no_history_breaks_a_promise(part: int) -> None:
    for seed in range(part, SEEDS, 10):
        play(seed)
