"""Forwarding: what routers do with what is appended to their sources, off the way from a write to its answer.

    a source has something new -> [soon] select, gather and shape the next run for each of its routers ->
    one small fact about the run and its copies is committed -> the copies are readable in the dests

Copies are not logged. The fact says which records of the source they were made of and which seqs they got, and recovery
makes them again (`State._copied`), so a copy has the same seq, time and text after any crash, and how far a router has
come is true to the record: cursor and copies are one fact. All routers of a source that stand at the same seq share it.

What must hold so that recovery finds the records of the source (argued in docs/decisions/router-copies.md):

  - The source's frame stands in the log before the fact's. In one shard a power cut takes the fact first. With several,
    a dest of class fsync waits until the other shards are synced; copies in another dest are told as lost if their
    source's records were.
  - No copy is on its way while a snapshot takes the topics that routers connect, so a snapshot holds a copy, or the
    source as it was before the copy was made.
  - Records that are not in the log (an ephemeral source) are logged as copies, in full.

A step of the loop forwards for a few milliseconds at most, source by source in turn. Each router has one run per
partition on its way; the others do not wait for it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from topics.broker.committer import Commit, Lane, Note
from topics.broker.runtime import Timer
from topics.engine.copying import (
    CLEAR_NODE,
    CLEAR_TAG,
    STAMP,
    Columns,
    Selection,
    chosen_bits,
    gather,
    matching,
    picked,
    select,
    shaped,
    stamp_prefix,
    stamped,
    stamped_seqs,
)
from topics.engine.partition import Partition
from topics.engine.router import Router
from topics.engine.topic import Topic
from topics.model.errors import CorruptStorage, Throttled, TopicsError
from topics.model.facts import SOURCE_TRIM, Copy, Forwarded, Lost
from topics.model.match import TagMatch
from topics.model.page import Page, record_sizes

if TYPE_CHECKING:
    from topics.broker.broker import Broker

# One run of one router.
RUN_RECORDS = 1000
RUN_BYTES = 1 << 20
# After so long other work of the loop has its turn.
STEP_SECONDS = 0.002
# How soon a router looks again whether its dest has room, or whether a failed write works; doubled up to the most.
RETRY_MS = 5
BLOCKED_MOST_MS = 250
FAILED_MOST_MS = 5000
# Pages of a dest looked at in one turn, in search of copies made before.
SEARCH_PAGES = 32

RUNNING = "running"
BLOCKED = "blocked"
BACKOFF = "backoff"


class Working:
    """How a router is doing at the moment. Nothing of this outlives the process."""

    __slots__ = ("again_ms", "evidence", "in_flight", "late", "safe_to", "state", "stopped", "timer")

    def __init__(self, partitions: int, *, late: bool) -> None:
        self.state = RUNNING
        # Partitions of the source with a run on its way.
        self.in_flight: set[int] = set()
        # It is being deleted.
        self.stopped = False
        # It came while a snapshot was being taken, and waits for its end.
        self.late = late
        self.timer: Timer | None = None
        self.again_ms = RETRY_MS
        # Per partition: up to where the records, and what they were made of, are known to be safe on disk.
        self.safe_to = [0] * partitions
        self.evidence: list[Evidence | None] = [None] * partitions


class Evidence:
    """The copies of a router that its dest holds from an earlier life of the router, found page by page."""

    def __init__(self) -> None:
        self.seqs: dict[int, int] = {}
        self.next_seq = 1
        self.complete = False

    def search(self, partition: Partition, prefix: bytes) -> None:
        """Look at some more pages of the dest."""
        seq: int | None = self.next_seq
        for _ in range(SEARCH_PAGES):
            seq = partition.next_live(self.next_seq)
            if seq is None:
                self.complete = True
                return
            page = partition.segment_at(seq).page_at(seq)
            self.seqs.update(stamped_seqs(page, prefix))
            self.next_seq = page.last_seq + 1


class Outgoing(Struct):
    """The copies of one router in one run."""

    router: Router
    topic: Topic
    partition: Partition
    pages: list[Page]
    copy: Copy
    size: int


class Forward(Commit):
    """A run on its way into the dests of one shard."""

    __slots__ = ("_fact", "_forwarder", "_outgoing", "_source")

    def __init__(self, forwarder: "Forwarder", source: Topic, fact: Forwarded, outgoing: list[Outgoing]) -> None:
        super().__init__([fact], outgoing[0].partition, sum([each.copy.count for each in outgoing]))
        self.others = tuple([each.partition for each in outgoing[1:]])
        self._forwarder = forwarder
        self._source = source
        self._fact = fact
        self._outgoing = outgoing

    def written(self) -> None:
        self._forwarder.written(self._outgoing)

    def apply(self) -> None:
        self._forwarder.applied(self._source, self._fact, self._outgoing)

    def take_back(self) -> None:
        self._forwarder.take_back(self._outgoing)

    def fail(self, error: TopicsError) -> None:
        self._forwarder.failed(self._fact.partition, self._outgoing)


class TellLost(Commit):
    """The source dropped records before this router came to them; its dest says so."""

    __slots__ = ("_fact", "_forwarder", "_hole", "_router", "_source", "_topic")

    partition: Partition

    def __init__(
        self, forwarder: "Forwarder", source: Topic, router: Router, topic: Topic, partition: Partition, fact: Forwarded
    ) -> None:
        lost = fact.last - fact.first + 1
        first_seq = partition.next_seq
        self._hole = Lost(topic.id, partition.number, first_seq, first_seq + lost - 1, SOURCE_TRIM)
        self._fact = fact
        super().__init__([self._hole, fact], partition, lost)
        partition.next_seq += lost
        partition.gathering = None
        self._forwarder = forwarder
        self._source = source
        self._router = router
        self._topic = topic

    def apply(self) -> None:
        self._forwarder.told(self._source, self._router, self._topic, self._hole, self._fact)

    def take_back(self) -> None:
        self.partition.next_seq = min(self.partition.next_seq, self._hole.first)

    def fail(self, error: TopicsError) -> None:
        self._forwarder.not_told(self._router, self._fact)


class Barrier(Commit):
    """Nothing but a sync of a shard, for whoever must know that what stands there is safe."""

    __slots__ = ("_forwarder", "_passed")

    def __init__(self, forwarder: "Forwarder", passed: "Passage") -> None:
        super().__init__()
        self.sync = True
        self._forwarder = forwarder
        self._passed = passed

    def apply(self) -> None:
        self._forwarder.passed(self._passed, True)

    def fail(self, error: TopicsError) -> None:
        self._forwarder.passed(self._passed, False)


class Passage(Struct):
    """A router's wait for barriers."""

    router: Router
    source: Topic
    number: int
    safe_to: int
    barriers: int
    worked: bool = True


class Forwarder:
    """All routers at work."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._routers = broker.state.routers
        self._working: dict[int, Working] = {}
        self._watched: dict[int, _Watch] = {}
        # Partitions of sources with something to look at, by topic and number.
        self._ready: dict[tuple[int, int], None] = {}
        self._scheduled = False
        self._held = False
        self._imaging = False
        self._over = False
        self._pause: Timer | None = None
        self.forwarded_total = 0

    # What there is to know

    def state_of(self, router: Router) -> str:
        working = self._working.get(router.id)
        return RUNNING if working is None else working.state

    def lag_of(self, router: Router) -> int:
        """How many seqs of the source the router has yet to look at."""
        source = self._broker.state.by_id.get(router.source_id)
        if source is None:
            return 0
        pairs = zip(source.partitions, router.cursors, strict=True)
        return sum([max(0, partition.head_seq - cursor) for partition, cursor in pairs])

    # Life

    def start(self) -> None:
        """Recovery is done: every router goes on where it stands."""
        keeper = self._broker.keeper
        keeper.hold_copies = self.hold
        keeper.release_copies = self.release
        for router in list(self._routers.by_id.values()):
            self.added(router)

    def stop(self) -> None:
        """No more copies: the last snapshot is about to be taken."""
        self._over = True

    def added(self, router: Router) -> None:
        """The router exists from here on."""
        source = self._broker.state.by_id[router.source_id]
        self._working[router.id] = Working(len(source.partitions), late=self._imaging)
        if source.id not in self._watched:
            watch = self._watched[source.id] = _Watch(self, source)
            self._broker.watch(source, watch.wake)
        self.look(source)

    def stop_router(self, router: Router, stopped: bool) -> None:
        """While `stopped` the router decides nothing; what is on its way arrives."""
        working = self._working.get(router.id)
        if working is not None:
            working.stopped = stopped
            if not stopped:
                self._look_at(router)

    def removed(self, router: Router) -> None:
        """The router is gone."""
        working = self._working.pop(router.id, None)
        if working is not None and working.timer is not None:
            working.timer.cancel()
        if router.source_id not in self._routers.by_source:
            watch = self._watched.pop(router.source_id, None)
            if watch is not None:
                self._broker.unwatch(watch.topic, watch.wake)

    def hold(self) -> None:
        """Nothing is decided until `release`; what was submitted stands in the log before whatever comes next."""
        self._held = self._imaging = True

    def release(self, everything: bool) -> None:
        """The topics that routers connected are taken, or the snapshot is over; then routers made since may go on too."""
        if self._over:
            return
        self._held = False
        if everything:
            self._imaging = False
            for working in self._working.values():
                working.late = False
            for watch in self._watched.values():
                self.look(watch.topic)
        self._schedule()

    # Steps

    def look(self, source: Topic) -> None:
        """There may be something new in the source."""
        for partition in source.partitions:
            self._ready[source.id, partition.number] = None
        self._schedule()

    def _look_at(self, router: Router) -> None:
        source = self._broker.state.by_id.get(router.source_id)
        if source is not None:
            self.look(source)

    def _schedule(self) -> None:
        if not self._scheduled and self._ready and not self._held:
            self._scheduled = True
            self._broker.runtime.call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        if self._held or self._over:
            return
        runtime = self._broker.runtime
        if self._broker.keeper.is_behind():
            if self._pause is None:
                self._pause = runtime.call_later(RETRY_MS, self._go_on)
            return
        started = runtime.perf()
        while self._ready:
            topic_id, number = key = next(iter(self._ready))
            del self._ready[key]
            source = self._broker.state.by_id.get(topic_id)
            if source is not None:
                self._forward(source, source.partitions[number])
            if runtime.perf() - started > STEP_SECONDS:
                self._schedule()
                return

    def _go_on(self) -> None:
        self._pause = None
        self._schedule()

    def _forward(self, source: Topic, partition: Partition) -> None:
        """The next run for every router of the source that has nothing on its way."""
        broker = self._broker
        if source.config.ttl_ms:
            broker.evict(source, partition)
        number = partition.number
        by_cursor: dict[int, list[Router]] = {}
        for router in self._routers.by_source.get(source.id, ()):
            working = self._working.get(router.id)
            if working is None or working.stopped or working.late or working.timer or number in working.in_flight:
                continue
            cursor = router.cursors[number]
            if cursor >= partition.head_seq:
                continue
            if broker.is_busy(source.name) or broker.is_busy(broker.state.by_id[router.dest_id].name):
                # One of them is being changed or deleted; what comes of that is soon known.
                self._again(router, working.state, BLOCKED_MOST_MS)
                continue
            if self._is_safe(source, partition, router, working):
                by_cursor.setdefault(cursor, []).append(router)
        for cursor, routers in by_cursor.items():
            self._forward_from(source, partition, cursor, routers, RUN_RECORDS)

    def _forward_from(
        self, source: Topic, partition: Partition, cursor: int, routers: list[Router], most_records: int
    ) -> None:
        lost = _lost_behind(partition, cursor)
        if lost is not None:
            for router in routers:
                self._tell_lost(source, partition.number, router, *lost)
            return
        bound = min(self._bound(partition, router) for router in routers)
        try:
            selection = select(partition, cursor, bound, most_records, RUN_BYTES)
        except CorruptStorage as error:
            self._unreadable(routers, error)
            return
        run = _Run(partition, selection)
        now_ms = self._broker.runtime.now_ms()
        shipments: dict[tuple[int, bool], list[Outgoing]] = {}
        shorter: list[tuple[Router, int]] = []
        for router in routers:
            try:
                fits = self._outgoing(source, partition, router, run, now_ms, shipments)
            except CorruptStorage as error:
                self._unreadable([router], error)
                continue
            if 0 < fits < len(selection.seqs):
                shorter.append((router, fits))
        fact_of = Forwarded(source.id, partition.number, selection.first, selection.last, now_ms, [])
        for (lane_number, sync), outgoing in shipments.items():
            lane = self._broker.committer.lanes[lane_number]
            self._ship(lane, sync, source, fact_of, outgoing)
        # Behind the others: these may go to the same dest, and get later seqs there.
        for router, fits in shorter:
            self._forward_from(source, partition, cursor, [router], fits)

    def _unreadable(self, routers: list[Router], error: CorruptStorage) -> None:
        """Records of a source, or copies made before, are damaged on disk. Others go on; these try again from time to time."""
        self._broker.keeper.damaged(error, "forwarding records")
        for router in routers:
            self._again(router, BACKOFF, FAILED_MOST_MS)

    def _ship(self, lane: Lane, sync: bool, source: Topic, model: Forwarded, outgoing: list[Outgoing]) -> None:
        fact = Forwarded(
            model.topic_id, model.partition, model.first, model.last, model.ts, [each.copy for each in outgoing]
        )
        for each in outgoing:
            self._working[each.router.id].in_flight.add(model.partition)
        if not any([each.copy.count for each in outgoing]):
            # Nothing to be seen, so nothing to wait for.
            self._broker.committer.submit(lane, Note([fact]))
            self.applied(source, fact, outgoing)
            return
        commit = Forward(self, source, fact, outgoing)
        commit.sync = sync
        self._broker.committer.submit(lane, commit)

    def _outgoing(
        self,
        source: Topic,
        partition: Partition,
        router: Router,
        run: "_Run",
        now_ms: int,
        shipments: dict[tuple[int, bool], list[Outgoing]],
    ) -> int:
        """Take the router's copies of the run on board; answers how many records fit, 0 when none does.

        When only some fit nothing is taken: the caller asks again with a shorter run.
        """
        broker = self._broker
        number = partition.number
        topic = broker.state.by_id[router.dest_id]
        target = topic.partitions[number % len(topic.partitions)]
        chosen = self._chosen(source, number, router, target, run)
        if chosen is None:
            return 0
        positions, hops = chosen
        how = _how(router)
        seqs, columns = run.shaped(positions, how)
        if how & STAMP:
            columns = _stamped(columns, seqs, router, source, number)
        count = len(seqs)
        size = sum([each.size for each in columns])
        if count:
            fits = self._room(topic, target, columns, count, size)
            if fits < count:
                if not fits:
                    self._again(router, BLOCKED, BLOCKED_MOST_MS)
                return fits
        ts = target.last_ts
        if now_ms > ts:
            ts = now_ms
        first_seq = target.next_seq
        pages: list[Page] = []
        if count:
            target.last_ts = ts
            target.gathering = None
            target.next_seq = first_seq + count
            target.pending_records += count
            target.pending_bytes += size
            seq = first_seq
            for each in columns:
                pages.append(each.page(seq, ts))
                seq += each.count
        ephemeral = source.config.durability == "ephemeral" or run.selection.first < partition.unlogged_below
        in_full = pages if ephemeral and topic.config.durability != "ephemeral" else None
        bits = chosen_bits(run.selection, seqs) if count else None
        copy = Copy(
            router.id, topic.id, target.number, first_seq, count, how, ts - now_ms if count else 0, bits, hops, in_full
        )
        lane = broker.committer.lane_of(topic.id).shard.number
        # What comes first into a log is synced whatever its class, as a first write is (see `append.py`).
        key = (lane, count > 0 and (topic.config.durability == "fsync" or not target.head_seq))
        shipments.setdefault(key, []).append(Outgoing(router, topic, target, pages, copy, size))
        return max(count, len(run.selection.seqs))

    def _chosen(
        self, source: Topic, number: int, router: Router, target: Partition, run: "_Run"
    ) -> tuple[list[int] | None, int | bytes] | None:
        """Which records of the run the router copies (None for all) and their hops; None when it cannot tell yet."""
        match = router.options.filter
        seqs = run.selection.seqs
        positions = None if match is None else run.matching(match)
        if router.options.exactly_once and router.cursors[number] < router.known_to[number]:
            evidence = self._evidence(source, number, router, target)
            if evidence is None:
                return None
            if evidence.seqs:
                among = range(len(seqs)) if positions is None else positions
                positions = [at for at in among if not _is_there(target, evidence.seqs.get(seqs[at]))]
        hops: int | bytes = 0
        if router.cycle and seqs:
            known = self._routers.hops_of(source.id, number)
            each = bytes(len(seqs)) if known is None else known.of(seqs)
            most = router.hops_most
            if max(each) >= most:
                among = range(len(seqs)) if positions is None else positions
                positions = [position for position in among if each[position] < most]
            kept = each if positions is None else bytes([each[position] for position in positions])
            hops = bytes([value + 1 for value in kept])
            if hops and hops.count(hops[0]) == len(hops):
                hops = hops[0]
        return positions, hops

    def _evidence(self, source: Topic, number: int, router: Router, target: Partition) -> Evidence | None:
        working = self._working[router.id]
        evidence = working.evidence[number]
        if evidence is None:
            evidence = working.evidence[number] = Evidence()
        if not evidence.complete:
            evidence.search(target, stamp_prefix(router.name, source.epoch, number))
            if not evidence.complete:
                self.look(source)
                return None
        return evidence

    def _room(self, topic: Topic, target: Partition, columns: list[Columns], count: int, size: int) -> int:
        """How many of the copies the dest takes now."""
        broker = self._broker
        if broker.limits.max_total_bytes:
            try:
                broker.check_total_bytes((topic, target, count, size))
            except Throttled:
                return 0
        config = topic.config
        if config.discard == "old" or not (config.cap_records or config.cap_bytes):
            return count
        if config.ttl_ms:
            broker.evict(topic, target)
        fits = count
        if config.cap_records:
            fits = min(fits, config.cap_records - target.count - target.pending_records)
        if config.cap_bytes:
            room = config.cap_bytes - target.bytes - target.pending_bytes
            if size > room:
                taken = 0
                for record_size in [each for part in columns for each in record_sizes(part.page(1, 0))]:
                    room -= record_size
                    if room < 0:
                        break
                    taken += 1
                fits = min(fits, taken)
        return max(fits, 0)

    def _tell_lost(self, source: Topic, number: int, router: Router, first: int, last: int) -> None:
        topic = self._broker.state.by_id[router.dest_id]
        target = topic.partitions[number % len(topic.partitions)]
        hops = 0
        if router.cycle:
            known = self._routers.hops_of(source.id, number)
            behind, stop = (0, None) if known is None else known.run(first)
            last = last if stop is None else min(last, stop)
            hops = behind + 1
        # The hole's seqs as those of a copy without records: in recovery they get their hops from it.
        copy = Copy(router.id, topic.id, target.number, target.next_seq if hops else 0, 0, 0, hops=hops)
        fact = Forwarded(source.id, number, first, last, self._broker.runtime.now_ms(), [copy])
        self._working[router.id].in_flight.add(number)
        if router.cycle and hops > router.hops_most:
            # It has been told everywhere.
            copy.hops = copy.first_seq = 0
            self._broker.committer.submit(self._broker.committer.lane_of(topic.id), Note([fact]))
            self.applied(source, fact, [Outgoing(router, topic, target, [], copy, 0)])
            return
        commit = TellLost(self, source, router, topic, target, fact)
        commit.sync = topic.config.durability == "fsync" or not target.head_seq
        self._broker.committer.submit(self._broker.committer.lane_of(topic.id), commit)

    # What becomes of them

    def written(self, outgoing: list[Outgoing]) -> None:
        """The log has it, and the sync is waited for: those who want to see that too may."""
        for each in outgoing:
            each.partition.unsynced += each.pages
            self._broker.wake(each.topic)

    def applied(self, source: Topic, fact: Forwarded, outgoing: list[Outgoing]) -> None:
        """The copies are readable."""
        number = fact.partition
        broker = self._broker
        state = broker.state
        for each in outgoing:
            copy, topic, partition = each.copy, each.topic, each.partition
            count = copy.count
            if count:
                partition.pending_records -= count
                partition.pending_bytes -= each.size
                _settle(partition, each.pages)
                if state.by_id.get(topic.id) is topic:
                    for page in each.pages:
                        state.append(topic, partition, page, None)
                    config = topic.config
                    if config.cap_records or config.cap_bytes or config.ttl_ms:
                        broker.evict(topic, partition)
                    broker.appended(topic, partition, each.size)
            router = each.router
            working = self._working.get(router.id)
            if working is None:
                continue
            working.in_flight.discard(number)
            working.state, working.again_ms = RUNNING, RETRY_MS
            router.advance(number, fact.last, count)
            self.forwarded_total += count
            if copy.hops:
                self._routers.copied(topic.id, partition.number, copy.first_seq, count, copy.hops)
            if router.cursors[number] >= router.known_to[number]:
                working.evidence[number] = None
        if source.partitions[number].head_seq > fact.last:
            self._ready[source.id, number] = None
            self._schedule()

    def take_back(self, outgoing: list[Outgoing]) -> None:
        """Nothing of the run stands in the log; its seqs are free again."""
        for each in reversed(outgoing):
            partition = each.partition
            partition.pending_records -= each.copy.count
            partition.pending_bytes -= each.size
            _settle(partition, each.pages)
            partition.next_seq = min(partition.next_seq, each.copy.first_seq)

    def failed(self, number: int, outgoing: list[Outgoing]) -> None:
        for each in reversed(outgoing):
            working = self._working.get(each.router.id)
            if working is not None:
                working.in_flight.discard(number)
                self._again(each.router, BACKOFF, FAILED_MOST_MS)

    def told(self, source: Topic, router: Router, topic: Topic, hole: Lost, fact: Forwarded) -> None:
        if self._broker.state.by_id.get(topic.id) is topic:
            self._broker.state.apply(hole)
            self._broker.wake(topic)
        working = self._working.get(router.id)
        if working is not None:
            working.in_flight.discard(fact.partition)
            working.state, working.again_ms = RUNNING, RETRY_MS
            router.advance(fact.partition, fact.last, 0)
            if fact.copies[0].hops:
                lost = hole.last - hole.first + 1
                self._routers.copied(topic.id, hole.partition, hole.first, lost, fact.copies[0].hops)
            self.look(source)

    def not_told(self, router: Router, fact: Forwarded) -> None:
        working = self._working.get(router.id)
        if working is not None:
            working.in_flight.discard(fact.partition)
            self._again(router, BACKOFF, FAILED_MOST_MS)

    def _again(self, router: Router, state: str, most_ms: int) -> None:
        """Look at this router again after a while, and after twice as long the next time."""
        working = self._working[router.id]
        working.state = state
        if working.timer is None:
            working.timer = self._broker.runtime.call_later(working.again_ms, lambda: self._retry(router))
            working.again_ms = min(working.again_ms * 2, most_ms)

    def _retry(self, router: Router) -> None:
        working = self._working.get(router.id)
        if working is not None:
            working.timer = None
            self._look_at(router)

    # Several shards

    def _bound(self, partition: Partition, router: Router) -> int:
        """Up to where the router may copy now: to the next hole, and to what is known to be safe if that matters."""
        bound = partition.head_seq
        cursor = router.cursors[partition.number]
        for hole in partition.holes:
            if hole.first > cursor:
                bound = min(bound, hole.first - 1)
                break
        if self._other_lanes(router):
            bound = min(bound, self._working[router.id].safe_to[partition.number])
        return bound

    def _other_lanes(self, router: Router) -> list[Lane]:
        """The shards that must be synced before the router copies, because its copies' fact will stand in another.

        That is so for a dest of class fsync, and then all shards count: the records, and what they are copies of
        themselves, may stand in any. It is so as well for what the source held when the router was made, because a
        delete may still be waiting for its sync in the source's shard.
        """
        broker = self._broker
        committer = broker.committer
        if len(committer.lanes) == 1:
            return []
        dest_lane = committer.lane_of(router.dest_id)
        old = any([cursor < known for cursor, known in zip(router.cursors, router.known_to, strict=True)])
        if broker.state.by_id[router.dest_id].config.durability != "fsync" and not old:
            return []
        return [lane for lane in committer.lanes if lane is not dest_lane]

    def _is_safe(self, source: Topic, partition: Partition, router: Router, working: Working) -> bool:
        """Whether the router may go on at once; otherwise it is called again when it may."""
        lanes = self._other_lanes(router)
        number = partition.number
        if not lanes or router.cursors[number] < working.safe_to[number]:
            return True
        passage = Passage(router, source, number, partition.head_seq, len(lanes))
        working.in_flight.add(number)
        for lane in lanes:
            self._broker.committer.submit(lane, Barrier(self, passage))
        return False

    def passed(self, passage: Passage, worked: bool) -> None:
        passage.barriers -= 1
        passage.worked = passage.worked and worked
        if passage.barriers:
            return
        working = self._working.get(passage.router.id)
        if working is None:
            return
        working.in_flight.discard(passage.number)
        if passage.worked:
            working.safe_to[passage.number] = passage.safe_to
            self.look(passage.source)
        else:
            self._again(passage.router, BACKOFF, FAILED_MOST_MS)


class _Watch:
    """A source under watch."""

    __slots__ = ("_forwarder", "topic")

    def __init__(self, forwarder: Forwarder, topic: Topic) -> None:
        self._forwarder = forwarder
        self.topic = topic

    def wake(self) -> None:
        self._forwarder.look(self.topic)


class _Run:
    """A selection with its texts, gathered and shaped once for all routers that want them alike."""

    def __init__(self, partition: Partition, selection: Selection) -> None:
        self.selection = selection
        self._partition = partition
        self._columns: list[Columns] | None = None
        self._shaped: dict[int, list[Columns]] = {}

    def matching(self, match: TagMatch) -> list[int]:
        positions: list[int] = []
        start = 0
        for columns in self._gathered():
            positions += [start + position for position in matching(columns, match)]
            start += columns.count
        return positions

    def shaped(self, positions: list[int] | None, how: int) -> tuple[Sequence[int], list[Columns]]:
        """The chosen records' seqs and texts."""
        seqs = self.selection.seqs
        if positions is None or len(positions) == len(seqs):
            kept = self._shaped.get(how)
            if kept is None:
                kept = self._shaped[how] = [shaped(columns, how) for columns in self._gathered()]
            return seqs, kept
        result: list[Columns] = []
        start = 0
        at = 0
        for columns in self._gathered():
            stop = at
            while stop < len(positions) and positions[stop] < start + columns.count:
                stop += 1
            if stop > at:
                result.append(shaped(picked(columns, [each - start for each in positions[at:stop]]), how))
            at = stop
            start += columns.count
        return [seqs[position] for position in positions], result

    def _gathered(self) -> list[Columns]:
        if self._columns is None:
            # Nothing that was just found live is missing.
            self._columns = [
                each for each in gather(self._partition.find, self.selection.seqs) if not isinstance(each, int)
            ]
        return self._columns


def _how(router: Router) -> int:
    options = router.options
    how = 0 if options.preserve_node else CLEAR_NODE
    if not options.preserve_tag:
        how |= CLEAR_TAG
    return how | STAMP if options.exactly_once else how


def _stamped(columns: list[Columns], seqs: Sequence[int], router: Router, source: Topic, number: int) -> list[Columns]:
    result = []
    at = 0
    for each in columns:
        result.append(stamped(each, seqs[at : at + each.count], router.name, source.name, source.epoch, number))
        at += each.count
    return result


def _lost_behind(partition: Partition, cursor: int) -> tuple[int, int] | None:
    """The seqs right behind the cursor that the source lost before this router came to them.

    What was deleted on purpose is passed over in silence.
    """
    if partition.evict_floor > cursor + 1:
        return cursor + 1, partition.evict_floor - 1
    for hole in partition.holes:
        if hole.last > cursor:
            live = partition.next_live(cursor + 1)
            return (max(cursor + 1, hole.first), hole.last) if live is None or live > hole.last else None
    return None


def _settle(partition: Partition, pages: list[Page]) -> None:
    if partition.unsynced:
        for page in pages:
            partition.settled(page)


def _is_there(target: Partition, seq: int | None) -> bool:
    return seq is not None and target.is_live(seq)
