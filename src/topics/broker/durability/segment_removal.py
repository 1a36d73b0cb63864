"""Removal of segment files and packs that no recovery can need any more. Nothing else removes them while the server runs.

A file is removed when the fact that dropped its segment is synced and none of the kept snapshots names it: recovery begins with
a snapshot as it was written, before anything that happened since. While a snapshot takes its images nothing is removed, because
the images may name any segment.

    collect_dropped    segments without live records, after a fact was applied
    remove_later       a segment or pack that is not in use
    remove_pending     removes what may go now; called after syncs and snapshots
"""

from collections.abc import Callable

from msgspec import Struct

from topics.broker.durability.storage_thread import StorageContext
from topics.engine.partitions.partition import Partition
from topics.model.facts import PackedInfo
from topics.runtime.backoff import Backoff
from topics.runtime.replies import ignore
from topics.segments.packed_segments import PackedSegment
from topics.storage.segments.segment_format import ROOT as SEGMENTS
from topics.storage.segments.segment_format import remove_segment


class PendingRemoval(Struct):
    """A segment or a pack to remove once the log is synced up to `lsn`."""

    lsn: int
    base: str


class SegmentRemoval:
    def __init__(self, context: StorageContext) -> None:
        # Called with an entry of a pack that a fact made useless, and the lsn of the fact.
        self.on_entry_dropped: Callable[[PackedInfo, int], None] = ignore
        self._fs, self._state, self._committer = context.fs, context.state, context.committer
        self._health, self._space, self._storage = context.health, context.space, context.storage
        self._pending: list[PendingRemoval] = []
        self._backoff = Backoff(context.runtime, self.remove_pending)
        # Segments that the kept snapshots name, newest last; the one being written counts already.
        self._named: list[set[str]] = []
        self._taking_images = False
        context.health.declare("segment_removal")

    def start(self, dropped: list[str], named: list[set[str]]) -> None:
        """Continue after recovery: `dropped` are not in use, and the kept snapshots name `named`."""
        self._named = named
        self._pending = [PendingRemoval(0, base) for base in dropped]

    def collect_dropped(self, partition: Partition, lsn: int) -> None:
        """Remove segments that the fact at `lsn` has emptied, once that fact is durable."""
        if partition.dropped:
            for segment in partition.dropped:
                if isinstance(segment, PackedSegment):
                    self.on_entry_dropped(segment.info, lsn)
                    self._state.segment_cache.forget_damage(segment.damage_key)
                else:
                    self.remove_later(segment.base, lsn)  # type: ignore[attr-defined]
            partition.dropped = []

    def remove_later(self, base: str, lsn: int) -> None:
        """Remove the files of a base when the log is synced up to `lsn` and no kept snapshot names it."""
        self._pending.append(PendingRemoval(lsn, base))
        self._state.segment_cache.forget_damage(base)

    def remove_now(self, base: str) -> None:
        """Remove files that no fact and no snapshot names: their segment was not committed."""
        self._storage.run(lambda: self._remove([base]), ignore)

    def remove_pending(self) -> None:
        """Remove what may go now."""
        if self._taking_images or self._backoff.waiting:
            return
        removed: list[PendingRemoval] = []
        waiting = []
        for each in self._pending:
            if self._committer.wal.synced_lsn < each.lsn or any([each.base in named for named in self._named]):
                waiting.append(each)
            else:
                removed.append(each)
        if removed:
            self._pending = waiting
            for each in removed:
                self._state.segment_cache.forget(each.base)

            def done(_: None, error: BaseException | None) -> None:
                if error is None:
                    if self._space.low:
                        self._space.recheck()
                    self._health.clear("segment_removal")
                    self._backoff.succeeded()
                else:
                    self._pending += removed
                    self._health.fail("segment_removal", f"cannot remove files of dropped segments: {error}")
                    self._backoff.failed()

            self._storage.run(lambda: self._remove([each.base for each in removed]), done)

    # The snapshots that name segments

    @property
    def older_snapshots(self) -> bool:
        """Whether a snapshot besides the newest one is kept."""
        return len(self._named) > 1

    def begin_images(self) -> None:
        """A snapshot takes its images: remove nothing until it is known what they name."""
        self._taking_images = True

    def images_taken(self, named: set[str]) -> None:
        """The snapshot that is about to be written names these."""
        self._taking_images = False
        self._named.append(named)

    def snapshot_written(self, kept: int) -> None:
        """Only the newest `kept` snapshots are left."""
        del self._named[:-kept]
        self.remove_pending()

    def snapshot_failed(self) -> None:
        """The file may exist under its name all the same, so its segments are kept with those of the snapshot before."""
        unfinished = self._named.pop()
        self._named[-1:] = [unfinished.union(*self._named[-1:])]

    def _remove(self, bases: list[str]) -> None:
        for base in bases:
            remove_segment(self._fs, base)
        self._fs.sync_directory(SEGMENTS)
