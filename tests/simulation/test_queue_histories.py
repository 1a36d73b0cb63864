"""A checker over random histories of a queue, with restarts, power cuts and clocks that jump.

Small enough to trust, it remembers only what it was told: which jobs were appended, which acks were answered, which
leases were given and until when. After every step it holds the server to

    never two live leases for one job
    an acked job never returns
    every job is acked, or a dead letter exactly once, or still there
    the counters add up

What was asked for when the power went out may have happened or not, but not in part.
"""

from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.queue_bench import QueueBench, jobs_of
from topics.broker.checkpoint import StorageSettings
from topics.testing.disk import FakeDisk, PowerCut

NODES = st.sampled_from(["a", "b", "c"])
STORAGE = StorageSettings(wal_file_bytes=8192, segment_bytes=600, hot_bytes=2000, checkpoint_bytes=3000, margin=100)


class Lease:
    def __init__(self, node: str, lease_id: str, deadline: int) -> None:
        self.node = node
        self.lease_id = lease_id
        self.deadline = deadline


class QueueHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.appended: set[int] = set()
        self.acked: set[int] = set()
        # Jobs of writes and acks whose answer was lost with the power.
        self.perhaps_acked: set[int] = set()
        self.leases: dict[int, Lease] = {}
        self.deliveries: dict[int, int] = {}
        self.stale: list[tuple[int, Lease]] = []
        self.lease_ids: set[str] = set()

    @initialize(
        seed=st.integers(0, 1000),
        leases_durable=st.booleans(),
        max_deliveries=st.sampled_from([0, 1, 2]),
        shards=st.sampled_from([1, 2]),
    )
    def begin(self, seed: int, leases_durable: bool, max_deliveries: int, shards: int) -> None:
        disk = FakeDisk(seed)
        disk.make_directory("")
        self.bench = QueueBench(disk, settings=msgspec.structs.replace(STORAGE, shards=shards))
        self.leases_durable = leases_durable
        self.max_deliveries = max_deliveries
        self.bench.configure("dead", type="log", durable=True)
        self.bench.configure(
            durable=True,
            leases_durable=leases_durable,
            max_deliveries=max_deliveries,
            dead_letter="dead",
            lease_ms=1000,
        )

    # What clients do

    @rule(count=st.integers(1, 5), delay_ms=st.sampled_from([0, 0, 500]))
    def append(self, count: int, delay_ms: int) -> None:
        fields = {"delay_ms": delay_ms} if delay_ms else {}
        try:
            self.appended.update(self.bench.append(*["x" * 40] * count, **fields))
        except PowerCut:
            self.power_is_out()

    @rule(node=NODES, most=st.integers(1, 6), lease_ms=st.sampled_from([100, 1000]))
    def claim(self, node: str, most: int, lease_ms: int) -> None:
        try:
            answers, _ = self.bench.start_claim(most, node, lease_ms)
            self.bench.runtime.run()
            if not answers:
                self.bench.pass_time(5)
            jobs = jobs_of(answers)
        except PowerCut:
            self.power_is_out()
            return
        assert len(jobs) <= most
        for job in jobs:
            seq = job["$seq"]
            assert seq in self.appended
            assert seq not in self.acked, "an acked job returned"
            held = self.leases.get(seq)
            assert held is None or held.deadline < self.now, f"job {seq} is leased twice"
            assert job["lease_id"] not in self.lease_ids
            assert not self.max_deliveries or job["deliveries"] <= self.max_deliveries
            if self.leases_durable and seq in self.deliveries:
                assert job["deliveries"] == self.deliveries[seq] + 1
            self.perhaps_acked.discard(seq)
            self.deliveries[seq] = job["deliveries"]
            self.lease_ids.add(job["lease_id"])
            if held is not None:
                self.stale.append((seq, held))
            self.leases[seq] = Lease(node, job["lease_id"], job["deadline"])

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), fenced=st.booleans())
    def ack(self, data: Any, fenced: bool) -> None:
        node, seqs = self._some_of_one_node(data)
        lease_ids = [self.leases[seq].lease_id for seq in seqs] if fenced else None
        self.perhaps_acked.update(seqs)
        try:
            outcome = self.bench.ack(*seqs, node=node, lease_ids=lease_ids)
        except PowerCut:
            self.power_is_out()
            return
        skipped = set(outcome.skipped)
        for seq in seqs:
            self.perhaps_acked.discard(seq)
            lease = self.leases.pop(seq)
            if seq in skipped:
                assert lease.deadline < self.now or not self.leases_durable, f"the holder of {seq} was refused"
            else:
                self.acked.add(seq)

    @rule(node=NODES)
    def a_worker_gives_everything_back(self, node: str) -> None:
        self.claim(node, 6, 1000)
        seqs = [seq for seq, lease in self.leases.items() if lease.node == node]
        if seqs:
            self._nack(node, seqs, 0)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), delay_ms=st.sampled_from([0, 300]))
    def nack(self, data: Any, delay_ms: int) -> None:
        self._nack(*self._some_of_one_node(data), delay_ms)

    def _nack(self, node: str, seqs: list[int], delay_ms: int) -> None:
        try:
            self.bench.nack(*seqs, node=node, delay_ms=delay_ms)
        except PowerCut:
            self.power_is_out()
            # Given back or not: the server knows, the lease ends by itself in the worst case.
        for seq in seqs:
            self.leases.pop(seq, None)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), lease_ms=st.sampled_from([100, 2000]))
    def extend(self, data: Any, lease_ms: int) -> None:
        node, seqs = self._some_of_one_node(data)
        try:
            outcome = self.bench.extend(*seqs, node=node, lease_ms=lease_ms)
        except PowerCut:
            self.power_is_out()
            for seq in seqs:
                self.leases.pop(seq, None)
            return
        for seq in outcome.seqs:
            self.leases[seq].deadline = outcome.deadline

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def ack_with_a_stale_lease(self, data: Any) -> None:
        seq, lease = data.draw(st.sampled_from(self.stale))
        try:
            outcome = self.bench.ack(seq, node=lease.node, lease_ids=[lease.lease_id])
        except PowerCut:
            self.power_is_out()
            return
        assert outcome.skipped == [seq]

    # What happens to clients and servers

    @rule(ms=st.sampled_from([50, 101, 1001]))
    def time_passes(self, ms: int) -> None:
        try:
            self.bench.pass_time(ms)
        except PowerCut:
            self.power_is_out()

    @rule(ms=st.sampled_from([200, 5000]))
    def the_clock_jumps_backwards(self, ms: int) -> None:
        self.bench.counters()
        expired = [seq for seq, lease in self.leases.items() if lease.deadline < self.now]
        self.bench.clock.set(self.now - ms)
        for seq in expired:
            lease = self.leases.pop(seq)
            try:
                outcome = self.bench.ack(seq, node=lease.node, lease_ids=[lease.lease_id])
            except PowerCut:
                self.power_is_out()
                return
            assert outcome.skipped == [seq], "an expired lease was revived"

    @rule()
    def the_process_is_killed(self) -> None:
        self._reopen(self.bench.after_kill())

    @rule(steps=st.integers(0, 12))
    def the_power_will_go_out(self, steps: int) -> None:
        self.bench.disk.cut_at = self.bench.disk.steps + steps

    @rule()
    def a_snapshot_is_taken(self) -> None:
        try:
            self.bench.broker.keeper.checkpoint()
            self.bench.runtime.run()
            self.bench.pass_time(1)
        except PowerCut:
            self.power_is_out()

    def power_is_out(self) -> None:
        bench = self.bench
        self._reopen(QueueBench(bench.disk.after_power_cut(), bench.clock, bench.settings))

    def _reopen(self, bench: QueueBench) -> None:
        self.bench = bench
        if not self.leases_durable:
            self.stale += [(seq, lease) for seq, lease in self.leases.items()]
            self.leases = {}
        # What was asked for when the power went out may have happened.
        there = self.there()
        self.appended |= there | self.dead()
        self.acked |= self.perhaps_acked - there - self.dead()
        self.perhaps_acked.clear()

    # What must hold

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        if not hasattr(self, "bench") or self.bench.disk.was_cut:
            return
        there, dead = self.there(), self.dead()
        assert not there & dead
        assert not (there | dead) & self.acked
        assert there | dead | self.acked == self.appended

    @invariant()
    def counters_add_up(self) -> None:
        if not hasattr(self, "bench") or self.bench.disk.was_cut:
            return
        ready, in_flight, dead_lettered = self.bench.counters()
        live = [seq for seq, lease in self.leases.items() if lease.deadline >= self.now]
        assert dead_lettered == len(self.dead())
        assert ready + in_flight <= len(self.there())
        assert in_flight >= len(live)

    @property
    def now(self) -> int:
        return self.bench.clock.now_ms()

    def there(self) -> set[int]:
        return {record["$seq"] for record in self.bench.records()}

    def dead(self) -> set[int]:
        seqs = [record["meta"]["$dead_letter_src_seq"] for record in self.bench.records("dead")]
        assert len(seqs) == len(set(seqs)), "a dead letter came twice"
        return set(seqs)

    def _some_of_one_node(self, data: Any) -> tuple[str, list[int]]:
        node = data.draw(st.sampled_from(sorted({lease.node for lease in self.leases.values()})))
        held = sorted([seq for seq, lease in self.leases.items() if lease.node == node])
        return node, data.draw(st.lists(st.sampled_from(held), min_size=1, unique=True))


TestQueueHistory = QueueHistory.TestCase
# The profile says how long: `make crash` plays many more and longer ones.
TestQueueHistory.settings = settings(stateful_step_count=max(40, settings().stateful_step_count))
