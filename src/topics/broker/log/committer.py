"""Group commit: write queued commits to the log, sync if required, apply them, reply.

Each loop turn writes all queued commits with one call. A commit that needs durability waits for one fdatasync that covers
everything written before it. Commits are applied and answered in submission order.

    submit -> [end of the turn] write -> apply -> reply                  class memory, disk
    submit -> [end of the turn] write -> fdatasync -> apply -> reply     class fsync; topic creation and deletion

Guarantees:
- A failed write leaves no bytes in the log; its commits fail and release their seqs.
- A failed fdatasync is final: pending commits fail and later ones get 503. A retry could report success for pages that
  the kernel has already dropped.
- At most `margin` records are readable but not durable. After a power cut recovery skips that many seqs, so no seq is
  assigned twice.

Single records gathered for one topic may be written before the other commits of their turn: see `fast_append.py`.

A write of more than `max_loop_write_bytes` would stall the loop, so it runs in the thread that syncs. Commits submitted
meanwhile stay queued until it ends: there is one write at a time, and the thread runs no sync beside it. If it fails, the
queued commits fail with it, because their seqs follow those it releases.

A commit that needs a sync and is submitted while a sync runs is written when that sync ends: earlier would only make more
and smaller writes. Small syncs that take at most a millisecond, as on disks with a power-safe cache, run on the loop;
others run in a thread (docs/decisions/0011-short-syncs-on-the-event-loop.md). A slow sync moves the next thousand to the thread.

A reply callback may submit new commits; they join the next turn.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from topics.broker.log.commit import Commit, Note, PendingReads
from topics.broker.log.disk_space import DiskSpace
from topics.broker.log.sync_policy import SyncPolicy
from topics.broker.state import State
from topics.model.errors import TopicsError, Unavailable
from topics.model.facts import Fact
from topics.runtime.health import Health
from topics.runtime.interface import Runtime, Timer
from topics.runtime.replies import call, ignore, internal_error, run_each
from topics.storage.log.wal import WalWriter

log = logging.getLogger("topics.broker")

SYNC_BUCKETS_US = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000)


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


class Committer:
    """Owns the log. Everything except syncs in the thread happens on the loop."""

    def __init__(
        self,
        runtime: Runtime,
        state: State,
        wal: WalWriter,
        *,
        next_lsn: int,
        margin: int,
        sync_interval_ms: int,
        max_loop_write_bytes: int,
        health: Health,
        space: DiskSpace,
    ) -> None:
        self.health = health
        self.space = space
        health.declare("log_write", "log_sync")
        self._state = state
        self.wal = wal
        self.next_lsn = next_lsn
        self.margin = margin
        # Submitted and not yet written, in order.
        self.commits: list[Commit] = []
        # Opened before the next write, each once.
        self.expected: list[PendingReads] = []
        # Notes whose write failed, in order; they go first in the next write.
        self.unwritten_notes: list[Note] = []
        # Written and waiting for a sync, in order.
        self.waiting: deque[Commit] = deque()
        self.syncing = False
        # Whether the thread is writing; nothing else is written meanwhile. And the commits of that write, until they are
        # applied or fail.
        self.writing = False
        self._being_written: list[Commit] = []
        # Called when that write has ended.
        self._after_write: list[Callable[[], None]] = []
        self._max_loop_write_bytes = max_loop_write_bytes
        # Everything up to here is synced and applied. `wal.synced_lsn` may be ahead: the thread sets it.
        self.settled_lsn = wal.last_lsn
        # Records written since the last sync that succeeded.
        self.unsynced_records = 0
        self.policy = SyncPolicy()
        self.frames_total = 0
        self.batches_total = 0
        self.syncs_total = 0
        self.write_failures_total = 0
        self.queue_depth_peak = 0
        self.sync_times = SyncTimes()
        # Called after each write with its bytes, and after each sync whether it succeeded or not.
        self.on_written: Callable[[int], None] = ignore
        self.on_synced: Callable[[], None] = ignore
        # How many jobs the storage thread has: seals, snapshots, removals of files.
        self.disk_busy = 0
        # Set while commits are applied or failed one after the other. A callback may submit commits or request a sync; they
        # are written after the last one of the batch, or a later commit would be applied before an earlier one.
        self.notifying = False
        self._runtime = runtime
        self._turn_over_later = partial(runtime.call_soon, self._turn_over)
        self._scheduled = False
        # Whether a commit of the next write needs a sync.
        self._sync_wanted = False
        # Bytes written when the last sync began.
        self._bytes_at_sync = wal.bytes_written
        self._sync_interval_ms = sync_interval_ms
        self._sync_timer: Timer | None = None

    @property
    def queue_depth(self) -> int:
        return len(self.commits) + len(self._being_written) + len(self.waiting)

    @property
    def pending(self) -> list[Commit]:
        """Commits that are submitted and not yet applied, in order."""
        return [*self.waiting, *self._being_written, *self.commits]

    @property
    def read_only(self) -> bool:
        return self.wal.failed

    def check_writable(self) -> None:
        """Raise Unavailable after a failed sync: the log takes no more writes."""
        if self.wal.failed:
            raise _read_only()

    def submit(self, commit: Commit) -> None:
        """Queue the commit behind everything submitted before."""
        commit.lsn = lsn = self.next_lsn
        self.next_lsn = lsn + 1
        self.commits.append(commit)
        if commit.sync:
            self._sync_wanted = True
            # It is written when the running sync ends; earlier would only make more and smaller writes.
            if self.syncing:
                return
        if not self._scheduled:
            self._schedule()

    def expect(self, reads: PendingReads) -> None:
        """Queue requests that are not decoded yet: they are opened right before the next write."""
        self.expected.append(reads)
        if reads.sync:
            self._sync_wanted = True
            if self.syncing:
                return
        if not self._scheduled:
            self._schedule()

    def note(self, fact: Fact) -> int:
        """Log a fact that is already applied and may be logged late. Returns its lsn."""
        commit = Note([fact], self.unwritten_notes)
        self.submit(commit)
        return commit.lsn

    def write_notes(self) -> bool:
        """Write what is queued if it consists of notes. Returns whether nothing is queued or being written after that."""
        if not self.notifying and all([type(commit) is Note for commit in self.commits]):
            self._write()
        return not self.commits and not self.writing

    def retry_unwritten_notes(self) -> None:
        """Write notes whose write failed, although nothing else is submitted."""
        if self.unwritten_notes and not self.wal.failed:
            self.submit(Note([]))

    def _schedule(self) -> None:
        """Write when this turn is over, or one turn later when many writers shared the last write: see `SyncPolicy`."""
        self._scheduled = True
        if not self._sync_wanted and self.policy.delays_write():
            self._runtime.call_soon(self._turn_over_later)
        else:
            self._runtime.call_soon(self._turn_over)

    def _turn_over(self) -> None:
        if self._sync_wanted and self.policy.delays_sync(self._sync_waiters()):
            self._runtime.call_soon(self._turn_over)
        else:
            self.flush()

    def _sync_waiters(self) -> int:
        """How many requests wait for the next sync."""
        waiters = sum([commit.waiters for commit in self.commits if commit.sync])
        return waiters + sum([reads.waiters for reads in self.expected if reads.sync])

    def flush(self) -> None:
        """Write what is queued, apply what needs no sync, start a sync for the rest."""
        if self.notifying:
            if not self._scheduled:
                self._schedule()
            return
        if self.writing:
            # `_write_in_thread` schedules the next write when this one has ended.
            self._scheduled = False
            return
        if self.expected:
            self._open_expected()
        self._scheduled = self._sync_wanted = False
        self.policy.start_write()
        if self.expected:
            # They arrived while others were opened, which may have been answered immediately.
            self._schedule()
        if self.commits:
            self._write()

    def when_written(self, then: Callable[[], None]) -> None:
        """Write what is queued, and call `then` when all of it is in the log and nothing is being written.

        `then` is called here, or when the thread has written it; never later than that, however much is submitted meanwhile.
        """
        was_writing = self.writing
        self.flush()
        if was_writing:
            # What is queued now is the next write.
            self._after_write.append(lambda: self.when_written(then))
        elif self.writing:
            self._after_write.append(then)
        else:
            then()

    def sync(self) -> None:
        """Start a sync unless one is running or nothing is unsynced."""
        if not self.syncing and not self.wal.failed and (self.waiting or self.wal.dirty):
            self._start_sync()

    def _open_expected(self) -> None:
        expected, self.expected = self.expected, []
        run_each([reads.open for reads in expected])

    @property
    def idle(self) -> bool:
        """Nothing is queued, waiting or being synced."""
        return not (self.commits or self.expected or self.writing or self.waiting or self.syncing)

    def _write(self) -> None:
        if self.writing:
            return
        commits = self.commits
        self.commits = []
        if self.unwritten_notes:
            # Nothing was written since they failed, so their lsns are lower than all others.
            commits = [*self.unwritten_notes, *commits]
            self.unwritten_notes.clear()
        self._write_all(commits)

    def _write_all(self, commits: list[Commit]) -> None:
        wal = self.wal
        started = self._runtime.perf()
        synced_lsn = wal.synced_lsn
        frames: list[bytes] = []
        for commit in commits:
            try:
                frame = commit.encode(synced_lsn)
                frames += frame if isinstance(frame, list) else (frame,)
            except Exception:
                log.exception("exception while encoding %s; nothing of this write is logged", type(commit).__name__)
                self._encode_failed(commits, commit)
                return
        if self.space.low and not wal.failed and self._refuse_growth(commits):
            return
        if not wal.failed and sum(map(len, frames)) > self._max_loop_write_bytes:
            self._write_in_thread(commits, frames, started)
            return
        try:
            if wal.failed:
                raise OSError(errno.EROFS, "an earlier sync failed")
            grown = wal.write(frames, commits[-1].lsn)
        except Exception as error:  # noqa: BLE001 - reported by `_write_failed`
            self._not_written(commits, error)
        else:
            self._written(commits, grown, started)

    def _write_in_thread(self, commits: list[Commit], frames: list[bytes], started: float) -> None:
        """Write in the thread that syncs. It does one thing after the other, so no sync runs at the same time."""
        self.writing = True
        self._being_written = commits
        wal, last_lsn = self.wal, commits[-1].lsn

        def done(grown: int, error: BaseException | None) -> None:
            self.writing = False
            # Empty when a sync that was queued before this write has failed, and these commits with it.
            written, self._being_written = self._being_written, []
            if error is not None and written:
                # Those submitted meanwhile have seqs behind the ones that are released now.
                later, self.commits = self.commits, []
                self._not_written(written + later, error)
            elif written:
                self._written(written, grown, started)
            if self.writing:
                return
            if (self.commits or self.expected) and not self._scheduled:
                self._schedule()
            after, self._after_write = self._after_write, []
            run_each(after)

        self._runtime.run_in_thread("sync", lambda: wal.write(frames, last_lsn), done)

    def _not_written(self, commits: list[Commit], error: BaseException) -> None:
        # Entering low space, try once more with those that free some.
        if (
            isinstance(error, OSError)
            and not self.wal.failed
            and any([commit.frees_space() for commit in commits])
            and self.space.run_out(error)
        ):
            self._write_all(commits)
        else:
            self._write_failed(commits, error)

    def _written(self, commits: list[Commit], grown: int, started: float) -> None:
        """The log has these commits: apply those that need no sync, and start a sync for the others."""
        written_at = self._runtime.perf()
        wal_ms = (written_at - started) * 1000
        waiters = 0
        for commit in commits:
            waiters += commit.waiters
            self.unsynced_records += commit.records
        all_wait = self.unsynced_records > self.margin
        self.notifying = True
        try:
            for commit in commits:
                commit.wal_ms = wal_ms
                partition = commit.partition
                # A commit of a partition is never applied before an earlier one that waits for its sync.
                if (
                    commit.sync
                    or all_wait
                    or (partition is not None and partition.waiting_sync)
                    or (commit.others and any([other.waiting_sync for other in commit.others]))
                ):
                    commit.written_at = written_at
                    commit.count_waiting(1)
                    self.waiting.append(commit)
                    call(commit.written)
                else:
                    self._complete(commit)
        finally:
            self.notifying = False
        self.wrote(grown, len(commits), waiters)

    def _refuse_growth(self, commits: list[Commit]) -> bool:
        """Fail those of these encoded commits that free no space, and write the others. Returns whether there were any."""
        refused = [commit for commit in commits if not commit.frees_space()]
        if not refused:
            return False
        self.write_failures_total += 1
        freeing = [commit for commit in commits if commit.frees_space()]
        self._fail(refused, _write_refused(OSError(errno.ENOSPC, "")))
        if freeing:
            self._write_all(freeing)
        return True

    def wrote(self, grown: int, frames: int, waiters: int) -> None:
        """Count a write of `frames` frames and `grown` bytes whose commits without a sync are applied; start the next sync."""
        self.frames_total += frames
        self.batches_total += 1
        if frames > self.queue_depth_peak:
            self.queue_depth_peak = frames
        self.policy.count_write(waiters)
        if self.health.degraded:
            self.health.clear("log_write")
        if not self.syncing:
            if self.waiting or self.unsynced_records * 2 > self.margin:
                self._start_sync()
            elif self._sync_timer is None:
                self._sync_later()
        try:
            self.on_written(grown)
        except Exception:
            log.exception("exception after a write to the log")

    def _complete(self, commit: Commit) -> None:
        """Apply a commit that is in the log, as durable as it must be, and answer it. Never raises."""
        error = None
        try:
            commit.apply(self._state)
            commit.after_apply()
        except Exception:  # noqa: BLE001 - logged by `apply_failed`
            self.apply_failed()
            error = internal_error()
        self._conclude(commit, error)

    def _conclude(self, commit: Commit, error: TopicsError | None) -> None:
        """Answer the commit's requests and release what it holds. Never raises."""
        # `call`, twice, for every commit: 0.3 us less so.
        try:
            commit.reply(error)
        except Exception:
            log.exception("exception while answering %s", type(commit).__name__)
        try:
            commit.release()
        except Exception:
            log.exception("exception while releasing what %s holds", type(commit).__name__)

    def apply_failed(self) -> None:
        """Log an exception raised while applying a commit; the other commits of the batch are still applied."""
        log.exception("exception while applying a commit; it is in the log and is replayed at the next start")

    def _encode_failed(self, commits: list[Commit], broken: Commit) -> None:
        """Fail all commits of the write: later ones may depend on the broken one, and have seqs after its seqs."""
        self.write_failures_total += 1
        self._fail(commits, internal_error())
        if broken in self.unwritten_notes:
            # Tried again, it would fail every later write too. Its facts are applied; a restart may not know them.
            self.unwritten_notes.remove(broken)

    def _write_failed(self, commits: list[Commit], error: BaseException) -> None:
        wal = self.wal
        self.write_failures_total += 1
        if not isinstance(error, OSError):
            log.error("unexpected exception while writing the log; it takes no more writes", exc_info=error)
            # How much of the write is in the file is not known.
            wal.failed = True
        if not wal.failed:
            self.health.fail("log_write", f"cannot write to the log: {error}; writes are refused")
        elif not self.health.is_raised("log_sync"):
            self.report_read_only(error)
        if wal.failed:
            self.commits = commits + self.commits
            self._fail_pending()
        else:
            self._fail(commits, _write_refused(error))

    def _sync_later(self) -> None:
        if self._sync_timer is None:
            self._sync_timer = self._runtime.call_later(self._sync_interval_ms, self._sync_in_background)

    def _sync_in_background(self) -> None:
        self._sync_timer = None
        self.sync()

    def _start_sync(self) -> None:
        self.syncing = True
        covered_records = self.unsynced_records
        perf = self._runtime.perf
        wal = self.wal
        policy = self.policy
        grown = wal.bytes_written - self._bytes_at_sync
        self._bytes_at_sync = wal.bytes_written
        light = policy.is_light(grown, self.disk_busy)
        zeros_wanted = policy.start_sync(grown, awaited=bool(self.waiting))
        # While the thread writes, it alone writes ahead of the frames.
        wrote_zeros = not self.writing and wal.zero_ahead(zeros_wanted)
        took = 0.0

        def sync() -> int:
            nonlocal took
            started = perf()
            covered = wal.sync()
            took = perf() - started
            return covered

        def done(covered: int, error: BaseException | None) -> None:
            self.syncing = False
            if error is not None:
                wal.failed = True
                self.report_read_only(error)
                self._fail_pending()
                self._write_next()
                call(self.on_synced)
                return
            self.syncs_total += 1
            self.sync_times.add(took)
            if light:
                policy.count_sync(took, wrote_zeros=wrote_zeros)
            self.unsynced_records -= covered_records
            self._synced(covered)

        if self.waiting and light and policy.syncs_are_fast and not self.notifying and not self.writing:
            covered, failure = 0, None
            try:
                covered = sync()
            except Exception as error:  # noqa: BLE001 - reported by `done`
                failure = error
            done(covered, failure)
        else:
            self._runtime.run_in_thread("sync", sync, done)

    def _synced(self, covered: int) -> None:
        waiting = self.waiting
        now = self._runtime.perf()
        safe: list[Commit] = []
        while waiting and waiting[0].lsn <= covered:
            safe.append(waiting.popleft())
        on_loop = self.policy.syncs_are_fast and not self.disk_busy
        if not on_loop:
            # Start the next sync first, so that the disk works while these commits are applied and answered.
            self._go_on()
        self.notifying = True
        try:
            for commit in safe:
                commit.sync_ms = (now - commit.written_at) * 1000
                commit.count_waiting(-1)
                self._complete(commit)
        finally:
            self.notifying = False
        self.settled_lsn = covered
        call(self.on_synced)
        if on_loop:
            # In the next turn, not here: a client that pipelines a thousand writes would recurse once for each, and no
            # other connection would be served.
            if (self.commits or self.expected) and not self._scheduled:
                self._schedule()
            if self.waiting and not self.syncing:
                self._start_sync()
        if not self.syncing and self.wal.dirty:
            # Written while the sync ran. No request waits for it, but it must not stay unsynced until the next write.
            self._sync_later()

    def _go_on(self) -> None:
        """Write what was queued while the sync ran, and start a sync for what waits for one."""
        self._write_next()
        if self.waiting and not self.syncing:
            self._start_sync()

    def _write_next(self) -> None:
        if self.writing:
            return
        if self.expected:
            self._open_expected()
        if self.commits:
            self._write()

    def report_read_only(self, error: BaseException) -> None:
        """The log takes no more writes."""
        self.health.fail(
            "log_sync", f"the log cannot be synced: {error}; writes are refused until the server is restarted"
        )

    def _fail_pending(self) -> None:
        """The log takes no more writes: fail every commit that is not applied."""
        pending = self.pending
        for commit in self.waiting:
            commit.count_waiting(-1)
        self.waiting.clear()
        self._being_written = []
        self.commits = []
        self._fail(pending, _read_only())

    def _fail(self, commits: list[Commit], error: TopicsError) -> None:
        self.notifying = True
        try:
            for commit in reversed(commits):
                call(commit.rollback)
            for commit in reversed(commits):
                self._conclude(commit, error)
        finally:
            self.notifying = False


def _read_only() -> Unavailable:
    return Unavailable(
        "a sync of the log failed; the server takes no more writes until it is restarted", code="read_only"
    )


def _write_refused(error: BaseException) -> Unavailable:
    assert isinstance(error, OSError)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable("the disk is full; nothing was written", code="storage_full")
    return Unavailable(f"the log could not be written: {error.strerror or error}", code="storage_error")
