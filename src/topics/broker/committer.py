"""The committer: what was decided goes to the log, and becomes true when the log has it.

Commits of one turn of the loop are written together, one write per shard; those that must survive a power cut wait for
one sync that covers all of them (group commit: while a sync runs, the next ones gather). Then each is applied and
answered, in the order they were submitted.

    submit -> [end of the turn] write -> apply                     a topic of class memory or disk
    submit -> [end of the turn] write -> [aside] sync -> apply     class fsync, and whatever creates or deletes a topic

Single records that have gathered for one topic may be written for themselves, before the others of their turn: see `express.py`.

What must be synced and comes while a sync runs is written when that ends, and then synced together. (64 writers of single
records: two writes for each sync otherwise, and the loop's work for each.)

While syncs of little data are quick (a millisecond at most, as on disks with a power-safe cache) they are done on the
spot: handing one to a thread and back takes about as long, and what is ready meanwhile waits for the same processor. One
slow sync ends that for the next thousand, so a disk that stalls now and then holds up the loop once in a while, not always.
(64 writers of single records on two processors: 0.7 to 0.8 of what Redis writes with appendfsync always, and 0.8 to 1.1 so.)

A write that fails leaves nothing behind and its commits fail. A sync that fails is final for its shard: nothing that
waited for it is acknowledged, and everything later is refused, because another sync could report success for bytes
the kernel has already dropped.

Records that are readable but not yet synced are bounded by `margin`. That is what makes seqs safe on disk topics: after
a power cut recovery skips as many seqs as could have been handed out, so none is handed out twice.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from topics.broker.runtime import Runtime, Timer
from topics.engine.partition import Partition
from topics.model.errors import TopicsError, Unavailable
from topics.model.facts import Fact
from topics.storage.frame import encode_facts
from topics.storage.wal import WalShard

log = logging.getLogger("topics.broker")

# So many writers at once are many, and they wait for each other for so many turns at most.
CROWD = 4
TURNS_MOST = 8
# So many syncs in a row must have been quick before they are done on the spot, and how many it takes after a slow one.
QUICK_LEAST = 16
QUICK_AFTER_SLOW = 1000
QUICK_SECONDS = 0.001
SLOW_SECONDS = 0.005
# More data than this is never synced on the spot, nor is anything while segments or snapshots are written: syncs took 5 to
# 80 ms then, a few every second under full load.
QUICK_BYTES = 1 << 20
# So many syncs in a row that somebody waits for, each of so little data, make it worthwhile to write zeros ahead of the frames.
CLOSE_LEAST = 8
CLOSE_BYTES = 64 << 10

SYNC_BUCKETS_US = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000)


class Commit:
    """Something decided. `apply` makes it true and tells who waits; `fail` tells them why it is not.

    Whoever is told may decide the next thing at once. So before anybody is told of a failure, all that failed together
    have given their seqs back, the last first: `take_back`.
    """

    __slots__ = ("facts", "lsn", "others", "partition", "records", "sync", "sync_ms", "waiters", "wal_ms", "written_at")

    def __init__(self, facts: list[Fact] | None = None, partition: Partition | None = None, records: int = 0) -> None:
        self.lsn = 0
        self.facts = facts or []
        # The log whose order this commit must keep, if it is about one.
        self.partition = partition
        # Further logs of a commit over several.
        self.others: tuple[Partition, ...] = ()
        # How many seqs it hands out.
        self.records = records
        # Whether the sync must come before `apply`.
        self.sync = False
        # How many requests wait for it.
        self.waiters = 1
        self.wal_ms = 0.0
        self.sync_ms = 0.0
        self.written_at = 0.0

    def encode(self, synced_lsn: int) -> bytes:
        """The frame, made when the turn ends and nothing can be added any more."""
        return encode_facts(self.lsn, synced_lsn, self.facts)

    def hold(self, change: int) -> None:
        """Its logs have one more commit that waits for a sync, or one less."""
        if self.partition is not None:
            self.partition.waiting_sync += change
        for other in self.others:
            other.waiting_sync += change

    def written(self) -> None:
        """Called when the log has it and `apply` still waits for the sync."""

    def apply(self) -> None:
        raise NotImplementedError

    def take_back(self) -> None:
        """Nothing of it stands in the log: the seqs it was given are free again."""

    def fail(self, error: TopicsError) -> None:
        raise NotImplementedError


class Arrivals(Protocol):
    """What has come and waits unread: when the log is written, whoever has gathered it reads all of it at once."""

    @property
    def sync(self) -> bool:
        """Whether commits are to be expected from it that must be synced."""

    @property
    def waiters(self) -> int: ...

    def open(self) -> None:
        """Read what has come, and submit what follows from it."""


class Note(Commit):
    """Facts that are true already and only have to be remembered: nobody waits for them.

    When they cannot be written now, they are written with the next write to `lane` that works, if it is given, and before
    all else in it: what was decided since may rest on them. The facts must be such that they may come late.
    """

    __slots__ = ("_lane",)

    def __init__(self, facts: list[Fact], lane: "Lane | None" = None) -> None:
        super().__init__(facts)
        self._lane = lane

    def apply(self) -> None:
        pass

    def fail(self, error: TopicsError) -> None:
        if self._lane is not None:
            # Commits fail in reverse; the notes are kept in the order they were made.
            self._lane.owed.insert(0, self)


class Consequences(Commit):
    """What follows from how the server ended. If even that cannot be written, nothing can be until a restart."""

    __slots__ = ("_committer",)

    def __init__(self, committer: "Committer", facts: list[Fact]) -> None:
        super().__init__(facts)
        self._committer = committer

    def apply(self) -> None:
        pass

    def fail(self, error: TopicsError) -> None:
        for lane in self._committer.lanes:
            lane.shard.failed = True


class SyncTimes:
    """How long syncs took, as a histogram in microseconds."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(SYNC_BUCKETS_US) + 1)
        self.sum_us = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        us = seconds * 1e6
        index = 0
        while index < len(SYNC_BUCKETS_US) and us > SYNC_BUCKETS_US[index]:
            index += 1
        self.buckets[index] += 1
        self.sum_us += us
        self.count += 1


class Lane:
    """One shard of the log with what waits for it."""

    __slots__ = (
        "bytes_at_sync",
        "close_syncs",
        "commits",
        "expected",
        "owed",
        "quick_syncs",
        "settled_lsn",
        "shard",
        "syncing",
        "unsynced_records",
        "waiting",
    )

    def __init__(self, shard: WalShard) -> None:
        self.shard = shard
        # Decided in this turn, in order.
        self.commits: list[Commit] = []
        # To be read before the next write, each once.
        self.expected: list[Arrivals] = []
        # Notes that could not be written.
        self.owed: list[Note] = []
        # Synced, and everything that waited for it is applied; the thread that syncs the shard runs ahead of this.
        self.settled_lsn = shard.last_lsn
        # Written and waiting for a sync, in order.
        self.waiting: deque[Commit] = deque()
        self.syncing = False
        # Records written since the last sync that succeeded.
        self.unsynced_records = 0
        # How much had been written when the last sync began.
        self.bytes_at_sync = shard.bytes_written
        # How many of the last light syncs were quick; below zero after a slow one.
        self.quick_syncs = 0
        # How many syncs in a row somebody has waited for, each of little data.
        self.close_syncs = 0

    @property
    def is_quick(self) -> bool:
        return self.quick_syncs >= QUICK_LEAST

    def open_expected(self) -> None:
        expected, self.expected = self.expected, []
        for arrivals in expected:
            try:
                arrivals.open()
            except Exception:
                # A bug of ours. The others must be opened all the same: nobody expects them a second time.
                log.exception("what had come for a log could not be read as a whole")

    def count_sync(self, seconds: float) -> None:
        if seconds < QUICK_SECONDS:
            self.quick_syncs += 1
        else:
            self.quick_syncs = 0 if seconds < SLOW_SECONDS else QUICK_LEAST - QUICK_AFTER_SLOW


class Committer:
    """Owns the shards. Everything but the syncs themselves happens on the loop."""

    def __init__(
        self, runtime: Runtime, shards: list[WalShard], *, next_lsn: int, margin: int, sync_interval_ms: int
    ) -> None:
        self.lanes = [Lane(shard) for shard in shards]
        self.next_lsn = next_lsn
        self.margin = margin
        self.frames_total = 0
        self.batches_total = 0
        self.syncs_total = 0
        self.write_failures_total = 0
        self.queue_depth_peak = 0
        self.sync_times = SyncTimes()
        # Called after each write with the shard and the bytes it has grown by, and after each sync, good or bad.
        self.on_written: Callable[[WalShard, int], None] = _nothing
        self.on_synced: Callable[[], None] = _no_news
        # How many things the storage thread has to do: seal, take a snapshot, remove files.
        self.disk_busy = 0
        self._runtime = runtime
        self._turn_over_later = partial(runtime.call_soon, self._turn_over)
        self._scheduled = False
        # Commits are becoming true or failing, one behind the other. Whoever is told may ask for a write or a sync at once:
        # it must not be done before the last of them was told, or a later commit would be applied before an earlier one.
        self.telling = False
        # How many waited for the last write. For the next one: whether somebody and how many want a sync, and how many turns
        # were waited for it.
        self._crowd = 0
        self._sync_wanted = False
        self._crowd_seen = 0
        self._turns_waited = 0
        self._sync_interval_ms = sync_interval_ms
        self._sync_timer: Timer | None = None

    @property
    def queue_depth(self) -> int:
        return sum([len(lane.commits) + len(lane.waiting) for lane in self.lanes])

    @property
    def read_only(self) -> bool:
        return any([lane.shard.failed for lane in self.lanes])

    def lane_of(self, topic_id: int) -> Lane:
        return self.lanes[topic_id % len(self.lanes)]

    def check_writable(self, lane: Lane) -> None:
        """Raises Unavailable when nothing can be promised on this shard any more."""
        if lane.shard.failed:
            raise _read_only()

    def submit(self, lane: Lane, commit: Commit) -> None:
        """The commit comes behind everything submitted to this lane before."""
        commit.lsn = lsn = self.next_lsn
        self.next_lsn = lsn + 1
        lane.commits.append(commit)
        if commit.sync:
            self._sync_wanted = True
            # What must wait for the sync after the one under way is written when that is over: sooner would only make
            # more and smaller writes.
            if lane.syncing:
                return
        if not self._scheduled:
            self._schedule()

    def expect(self, topic_id: int, arrivals: Arrivals) -> None:
        """As `submit`, for what is not decided yet: it is opened right before the topic's lane is written."""
        # `lane_of`, once a turn.
        lanes = self.lanes
        lane = lanes[topic_id % len(lanes)]
        lane.expected.append(arrivals)
        if arrivals.sync:
            self._sync_wanted = True
            if lane.syncing:
                return
        if not self._scheduled:
            self._schedule()

    def note(self, lane: Lane, fact: Fact) -> int:
        """Remember a fact that is true already and may come late. Answers its lsn."""
        commit = Note([fact], lane)
        self.submit(lane, commit)
        return commit.lsn

    def write_owed(self) -> None:
        """Try once more to write notes that could not be written, though nobody writes anything else."""
        for lane in self.lanes:
            if lane.owed and not lane.shard.failed:
                self.submit(lane, Note([]))

    def _schedule(self) -> None:
        """Write what has come when this turn is over; or the next one, when many came lately.

        A turn finds only those at the door who were answered first by the one before. With the others a write serves
        more: 16 writers of single records, 12.5 in a turn instead of 8.5, cost 4 to 6 % less each. (Waiting as long as each
        turn brings somebody, or until as many have come as lately, makes it 12 to 15 and gains nothing.)
        """
        self._scheduled = True
        if self._crowd >= CROWD and not self._sync_wanted:
            self._turns_waited = 1
            self._runtime.call_soon(self._turn_over_later)
        else:
            self._runtime.call_soon(self._turn_over)

    def _turn_over(self) -> None:
        """Write. A sync serves many as well and costs no more, so for that another turn is waited for when many came lately, and
        so on, as long as each brings somebody (64 writers: 50 to 55 of them share one, 32 without).
        """
        if self._sync_wanted and self._crowd >= CROWD and self._turns_waited < TURNS_MOST:
            crowd = self._sync_crowd()
            if crowd > self._crowd_seen or not self._turns_waited:
                self._crowd_seen = crowd
                self._turns_waited += 1
                self._runtime.call_soon(self._turn_over)
                return
        self.flush()

    def _sync_crowd(self) -> int:
        """How many wait for the next sync."""
        crowd = sum([commit.waiters for lane in self.lanes for commit in lane.commits if commit.sync])
        return crowd + sum([arrivals.waiters for lane in self.lanes for arrivals in lane.expected if arrivals.sync])

    def flush(self) -> None:
        """Write what is queued, apply what need not wait, start a sync for what must."""
        if self.telling:
            if not self._scheduled:
                self._schedule()
            return
        for lane in self.lanes:
            if lane.expected:
                lane.open_expected()
        self._scheduled = self._sync_wanted = False
        self._turns_waited = self._crowd_seen = 0
        for lane in self.lanes:
            if lane.expected and not self._scheduled:
                # Come while others were opened, who may have been answered at once.
                self._schedule()
            if lane.commits:
                self._write(lane)

    def sync_all(self) -> None:
        """Start a sync of every shard that has something unsynced."""
        for lane in self.lanes:
            if not lane.syncing and not lane.shard.failed and (lane.waiting or lane.shard.dirty):
                self._start_sync(lane)

    @property
    def idle(self) -> bool:
        """Nothing is queued, waiting or being synced."""
        return not any([lane.commits or lane.expected or lane.waiting or lane.syncing for lane in self.lanes])

    def _write(self, lane: Lane) -> None:
        commits = lane.commits
        lane.commits = []
        if lane.owed:
            # Nothing was written here since they failed, so their lsns still come before all others.
            commits = [*lane.owed, *commits]
            lane.owed = []
        shard = lane.shard
        perf = self._runtime.perf
        started = perf()
        synced_lsn = shard.synced_lsn
        frames = []
        crowd = 0
        records = lane.unsynced_records
        for commit in commits:
            frames.append(commit.encode(synced_lsn))
            crowd += commit.waiters
            records += commit.records
        try:
            if shard.failed:
                raise OSError(errno.EROFS, "an earlier sync failed")
            grown = shard.write(frames, commits[-1].lsn)
        except OSError as error:
            self.write_failures_total += 1
            refusal = _read_only() if shard.failed else _write_failed(error)
            self._fail(commits, refusal)
            if shard.failed:
                self._fail_waiting(lane)
            return
        written_at = perf()
        wal_ms = (written_at - started) * 1000
        lane.unsynced_records = records
        all_wait = records > self.margin
        self.telling = True
        try:
            for commit in commits:
                commit.wal_ms = wal_ms
                partition = commit.partition
                # Nothing overtakes what waits on the same log, whatever its class is now.
                if (
                    commit.sync
                    or all_wait
                    or (partition is not None and partition.waiting_sync)
                    or (commit.others and any([other.waiting_sync for other in commit.others]))
                ):
                    commit.written_at = written_at
                    commit.hold(1)
                    lane.waiting.append(commit)
                    commit.written()
                else:
                    try:
                        commit.apply()
                    except Exception:  # noqa: BLE001 - told there
                        self.not_true()
        finally:
            self.telling = False
        self.wrote(lane, grown, len(commits), crowd)

    def wrote(self, lane: Lane, grown: int, frames: int, waiters: int) -> None:
        """So many frames were written, so many bytes long, and what need not be synced is true."""
        self.frames_total += frames
        self.batches_total += 1
        if frames > self.queue_depth_peak:
            self.queue_depth_peak = frames
        self._crowd = waiters
        if not lane.syncing:
            if lane.waiting or lane.unsynced_records * 2 > self.margin:
                self._start_sync(lane)
            elif self._sync_timer is None:
                self._sync_later()
        self.on_written(lane.shard, grown)

    def not_true(self) -> None:
        """Whatever goes wrong with one commit, a bug of ours, is told and costs the others of its turn nothing."""
        log.exception("a commit that stands in the log did not become true as a whole")

    def _sync_later(self) -> None:
        if self._sync_timer is None:
            self._sync_timer = self._runtime.call_later(self._sync_interval_ms, self._sync_in_background)

    def _sync_in_background(self) -> None:
        self._sync_timer = None
        self.sync_all()

    def _start_sync(self, lane: Lane) -> None:
        lane.syncing = True
        covered_records = lane.unsynced_records
        perf = self._runtime.perf
        shard = lane.shard
        # Of little data, to a disk that has nothing else to do for us.
        grown = shard.bytes_written - lane.bytes_at_sync
        light = not self.disk_busy and grown <= QUICK_BYTES
        lane.bytes_at_sync = shard.bytes_written
        lane.close_syncs = lane.close_syncs + 1 if lane.waiting and grown <= CLOSE_BYTES else 0
        filled = shard.zero_ahead(lane.close_syncs >= CLOSE_LEAST)
        took = 0.0

        def sync() -> int:
            nonlocal took
            started = perf()
            covered = shard.sync()
            took = perf() - started
            return covered

        def done(covered: int, error: BaseException | None) -> None:
            lane.syncing = False
            if error is not None:
                shard.failed = True
                self._fail_waiting(lane)
                self._write_next(lane)
                self.on_synced()
                return
            self.syncs_total += 1
            self.sync_times.add(took)
            if light and not (filled and QUICK_SECONDS <= took < SLOW_SECONDS):
                lane.count_sync(took)
            lane.unsynced_records -= covered_records
            self._synced(lane, covered)

        if lane.waiting and light and lane.is_quick and not self.telling:
            covered, failure = 0, None
            try:
                covered = sync()
            except OSError as error:
                failure = error
            done(covered, failure)
        else:
            self._runtime.run_aside(f"sync-{shard.number}", sync, done)

    def _synced(self, lane: Lane, covered: int) -> None:
        waiting = lane.waiting
        now = self._runtime.perf()
        safe: list[Commit] = []
        while waiting and waiting[0].lsn <= covered:
            safe.append(waiting.popleft())
        on_the_spot = lane.is_quick and not self.disk_busy
        if not on_the_spot:
            # The next ones first, so that the disk has work while those who waited are answered.
            self._go_on(lane)
        self.telling = True
        try:
            for commit in safe:
                commit.sync_ms = (now - commit.written_at) * 1000
                commit.hold(-1)
                try:
                    commit.apply()
                except Exception:  # noqa: BLE001 - told there
                    self.not_true()
        finally:
            self.telling = False
        lane.settled_lsn = covered
        self.on_synced()
        if on_the_spot:
            # In the next turn, not here: a client with a thousand writes behind each other would have us go deeper with
            # each, and nobody else would be heard.
            if (lane.commits or lane.expected) and not self._scheduled:
                self._schedule()
            if lane.waiting and not lane.syncing:
                self._start_sync(lane)
        if not lane.syncing and lane.shard.dirty:
            # Written while the sync ran: nobody waits for it, but it must not stay unsynced until the next write.
            self._sync_later()

    def _go_on(self, lane: Lane) -> None:
        """What was kept back while the sync ran is written, and synced with whatever else waits for that."""
        self._write_next(lane)
        if lane.waiting and not lane.syncing:
            self._start_sync(lane)

    def _write_next(self, lane: Lane) -> None:
        if lane.expected:
            lane.open_expected()
        if lane.commits:
            self._write(lane)

    def _fail_waiting(self, lane: Lane) -> None:
        waiting = list(lane.waiting)
        lane.waiting.clear()
        for commit in waiting:
            commit.hold(-1)
        self._fail(waiting, _read_only())

    def _fail(self, commits: list[Commit], error: TopicsError) -> None:
        self.telling = True
        try:
            for commit in reversed(commits):
                commit.take_back()
            for commit in reversed(commits):
                try:
                    commit.fail(error)
                except Exception:
                    log.exception("somebody could not be told of a failed write")
        finally:
            self.telling = False


def _read_only() -> Unavailable:
    return Unavailable(
        "a sync of the log failed; this shard takes no more writes until the server is restarted", code="read_only"
    )


def _write_failed(error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable("the disk is full; nothing was written", code="storage_full")
    return Unavailable(f"the log could not be written: {error.strerror or error}", code="storage_error")


def _nothing(_shard: WalShard, _bytes: int) -> None:
    pass


def _no_news() -> None:
    pass
