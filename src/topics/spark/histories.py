"""`history=all`: the part of a range that its topic's archive holds is read from the table, the rest from the server.

The boundary is how far each partition is archived, fixed when a batch is planned; the files to read are chosen then, too. So
nothing is read twice and nothing is left out: what was archived is read from the archive even while it is still live, and
retention cannot take it away in between. What lies above the boundary and is evicted before a task reads it is looked up in
the archive once more before it counts as lost.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from topics.archive.history import History, read_files, tombstones_in
from topics.archive.ledger import ArchiveError, Ledger, NoTable, StoredFile, open_archive
from topics.archive.place import Place
from topics.client import Client
from topics.spark.ranges import SeqRange, cut
from topics.spark.reading import lost_rows, source_rows

# A task should not have to read more than this from an archive.
TASK_SEQS = 2_000_000
# Planning is done in one process again and again: tables are opened there once.
_ledgers: dict[str, Ledger] = {}


class Part(Struct, frozen=True):
    """A range, and the files to read it from when it lies in an archive."""

    wanted: SeqRange
    uri: str | None = None
    files: tuple[StoredFile, ...] = ()


class Histories:
    """The archives of topics, as they are at one moment."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[str, History | None] = {}

    def of(self, topic: str, epoch: int) -> History | None:
        """None when the topic has no archive, or one in which nothing is yet. Raises ArchiveError."""
        if topic not in self._found:
            self._found[topic] = self._look(topic, epoch)
        return self._found[topic]

    def earliest(self, topic: str, epoch: int, partition: int, live: int) -> int:
        """The first seq there is, in the archive or live."""
        history = self.of(topic, epoch)
        if history is None or history.next_seq(partition) == 1:
            return live
        return history.earliest(partition)

    def first_at_or_after(self, topic: str, epoch: int, partition: int, ts_ms: int, live: int) -> int:
        """The first record of that time or later, in the archive or, at `live`, behind it."""
        history = self.of(topic, epoch)
        archived = None if history is None else history.first_at_or_after(partition, ts_ms)
        return live if archived is None else archived

    def split(self, ranges: list[SeqRange], least: int) -> list[Part]:
        """The same seqs, each in an archive or on the server, in at least `least` parts where there are as many."""
        archived: list[SeqRange] = []
        live: list[SeqRange] = []
        for each in ranges:
            history = self.of(each.topic, each.epoch)
            boundary = each.first if history is None else history.next_seq(each.partition)
            if boundary > each.first:
                archived.append(_cut_to(each, each.first, min(each.last, boundary - 1)))
            if boundary <= each.last:
                live.append(_cut_to(each, max(each.first, boundary), each.last))
        total = sum([each.seqs for each in archived])
        archived = cut(archived, max(least - len(live), -(-total // TASK_SEQS)))
        parts = [self._archived(each) for each in archived]
        return parts + [Part(each) for each in cut(live, least - len(parts))]

    def _archived(self, wanted: SeqRange) -> Part:
        history = self.of(wanted.topic, wanted.epoch)
        assert history is not None
        files = history.files_between(wanted.partition, wanted.first, wanted.last)
        return Part(wanted, history.uri, tuple(files))

    def _look(self, topic: str, epoch: int) -> History | None:
        archive = self._client.archive(topic)
        if archive is None:
            return None
        try:
            return History(_opened(archive.uri), topic, epoch)
        except NoTable:
            if archive.archived:
                raise
            return None


def read_archived(part: Part, on_data_loss: str) -> Iterator[Any]:
    """Record batches of a part that lies in an archive, in order, as the source gives them. Raises as `read_range`."""
    assert part.uri is not None
    wanted = part.wanted
    found = read_files(Place(part.uri), list(part.files), wanted.partition, wanted.epoch, wanted.first, wanted.last)
    for rows in found:
        yield from _source_batches(rows, wanted, on_data_loss)


def recovered(client: Client, wanted: SeqRange, on_data_loss: str) -> tuple[int, Iterator[Any]]:
    """Of a range that is not live any more: up to where it was archived before it went, and those records."""
    history = Histories(client).of(wanted.topic, wanted.epoch)
    last = wanted.first - 1 if history is None else min(wanted.last, history.next_seq(wanted.partition) - 1)
    if history is None or last < wanted.first:
        return wanted.first - 1, iter(())
    files = tuple(history.files_between(wanted.partition, wanted.first, last))
    return last, read_archived(Part(_cut_to(wanted, wanted.first, last), history.uri, files), on_data_loss)


def _source_batches(rows: Any, wanted: SeqRange, on_data_loss: str) -> Iterator[Any]:
    if not tombstones_in(rows):
        yield from source_rows(rows, wanted)
        return
    kinds = rows.column("gap_from").is_valid().to_pylist()
    start = 0
    for index, is_gap in enumerate(kinds):
        if is_gap:
            yield from source_rows(rows.slice(start, index - start), wanted)
            yield from lost_rows(wanted, _told(rows, index), on_data_loss)
            start = index + 1
    yield from source_rows(rows.slice(start), wanted)


def _told(rows: Any, index: int) -> dict[str, Any]:
    gap_from, gap_to = rows.column("gap_from")[index].as_py(), rows.column("seq")[index].as_py()
    return {"gap_from": gap_from, "gap_to": gap_to, "reason": rows.column("reason")[index].as_py()}


def _opened(uri: str) -> Ledger:
    ledger = _ledgers.get(uri)
    if ledger is not None:
        try:
            ledger.refresh()
            return ledger
        except ArchiveError:
            # Removed and made again, perhaps.
            del _ledgers[uri]
    ledger = _ledgers[uri] = open_archive(uri)
    return ledger


def _cut_to(wanted: SeqRange, first: int, last: int) -> SeqRange:
    return SeqRange(wanted.topic, wanted.partition, wanted.epoch, first, last)
