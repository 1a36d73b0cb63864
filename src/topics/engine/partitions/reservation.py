"""A reservation: seqs and bytes that are assigned to a write before it is in the log.

    partition.reserve(count, size, now_ms) -> Reservation
        |-- settle()     the records are applied, or about to be: they are not pending any more
        '-- release()    the write failed: its seqs are assigned again

A partition assigns seqs in order, so reservations that fail together are released in reverse order, the last one first.
Records that are in the log but not synced can be shown to readers that ask for them: see `show_unsynced`.
"""

from typing import Protocol

from topics.model.records.page import Page


class SeqAssigner(Protocol):
    """What a reservation asks of the partition that assigned its seqs."""

    # Pages that are written to the log but not synced.
    unsynced: list[Page]

    def settle_reservation(self, reservation: "Reservation", /) -> None: ...
    def release_reservation(self, reservation: "Reservation", /) -> None: ...


class Reservation:
    """`count` seqs of a partition from `first_seq` on. `ts` is the `$ts` of the records."""

    __slots__ = ("count", "first_seq", "partition", "records", "size", "ts", "unsynced")

    def __init__(self, partition: SeqAssigner, first_seq: int, count: int, size: int, ts: int) -> None:
        self.partition = partition
        self.first_seq = first_seq
        self.count = count
        # How many of the seqs get a record; the others are lost.
        self.records = count
        self.size = size
        self.ts = ts
        # Pages of these records that are shown to readers before their sync.
        self.unsynced: list[Page] = []

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    def show_unsynced(self, pages: list[Page]) -> None:
        """The log has the records; readers that asked for unsynced records may see them."""
        self.unsynced = pages
        self.partition.unsynced += pages

    def settle(self) -> None:
        self.partition.settle_reservation(self)

    def release(self) -> None:
        self.partition.release_reservation(self)
