"""Pieces: a task copies a range of seqs into files, the driver puts the pieces of a batch into the table with one commit.

A piece says from where to where it goes; the commit is refused unless the table stands where the batch begins. So a batch
that is tried again, by the same driver or another one, in the same pieces or in others, is in the table once. Files of
pieces that were never committed are named by nobody and go with the next vacuum.

The quarantine is a table of its own and has no commit in common with the archive, so it is committed first, with positions
of its own: when the driver dies between the two, the batch is tried again and what is in the quarantine already is known.
"""

import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
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

PAGE_RECORDS = 100_000


class Work(Struct, frozen=True):
    """Copy seqs first..last of one partition.

    Or, with `begins`: the topic was created again with that epoch, and this tells so of the old instance from `first` on.
    """

    topic: str
    partition: int
    epoch: int
    first: int
    last: int
    # What cannot be converted below this is in the quarantine already.
    quarantine_from: int = 1
    begins: int | None = None


class Piece(Struct, frozen=True):
    """What became of one piece of work."""

    work: Work
    files: list[Added]
    records: int
    # Records that were lost before they could be archived.
    lost: int
    quarantine_files: list[Added]
    quarantined: int


class Committed(Struct, frozen=True):
    """`repeated`: all of it had been committed before, and nothing was done."""

    version: int
    records: int
    lost: int
    quarantined: int
    repeated: bool = False


class Lost(ArchiveError):
    """Records that were there when the work was planned are not there any more, and the server does not say why."""


def copy_piece(client: Client, work: Work, place: Place, quarantine: Place) -> Piece:
    """Copy it into files that no log names yet. When it fails, files it began are removed."""
    copying = _Copying(work, place, quarantine)
    try:
        if work.begins is not None:
            copying.lose(work.first, work.first, "recreated")
        else:
            for page, tombstone in _ahead(pages(client, work)):
                if tombstone is not None:
                    copying.lose(tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"])
                for batch in page:
                    copying.take(batch)
        return copying.close()
    except BaseException:
        copying.abort()
        raise


def commit_pieces(archive: Ledger, topic: str, pieces: list[Piece], note: dict[str, str] | None = None) -> Committed:
    """Put all of them into the table, once. Raises Overtaken when the table does not stand where they begin."""
    epoch = max([piece.work.begins or piece.work.epoch for piece in pieces])
    moves = _moves([piece.work for piece in pieces if piece.work.begins is None])
    partitions = max([move.partition + 1 for move in moves], default=0)
    archive.refresh()
    at = archive.position(topic)
    # That an old instance has ended is told in the commit that begins the new one.
    done = all([at.next_seq(epoch, move.partition) > move.last for move in moves])
    if at.epoch > epoch or (at.epoch == epoch and done):
        return Committed(archive.version, 0, 0, 0, repeated=True)
    _commit_quarantine(archive.uri, pieces, topic, epoch, partitions)
    files = [file for piece in pieces for file in piece.files]
    version = archive.commit(topic, epoch, partitions, moves, files, note)
    return Committed(
        version,
        sum([piece.records for piece in pieces]),
        sum([piece.lost for piece in pieces]),
        sum([piece.quarantined for piece in pieces]),
    )


def pages(client: Client, work: Work) -> Iterator[tuple[list[Any], dict[str, Any] | None]]:
    """Arrow batches with the tombstone that stands before them, if any, up to the end of the work."""
    at = work.first - 1
    while at < work.last:
        stream = client.diff_arrow(
            work.topic, at, to_seq=work.last, limit=PAGE_RECORDS, epoch=work.epoch, partition=work.partition
        )
        reader = pa.ipc.open_stream(stream)
        told = {name.decode(): json.loads(value) for name, value in reader.schema.metadata.items()}
        if told["epoch"] != work.epoch:
            raise Overtaken(f'topic "{work.topic}" was deleted and created again while it was being archived')
        tombstone = told["tombstone"]
        if tombstone is not None:
            first, last = max(at + 1, tombstone["gap_from"]), min(work.last, tombstone["gap_to"])
            tombstone = {**tombstone, "gap_from": first, "gap_to": last} if first <= last else None
        yield list(reader), tombstone
        moved = min(told["next_from_seq"], work.last)
        if moved <= at:
            raise Lost(
                f'topic "{work.topic}" partition {work.partition}: records {at + 1} to {work.last} were there when this '
                "batch was planned and are gone"
            )
        at = moved


class _Copying:
    def __init__(self, work: Work, place: Place, quarantine: Place) -> None:
        self._work = work
        self._now_ms = int(time.time() * 1000)
        stem = f"{work.epoch}-{work.partition:05d}-{work.first:020d}"
        self._rows = FileWriter(place, work.topic, stem, FILE_SCHEMA)
        self._broken = FileWriter(quarantine, work.topic, stem, QUARANTINE_FILE_SCHEMA)
        self._records = 0
        self._lost = 0
        self._quarantined = 0

    def take(self, page: Any) -> None:
        work = self._work
        kept, broken = convertible(page)
        self._records += kept.num_rows
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

    def lose(self, gap_from: int, gap_to: int, reason: str) -> None:
        self._lost += gap_to - gap_from + 1
        self._rows.add(tombstone_row(self._work.partition, self._work.epoch, gap_from, gap_to, reason, self._now_ms))

    def close(self) -> Piece:
        files = self._rows.close()
        return Piece(self._work, files, self._records, self._lost, self._broken.close(), self._quarantined)

    def abort(self) -> None:
        self._rows.abort()
        self._broken.abort()


def _ahead(items: Iterator[Any]) -> Iterator[Any]:
    """The same items, each fetched while the one before it is used: the server works while files are written."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, items, None)
        while (item := waiting.result()) is not None:
            waiting = pool.submit(next, items, None)
            yield item


def _moves(works: list[Work]) -> list[Move]:
    """From where to where each partition goes. Raises ArchiveError when the pieces do not fit together."""
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
        stands = at.next_seq(epoch, partition)
        if stands > max([piece.work.last for piece in mine]):
            continue
        if any([stands > max(piece.work.first, piece.work.quarantine_from) for piece in mine]):
            raise Overtaken(f"{ledger.uri} has topic {topic} partition {partition} up to {stands - 1} already")
        moves.append(Move(partition, stands, max([piece.work.last for piece in mine])))
        files += [file for piece in mine for file in piece.quarantine_files]
    if moves:
        ledger.commit(topic, epoch, partitions, moves, files)
