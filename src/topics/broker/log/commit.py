"""Commits: what an operation wants to write, and what happens when it is written or refused.

Commit        facts, partitions, sync requirement, rollback, reply
FactCommit    an operation that differs from others in its facts and its reply only
Note          facts that are applied already and only have to be logged
PendingReads  requests that are received and not decoded yet
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from topics.broker.log.apply import apply
from topics.broker.state import State
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reservation import Reservation
from topics.engine.tables.versions import Versions
from topics.model.errors import TopicsError
from topics.model.facts import Fact, frees_space
from topics.runtime.replies import call, ignore, run_each, send
from topics.storage.log.frame import frame_of


class Commit:
    """An operation on its way to the log. The committer takes every commit through one of these sequences:

        encode, write, [written, sync,] apply, after_apply, reply(None), release     it is in the log
        rollback, reply(error), release                                              it is not, or its sync failed

    `reply` and `release` are called exactly once, whatever the other steps raise. When a write fails, all its commits are
    rolled back, the last one first, before the first reply: a reply may submit the next commit at once.
    """

    __slots__ = (
        "facts",
        "lsn",
        "others",
        "partition",
        "prepared",
        "records",
        "reservations",
        "sync",
        "sync_ms",
        "waiters",
        "wal_ms",
        "written_at",
    )

    def __init__(
        self,
        facts: list[Fact] | None = None,
        partition: Partition | None = None,
        records: int = 0,
        *,
        sync: bool = False,
    ) -> None:
        self.lsn = 0
        self.facts = facts or []
        # The partition whose order this commit must keep, if it is about one.
        self.partition = partition
        # Further partitions, of a commit over several.
        self.others: tuple[Partition, ...] = ()
        # The seqs that were reserved for it, in the order of the reservations.
        self.reservations: Sequence[Reservation] = ()
        # What the operation has computed for the apply function of its facts; see `apply.py`.
        self.prepared: Any = None
        # How many seqs it assigns.
        self.records = records
        # Whether it must be synced before it is applied.
        self.sync = sync
        # How many requests wait for it.
        self.waiters = 1
        self.wal_ms = 0.0
        self.sync_ms = 0.0
        self.written_at = 0.0

    def encode(self, synced_lsn: int) -> bytes | list[bytes]:
        """Return the frame, or a large one in parts. Called when the turn ends and nothing can be added any more."""
        return frame_of(self.lsn, synced_lsn, self.facts)

    def count_waiting(self, change: int) -> None:
        """Count this commit in, or out of, those of its partitions that wait for a sync."""
        if self.partition is not None:
            self.partition.waiting_sync += change
        for other in self.others:
            other.waiting_sync += change

    def written(self) -> None:
        """Called when the log has it and `apply` still waits for the sync."""

    def apply(self, state: State) -> None:
        """Apply the facts."""
        self.settle_reservations()
        prepared = self.prepared
        for fact in self.facts:
            apply(state, fact, prepared)

    def after_apply(self) -> None:
        """Evict, wake readers, count."""

    def rollback(self) -> None:
        """Undo what was reserved when it was decided: its seqs are free again."""
        for reservation in reversed(self.reservations):
            reservation.release()

    def settle_reservations(self) -> None:
        """The records are about to be applied: they are not pending any more."""
        for reservation in self.reservations:
            reservation.settle()

    def reply(self, error: TopicsError | None) -> None:
        """Answer every request that waits for it, each with `replies.send`: with its outcome, or with the error."""

    def release(self) -> None:
        """Release what is reserved until the requests are answered, and run the requests that waited for that."""

    def frees_space(self) -> bool:
        """Whether it may be written on a full disk. Asked when the frame is encoded."""
        return bool(self.facts) and frees_space(self.facts)


class FactCommit(Commit):
    """Facts, and functions for the steps in which operations differ. Requests that wait for a version are woken.

    `reply` gets None when the facts are applied, or the error. `after_apply` gets the commit. `result` is what the apply function
    of the last fact returned: for a delete, the number of records.
    """

    __slots__ = ("_after_apply", "_release", "_reply", "_rollback", "_versions", "is_logged", "result")

    def __init__(
        self,
        facts: list[Fact],
        reply: Callable[[TopicsError | None], None],
        *,
        partition: Partition | None = None,
        sync: bool = True,
        after_apply: "Callable[[FactCommit], None] | None" = None,
        rollback: Callable[[], None] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(facts, partition, sync=sync)
        self._reply = reply
        self._after_apply = after_apply
        self._rollback = rollback
        self._release = release
        self._versions: Versions | None = None
        # Whether it was written to the log, also if it could not be synced or applied.
        self.is_logged = False
        self.result: Any = None

    def written(self) -> None:
        self.is_logged = True

    def apply(self, state: State) -> None:
        self.is_logged = True
        self.settle_reservations()
        for fact in self.facts:
            self.result = apply(state, fact, self.prepared)
        self._versions = state.versions

    def after_apply(self) -> None:
        if self._after_apply is not None:
            self._after_apply(self)

    def rollback(self) -> None:
        super().rollback()
        if self._rollback is not None:
            self._rollback()

    def reply(self, error: TopicsError | None) -> None:
        send(self._reply, error)

    def release(self) -> None:
        release = self._release
        # The functions often refer to this commit. Break the cycle, so that what they hold (a sealed segment's records) is
        # freed without the garbage collector, which runs seldom.
        self._reply, self._after_apply, self._rollback, self._release = ignore, None, None, None
        if self._versions is not None:
            run_each(self._versions.watchers_of(self.facts))
        if release is not None:
            call(release)


class Note(Commit):
    """Facts that are already applied and only have to be logged; no request waits for them.

    With `unwritten`, a note whose write failed is added to this list, whose notes are written first in the next write: later
    decisions may depend on them. Their facts must allow being logged late.
    """

    __slots__ = ("_unwritten",)

    def __init__(self, facts: list[Fact], unwritten: "list[Note] | None" = None) -> None:
        super().__init__(facts)
        self._unwritten = unwritten

    def apply(self, state: State) -> None:
        """Applied when it was decided."""

    def frees_space(self) -> bool:
        # Without facts it only writes the notes that are waiting.
        return frees_space(self.facts)

    def reply(self, error: TopicsError | None) -> None:
        if error is not None and self._unwritten is not None:
            # Commits fail in reverse order; the list keeps the order of submission.
            self._unwritten.insert(0, self)


class PendingReads(Protocol):
    """Requests that are received and not decoded yet: all of them are decoded at once, right before the next write."""

    @property
    def sync(self) -> bool:
        """Whether commits with a sync are expected from it."""

    @property
    def waiters(self) -> int: ...

    def open(self) -> None:
        """Decode the requests, and submit the commits that follow from them."""
