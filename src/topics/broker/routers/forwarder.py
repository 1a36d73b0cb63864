"""Forwarding: routers copy what is appended to their sources, after the appends were answered.

    a source has new records -> [soon] select, gather and shape the next run for each of its routers ->
    one small fact about the run and its copies is committed -> the copies are readable in the dests

Copies are not logged. The fact says which records of the source were copied and which seqs the copies got, and recovery makes
them again (`log/router_copies.py`). So a copy has the same seq, time and text after any crash. The cursor of the router is in the same
fact as the copies. All routers of a source with the same cursor share one fact.

What must hold so that recovery finds the records of the source (docs/decisions/0006-router-copies-are-not-logged.md):

  - The frame of the source's records is in the log before the fact: a power cut loses the fact first.
  - No run is in flight while a snapshot takes the images of topics that routers connect. So a snapshot holds a copy, or the
    source as it was before the copy was made.
  - Records that are not in the log (of an ephemeral source) are logged with their copies.

A step forwards for a few milliseconds at most, one source after the other. Each router has one run in flight per partition;
other routers do not wait for it.
"""

import logging
from collections.abc import Iterable

from msgspec import Struct, structs

from topics.broker.core import Core
from topics.broker.log.apply import apply
from topics.broker.log.commit import Commit, Note
from topics.broker.log.sync_policy import must_sync
from topics.broker.topics.quota import Growth
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reservation import Reservation
from topics.engine.routers.copying import STAMP, chosen_bits, select, stamp_prefix
from topics.engine.routers.forwarding import EarlierCopies, RunTexts, copy_options, lost_after, run_bound, stamp_all
from topics.engine.routers.router import Router
from topics.engine.routers.router_state import (
    IDLE_STATES,
    ForwarderState,
    RouterState,
    forwarder_transition,
    transition,
)
from topics.engine.topics.topic import Topic
from topics.model.errors import CorruptStorage, TopicsError
from topics.model.facts import SOURCE_TRIM, Copy, Fact, Forwarded, Lost
from topics.model.records.page import Page
from topics.runtime.interface import Timer

log = logging.getLogger("topics.broker")

# One run of one router.
MAX_RUN_RECORDS = 1000
MAX_RUN_BYTES = 1 << 20
# Time for one step; then other work of the loop runs.
STEP_SECONDS = 0.002
# Delay before a router tries again because its dest is full or a write failed; doubled each time up to the maximum.
MIN_RETRY_MS = 5
MAX_BLOCKED_RETRY_MS = 250
MAX_BACKOFF_MS = 5000


class RouterProgress:
    """The state of a router, and its runs that are in the log and not applied yet."""

    __slots__ = ("earlier_copies", "in_flight", "retry_ms", "state", "timer")

    def __init__(self, partitions: int, state: RouterState) -> None:
        self.state = state
        # Partitions of the source with a run in flight.
        self.in_flight: set[int] = set()
        self.timer: Timer | None = None
        self.retry_ms = MIN_RETRY_MS
        self.earlier_copies: list[EarlierCopies | None] = [None] * partitions

    def transition(self, state: RouterState) -> None:
        """Raises ValueError if the table does not allow it."""
        self.state = transition(self.state, state)

    def outcome(self, state: RouterState) -> None:
        """A run of the router ended so. A router that is being deleted, or is held, stays as it is."""
        if self.state not in IDLE_STATES:
            self.transition(state)


class Outgoing(Struct):
    """The copies of one router in one run."""

    router: Router
    topic: Topic
    partition: Partition
    pages: list[Page]
    copy: Copy
    # None when there are no copies: the router only moves on.
    reservation: Reservation | None


class ForwardCommit(Commit):
    """The copies of one run, or a gap: seqs of the dest for records that the source lost before they were forwarded."""

    __slots__ = ("_fact", "_forwarder", "_gap", "_outgoing", "_source")

    def __init__(
        self,
        forwarder: "Forwarder",
        source: Topic,
        fact: Forwarded,
        outgoing: "list[Outgoing]",
        *,
        sync: bool,
        gap: Lost | None = None,
    ) -> None:
        facts: list[Fact] = [fact] if gap is None else [gap, fact]
        records = sum([each.reservation.count for each in outgoing if each.reservation is not None])
        super().__init__(facts, outgoing[0].partition, records, sync=sync)
        self.others = tuple([each.partition for each in outgoing[1:]])
        self.reservations = [each.reservation for each in outgoing if each.reservation is not None]
        self.prepared = None if gap is not None else [each.pages for each in outgoing]
        self._forwarder = forwarder
        self._source = source
        self._fact = fact
        self._outgoing = outgoing
        self._gap = gap

    def written(self) -> None:
        if self._gap is None:
            self._forwarder.show_unsynced(self._outgoing)

    def after_apply(self) -> None:
        self._forwarder.forwarded(self._source, self._fact, self._outgoing)

    def reply(self, error: TopicsError | None) -> None:
        if error is not None:
            self._forwarder.failed(self._fact.partition, self._outgoing)


class Forwarder:
    """All routers at work."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._routers = core.state.routers
        self._progress: dict[int, RouterProgress] = {}
        self._watched: dict[int, _Watch] = {}
        # Partitions of sources with something to look at, by topic and number.
        self._ready: dict[tuple[int, int], None] = {}
        self._scheduled = False
        self._state = ForwarderState.RUNNING
        self._pause: Timer | None = None
        self.forwarded_total = 0

    def state_of(self, router: Router) -> str:
        """The state that the API shows: running, blocked or backoff."""
        progress = self._progress.get(router.id)
        state = RouterState.RUNNING if progress is None or progress.state in IDLE_STATES else progress.state
        return state.value

    def lag_of(self, router: Router) -> int:
        """How many seqs of the source the router has not examined yet."""
        source = self._core.state.by_id.get(router.source_id)
        if source is None:
            return 0
        pairs = zip(source.partitions, router.cursors, strict=True)
        return sum([max(0, partition.head_seq - cursor) for partition, cursor in pairs])

    # Starting and stopping

    def start(self) -> None:
        """Continue every router from its cursors."""
        checkpointer = self._core.checkpointer
        checkpointer.hold_copies = self.hold
        checkpointer.release_copies = self.release
        for router in list(self._routers.by_id.values()):
            self.added(router)

    def stop(self) -> None:
        """No more copies: the last snapshot is about to be taken."""
        self._transition(ForwarderState.STOPPED)

    def _transition(self, state: ForwarderState) -> None:
        self._state = forwarder_transition(self._state, state)

    @property
    def _first_state(self) -> RouterState:
        """The state of a router that starts now."""
        snapshot = self._state in (ForwarderState.HELD, ForwarderState.IMAGING)
        return RouterState.HELD if snapshot else RouterState.RUNNING

    @property
    def _forwards(self) -> bool:
        return self._state in (ForwarderState.RUNNING, ForwarderState.IMAGING)

    def added(self, router: Router) -> None:
        """The router was created."""
        source = self._core.state.by_id[router.source_id]
        self._progress[router.id] = RouterProgress(len(source.partitions), self._first_state)
        if source.id not in self._watched:
            watch = self._watched[source.id] = _Watch(self, source)
            self._core.watch(source, watch.wake)
        self.look(source)

    def begin_delete(self, router: Router) -> None:
        """Forward nothing more; runs in flight are completed."""
        progress = self._progress.get(router.id)
        if progress is not None:
            progress.transition(RouterState.DELETING)

    def cancel_delete(self, router: Router) -> None:
        """The delete failed: continue."""
        progress = self._progress.get(router.id)
        if progress is not None:
            progress.transition(self._first_state)
            self._look_at(router)

    def removed(self, router: Router) -> None:
        """The router was deleted."""
        progress = self._progress.pop(router.id, None)
        if progress is not None and progress.timer is not None:
            progress.timer.cancel()
        if router.source_id not in self._routers.by_source:
            watch = self._watched.pop(router.source_id, None)
            if watch is not None:
                self._core.unwatch(watch.topic, watch.wake)

    def hold(self) -> None:
        """Decide nothing until `release`. Runs that were submitted before precede everything that is submitted from now on."""
        if self._state is not ForwarderState.STOPPED:
            self._transition(ForwarderState.HELD)

    def release(self, everything: bool) -> None:
        """Continue: the images of the topics that routers connect are taken. With `everything` the snapshot is over."""
        if self._state is ForwarderState.STOPPED:
            return
        self._transition(ForwarderState.RUNNING if everything else ForwarderState.IMAGING)
        if everything:
            for progress in self._progress.values():
                if progress.state is RouterState.HELD:
                    progress.transition(RouterState.RUNNING)
            for watch in self._watched.values():
                self.look(watch.topic)
        self._schedule()

    # Steps

    def look(self, source: Topic) -> None:
        """The source may have new records."""
        for partition in source.partitions:
            self._ready[source.id, partition.number] = None
        self._schedule()

    def _look_at(self, router: Router) -> None:
        source = self._core.state.by_id.get(router.source_id)
        if source is not None:
            self.look(source)

    def _schedule(self) -> None:
        if not self._scheduled and self._ready and self._forwards:
            self._scheduled = True
            self._core.runtime.call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        if not self._forwards:
            return
        runtime = self._core.runtime
        if self._core.sealer.is_behind():
            if self._pause is None:
                self._pause = runtime.call_later(MIN_RETRY_MS, self._resume)
            return
        started = runtime.perf()
        while self._ready:
            topic_id, number = key = next(iter(self._ready))
            del self._ready[key]
            source = self._core.state.by_id.get(topic_id)
            if source is not None:
                try:
                    self._forward(source, source.partitions[number])
                except Exception:
                    log.exception("exception while forwarding records of a source; its routers try again")
                    self._try_later(self._routers.by_source.get(source.id, ()))
            if runtime.perf() - started > STEP_SECONDS:
                self._schedule()
                return

    def _resume(self) -> None:
        self._pause = None
        self._schedule()

    def _forward(self, source: Topic, partition: Partition) -> None:
        """Start the next run of every router of the source that has none in flight."""
        core = self._core
        if source.config.ttl_ms:
            core.evict(source, partition)
        number = partition.number
        by_cursor: dict[int, list[Router]] = {}
        for router in self._routers.by_source.get(source.id, ()):
            progress = self._progress.get(router.id)
            if progress is None or progress.state in IDLE_STATES or progress.timer or number in progress.in_flight:
                continue
            cursor = router.cursors[number]
            if cursor >= partition.head_seq:
                continue
            if core.is_busy(source.name) or core.is_busy(core.state.by_id[router.dest_id].name):
                # One of them is being changed or deleted: try again when that is decided.
                self._again(router, progress.state, MAX_BLOCKED_RETRY_MS)
                continue
            by_cursor.setdefault(cursor, []).append(router)
        for cursor, routers in by_cursor.items():
            self._forward_from(source, partition, cursor, routers, MAX_RUN_RECORDS)

    def _forward_from(
        self, source: Topic, partition: Partition, cursor: int, routers: list[Router], max_records: int
    ) -> None:
        lost = lost_after(partition, cursor)
        if lost is not None:
            for router in routers:
                self._forward_gap(source, partition.number, router, *lost)
            return
        try:
            selection = select(partition, cursor, run_bound(partition, cursor), max_records, MAX_RUN_BYTES)
        except CorruptStorage:
            # Records of the source are damaged on disk.
            self._try_later(routers)
            return
        run = RunTexts(partition, selection)
        now_ms = self._core.runtime.now_ms()
        # By whether they must be synced.
        batches: dict[bool, list[Outgoing]] = {}
        shorter: list[tuple[Router, int]] = []
        for router in routers:
            try:
                fits = self._outgoing(source, partition, router, run, now_ms, batches)
            except CorruptStorage:
                # Earlier copies are damaged on disk.
                self._try_later([router])
                continue
            except Exception:
                # The copies of the other routers have their seqs already and must be submitted.
                log.exception("exception while forwarding records to a dest; its router tries again")
                self._try_later([router])
                continue
            if 0 < fits < len(selection.seqs):
                shorter.append((router, fits))
        without_copies = Forwarded(source.id, partition.number, selection.first, selection.last, now_ms, [])
        for sync, outgoing in batches.items():
            self._submit(sync, source, without_copies, outgoing)
        # After the others: these may go to the same dest, and get later seqs there.
        for router, fits in shorter:
            self._forward_from(source, partition, cursor, [router], fits)

    def _try_later(self, routers: Iterable[Router]) -> None:
        for router in routers:
            if router.id in self._progress:
                self._again(router, RouterState.BACKOFF, MAX_BACKOFF_MS)

    def _submit(self, sync: bool, source: Topic, run: Forwarded, outgoing: list[Outgoing]) -> None:
        fact = structs.replace(run, copies=[each.copy for each in outgoing])
        for each in outgoing:
            self._progress[each.router.id].in_flight.add(run.partition)
        if not any([each.copy.count for each in outgoing]):
            # Readers see nothing of it, so it is applied at once.
            self._apply_now(source, fact, outgoing)
        else:
            self._core.committer.submit(ForwardCommit(self, source, fact, outgoing, sync=sync))

    def _apply_now(self, source: Topic, fact: Forwarded, outgoing: list[Outgoing]) -> None:
        self._core.committer.submit(Note([fact]))
        apply(self._core.state, fact, [each.pages for each in outgoing])
        self.forwarded(source, fact, outgoing)

    def _outgoing(
        self,
        source: Topic,
        partition: Partition,
        router: Router,
        run: RunTexts,
        now_ms: int,
        batches: dict[bool, list[Outgoing]],
    ) -> int:
        """Reserve the seqs of the router's copies of the run and add them to `batches`. Returns how many records fit.

        When only some fit nothing is reserved: the caller tries again with a shorter run.
        """
        core = self._core
        number = partition.number
        topic = core.state.by_id[router.dest_id]
        target = topic.partitions[number % len(topic.partitions)]
        chosen = self._chosen(source, number, router, target, run)
        if chosen is None:
            return 0
        positions, hops = chosen
        how = copy_options(router)
        seqs, columns = run.shaped(positions, how)
        if how & STAMP:
            columns = stamp_all(columns, seqs, router, source, number)
        count = len(seqs)
        size = sum([each.size for each in columns])
        if count:
            fits = core.quotas.fitting(Growth(topic, target, count, size, columns))
            if fits < count:
                if not fits:
                    self._again(router, RouterState.BLOCKED, MAX_BLOCKED_RETRY_MS)
                return fits
        if not count:
            copy = Copy(router.id, topic.id, target.number, target.next_seq, 0, how, hops=hops)
            batches.setdefault(False, []).append(Outgoing(router, topic, target, [], copy, None))
            return len(run.selection.seqs)
        sync = must_sync(topic.config, target)
        core.close_group(target)
        reservation = target.reserve(count, size, now_ms)
        try:
            pages: list[Page] = []
            seq = reservation.first_seq
            for each in columns:
                pages.append(each.page(seq, reservation.ts))
                seq += each.count
            ephemeral = source.config.durability == "ephemeral" or run.selection.first < partition.unlogged_below
            in_full = pages if ephemeral and topic.config.durability != "ephemeral" else None
            copy = Copy(
                router.id,
                topic.id,
                target.number,
                reservation.first_seq,
                count,
                how,
                reservation.ts - now_ms,
                chosen_bits(run.selection, seqs),
                hops,
                in_full,
            )
        except BaseException:
            reservation.release()
            raise
        batches.setdefault(sync, []).append(Outgoing(router, topic, target, pages, copy, reservation))
        return max(count, len(run.selection.seqs))

    def _chosen(
        self, source: Topic, number: int, router: Router, target: Partition, run: RunTexts
    ) -> tuple[list[int] | None, int | bytes] | None:
        """Which records of the run the router copies (None for all) and their hops; None while earlier copies are searched."""
        match = router.options.filter
        seqs = run.selection.seqs
        positions = None if match is None else run.matching(match)
        if router.options.exactly_once and router.cursors[number] < router.known_to[number]:
            earlier = self._earlier_copies(source, number, router, target)
            if earlier is None:
                return None
            if earlier.seqs:
                among = range(len(seqs)) if positions is None else positions
                positions = [at for at in among if not earlier.has_copy(target, seqs[at])]
        hops: int | bytes = 0
        if router.cycle and seqs:
            known = self._routers.hops_of(source.id, number)
            each = bytes(len(seqs)) if known is None else known.of(seqs)
            if max(each) >= router.max_hops:
                among = range(len(seqs)) if positions is None else positions
                positions = [position for position in among if each[position] < router.max_hops]
            kept = each if positions is None else bytes([each[position] for position in positions])
            hops = bytes([value + 1 for value in kept])
            if hops and hops.count(hops[0]) == len(hops):
                hops = hops[0]
        return positions, hops

    def _earlier_copies(self, source: Topic, number: int, router: Router, target: Partition) -> EarlierCopies | None:
        """The complete list, or None while it is searched, a step in each turn."""
        progress = self._progress[router.id]
        earlier = progress.earlier_copies[number]
        if earlier is None:
            earlier = progress.earlier_copies[number] = EarlierCopies()
        if not earlier.complete:
            earlier.search(target, stamp_prefix(router.name, source.epoch, number))
            if not earlier.complete:
                self.look(source)
                return None
        return earlier

    def _forward_gap(self, source: Topic, number: int, router: Router, first: int, last: int) -> None:
        """Report to the dest that the source lost records first..last before this router forwarded them."""
        core = self._core
        topic = core.state.by_id[router.dest_id]
        target = topic.partitions[number % len(topic.partitions)]
        hops = 0
        if router.cycle:
            known = self._routers.hops_of(source.id, number)
            past, stop = (0, None) if known is None else known.run(first)
            last = last if stop is None else min(last, stop)
            hops = past + 1
        # The gap as a copy without records: recovery gives its seqs their hops.
        copy = Copy(router.id, topic.id, target.number, target.next_seq if hops else 0, 0, 0, hops=hops)
        fact = Forwarded(source.id, number, first, last, core.runtime.now_ms(), [copy])
        self._progress[router.id].in_flight.add(number)
        if router.cycle and hops > router.max_hops:
            # It was reported everywhere in the cycle.
            copy.hops = copy.first_seq = 0
            self._apply_now(source, fact, [Outgoing(router, topic, target, [], copy, None)])
            return
        core.close_group(target)
        sync = must_sync(topic.config, target)
        reservation = target.reserve_gap(last - first + 1)
        gap = Lost(topic.id, target.number, reservation.first_seq, reservation.last_seq, SOURCE_TRIM)
        outgoing = [Outgoing(router, topic, target, [], copy, reservation)]
        core.committer.submit(ForwardCommit(self, source, fact, outgoing, sync=sync, gap=gap))

    # Results

    def show_unsynced(self, outgoing: list[Outgoing]) -> None:
        """The log has the copies, which wait for a sync: readers that accept unsynced records may read them."""
        for each in outgoing:
            if each.reservation is not None:
                each.reservation.show_unsynced(each.pages)
                self._core.wake(each.topic)

    def forwarded(self, source: Topic, fact: Forwarded, outgoing: list[Outgoing]) -> None:
        """The copies are applied."""
        number = fact.partition
        core = self._core
        for each in outgoing:
            if each.reservation is not None and core.exists(each.topic):
                core.evict(each.topic, each.partition)
                core.appended(each.topic, each.partition, each.reservation.size)
            router = each.router
            progress = self._progress.get(router.id)
            if progress is None:
                continue
            progress.in_flight.discard(number)
            progress.outcome(RouterState.RUNNING)
            progress.retry_ms = MIN_RETRY_MS
            self.forwarded_total += each.copy.count
            if router.cursors[number] >= router.known_to[number]:
                progress.earlier_copies[number] = None
        if source.partitions[number].head_seq > fact.last:
            self._ready[source.id, number] = None
            self._schedule()

    def failed(self, number: int, outgoing: list[Outgoing]) -> None:
        for each in reversed(outgoing):
            progress = self._progress.get(each.router.id)
            if progress is not None:
                progress.in_flight.discard(number)
                self._again(each.router, RouterState.BACKOFF, MAX_BACKOFF_MS)

    def _again(self, router: Router, state: RouterState, max_ms: int) -> None:
        """Try this router again after a delay, which doubles each time."""
        progress = self._progress[router.id]
        progress.outcome(state)
        if progress.timer is None:
            progress.timer = self._core.runtime.call_later(progress.retry_ms, lambda: self._retry(router))
            progress.retry_ms = min(progress.retry_ms * 2, max_ms)

    def _retry(self, router: Router) -> None:
        progress = self._progress.get(router.id)
        if progress is not None:
            progress.timer = None
            self._look_at(router)


class _Watch:
    """A source under watch."""

    __slots__ = ("_forwarder", "topic")

    def __init__(self, forwarder: Forwarder, topic: Topic) -> None:
        self._forwarder = forwarder
        self.topic = topic

    def wake(self) -> None:
        self._forwarder.look(self.topic)
