"""Pieces: a task copies a range of seqs into files, the driver adds the pieces of a batch to the table with one commit.

A piece names its first and last seq. The commit is refused unless the table's positions are the first seqs of the batch. So
a batch that is retried, by the same driver or another one, in the same pieces or in others, is in the table once. Files of
pieces that were never committed are not in the log, and no reader opens them.

The quarantine is a separate table, and no commit covers both tables. It is committed first and has its own positions: when
the driver dies between the two commits, the retried batch skips the records that are already in the quarantine.
"""

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from topics.archive.files import Added, FileWriter
from topics.archive.ledger import ArchiveError, Ledger, Move, Overtaken, open_quarantine
from topics.archive.place import Place
from topics.archive.rows import (
    FILE_SCHEMA,
    QUARANTINE_FILE_SCHEMA,
    convertible,
    quarantined_rows,
    record_rows,
    tombstone_row,
)
from topics.client import Client
from topics.client.range_pages import arrow_page, check_page

PAGE_RECORDS = 100_000


class Work(Struct, frozen=True):
    """Copy seqs first..last of one partition.

    With `begins`, the topic was created again with that epoch: write a `recreated` tombstone at `first` of the old instance.
    """

    topic: str
    partition: int
    epoch: int
    first: int
    last: int
    # Records below this seq that cannot be converted are already in the quarantine.
    quarantine_from: int = 1
    begins: int | None = None


class Piece(Struct, frozen=True):
    """The files and counts that one piece of work produced."""

    work: Work
    files: list[Added]
    records: int
    # Records that were lost before they could be archived.
    lost: int
    quarantine_files: list[Added]
    quarantined: int
    # Bytes of the data of the records, and the time of the newest one in milliseconds (0 without records).
    data_bytes: int = 0
    newest_ts: int = 0


class Committed(Struct, frozen=True):
    """The result of a commit. `repeated`: the batch had been committed before, and nothing was written."""

    version: int
    records: int
    lost: int
    quarantined: int
    repeated: bool = False


class RecordsLost(ArchiveError):
    """Records that existed when the work was planned are gone, and the server gave no tombstone for them."""


def copy_piece(client: Client, work: Work, place: Place, quarantine: Place) -> Piece:
    """Copy the work into files that no log names yet. On failure its files are removed."""
    writer = PieceWriter(work, place, quarantine)
    try:
        if work.begins is not None:
            writer.add_gap(work.first, work.first, "recreated")
        else:
            for page, tombstone in _prefetched(pages(client, work)):
                if tombstone is not None:
                    writer.add_gap(tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"])
                for batch in page:
                    writer.add_page(batch)
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def commit_pieces(archive: Ledger, topic: str, pieces: list[Piece], note: dict[str, str] | None = None) -> Committed:
    """Add all pieces to the table once. Raises Overtaken when the table's positions are not their first seqs."""
    epoch = max([piece.work.begins or piece.work.epoch for piece in pieces])
    moves = _moves([piece.work for piece in pieces if piece.work.begins is None])
    partitions = max([move.partition + 1 for move in moves], default=0)
    archive.refresh()
    at = archive.position(topic)
    # The tombstone that ends the old instance is in the commit that begins the new one.
    done = all([at.next_seq(epoch, move.partition) > move.last for move in moves])
    if at.epoch > epoch or (at.epoch == epoch and done):
        return Committed(archive.version, 0, 0, 0, repeated=True)
    _commit_quarantine(archive.uri, pieces, topic, epoch, partitions)
    files = [file for piece in pieces for file in piece.files]
    counts = {
        "records": sum([piece.records for piece in pieces]),
        "lost": sum([piece.lost for piece in pieces]),
        "quarantined": sum([piece.quarantined for piece in pieces]),
        "bytes": sum([piece.data_bytes for piece in pieces]),
        "newest_ts": max([piece.newest_ts for piece in pieces]),
    }
    notes = {**(note or {}), **{f"topics.{name}": str(count) for name, count in counts.items()}}
    version = archive.commit(topic, epoch, partitions, moves, files, notes)
    return Committed(version, counts["records"], counts["lost"], counts["quarantined"])


def pages(client: Client, work: Work) -> Iterator[tuple[list[Any], dict[str, Any] | None]]:
    """Yield Arrow batches with the tombstone that precedes them, if any, up to the end of the work.

    Raises Overtaken when the topic was created again, IncompletePage when a page does not cover what it claims to, and
    RecordsLost when the topic ends before the work does.
    """
    at = work.first - 1
    while at < work.last:
        stream = client.diff_arrow(
            work.topic, at, to_seq=work.last, limit=PAGE_RECORDS, epoch=work.epoch, partition=work.partition
        )
        page = arrow_page(stream)
        if page.epoch != work.epoch:
            raise Overtaken(f'topic "{work.topic}" was deleted and created again while it was being archived')
        check_page(work.topic, work.partition, at, work.last, page)
        tombstone = page.tombstone
        if tombstone is not None:
            first, last = max(at + 1, tombstone["gap_from"]), min(work.last, tombstone["gap_to"])
            tombstone = {**tombstone, "gap_from": first, "gap_to": last} if first <= last else None
        yield page.batches, tombstone
        moved = min(page.next_from_seq, work.last)
        if moved <= at:
            raise RecordsLost(
                f'topic "{work.topic}" partition {work.partition}: records {at + 1} to {work.last} were there when this '
                "batch was planned and are gone"
            )
        at = moved


class PieceWriter:
    """Writes the pages and gaps of one piece of work into files, and records that cannot be converted into the quarantine."""

    def __init__(self, work: Work, place: Place, quarantine: Place) -> None:
        self._work = work
        self._now_ms = int(time.time() * 1000)
        stem = f"{work.epoch}-{work.partition:05d}-{work.first:020d}"
        self._rows = FileWriter(place, work.topic, stem, FILE_SCHEMA)
        self._broken = FileWriter(quarantine, work.topic, stem, QUARANTINE_FILE_SCHEMA)
        self._records = 0
        self._lost = 0
        self._quarantined = 0
        self._data_bytes = 0
        self._newest_ts = 0

    def add_page(self, page: Any) -> None:
        work = self._work
        kept, broken = convertible(page)
        self._records += kept.num_rows
        if kept.num_rows:
            self._data_bytes += pc.sum(pc.binary_length(kept.column("data"))).as_py() or 0
            newest_us = pc.max(kept.column("ts").cast(pa.int64())).as_py()
            self._newest_ts = max(self._newest_ts, newest_us // 1000)
        self._rows.add(record_rows(kept, work.partition, work.epoch))
        if not broken:
            return
        seqs = page.column("seq")
        for index, _ in broken:
            seq = seqs[index].as_py()
            self._rows.add(tombstone_row(work.partition, work.epoch, seq, seq, "quarantined", self._now_ms))
        new = [(index, reason) for index, reason in broken if seqs[index].as_py() >= work.quarantine_from]
        self._quarantined += len(new)
        if new:
            self._broken.add(quarantined_rows(page, new, work.partition, work.epoch, self._now_ms))

    def add_gap(self, gap_from: int, gap_to: int, reason: str) -> None:
        self._lost += gap_to - gap_from + 1
        self._rows.add(tombstone_row(self._work.partition, self._work.epoch, gap_from, gap_to, reason, self._now_ms))

    def close(self) -> Piece:
        files = self._rows.close()
        return Piece(
            self._work,
            files,
            self._records,
            self._lost,
            self._broken.close(),
            self._quarantined,
            self._data_bytes,
            self._newest_ts,
        )

    def abort(self) -> None:
        self._rows.abort()
        self._broken.abort()


def _prefetched(items: Iterator[Any]) -> Iterator[Any]:
    """Yield the same items, fetching the next one while the current one is used: requests overlap with file writes."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, items, None)
        while (item := waiting.result()) is not None:
            waiting = pool.submit(next, items, None)
            yield item


def _moves(works: list[Work]) -> list[Move]:
    """Return one move for each partition. Raises ArchiveError when the works of a partition are not contiguous."""
    by_partition: dict[int, list[Work]] = {}
    for work in sorted(works, key=lambda each: (each.partition, each.first)):
        by_partition.setdefault(work.partition, []).append(work)
    moves = []
    for partition, mine in by_partition.items():
        for before, after in itertools.pairwise(mine):
            if after.first != before.last + 1:
                raise ArchiveError(
                    f"a piece is missing between {before.last} and {after.first} of partition {partition}"
                )
        moves.append(Move(partition, mine[0].first, mine[-1].last))
    return moves


def _commit_quarantine(uri: str, pieces: list[Piece], topic: str, epoch: int, partitions: int) -> None:
    broken = [piece for piece in pieces if piece.quarantine_files]
    if not broken:
        return
    ledger = open_quarantine(uri, create=True)
    assert ledger is not None
    at = ledger.position(topic)
    moves = []
    files: list[Added] = []
    for partition in sorted({piece.work.partition for piece in broken}):
        mine = [piece for piece in broken if piece.work.partition == partition]
        next_seq = at.next_seq(epoch, partition)
        if next_seq > max([piece.work.last for piece in mine]):
            continue
        if any([next_seq > max(piece.work.first, piece.work.quarantine_from) for piece in mine]):
            raise Overtaken(f"{ledger.uri} has topic {topic} partition {partition} up to {next_seq - 1} already")
        moves.append(Move(partition, next_seq, max([piece.work.last for piece in mine])))
        files += [file for piece in mine for file in piece.quarantine_files]
    if moves:
        ledger.commit(topic, epoch, partitions, moves, files)
