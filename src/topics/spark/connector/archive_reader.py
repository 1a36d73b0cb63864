"""`history=all`: the part of a range that its topic's archive holds is read from the table, the rest from the server.

The boundary is the archived position of each partition. The driver fixes it when it plans a batch and chooses the files to
read, so no record is read twice and none is left out. Records below the boundary are read from the archive even while they
are still live, so retention cannot remove them in between. A record above the boundary that is evicted before a task reads
it is looked up in the archive again before it counts as lost.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from topics.archive.history import History, read_files, tombstones_in
from topics.archive.ledger import ArchiveError, Ledger, NoTable, open_archive
from topics.archive.place import Place
from topics.client import Client
from topics.spark.connector.ranges import Part, SeqRange, cut
from topics.spark.connector.reading import lost_rows, source_rows

# Target for the bytes of an archive that one task reads.
TASK_SEQS = 2_000_000
# Open tables of this process, reused by each planning.
_ledgers: dict[str, Ledger] = {}


class Histories:
    """The archives of topics as of one moment. `clients` are those of the servers that the query reads."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = clients
        self._found: dict[str, History | None] = {}

    def of(self, topic: str, epoch: int, server: int) -> History | None:
        """Return the history of a topic; None when it has no archive, or an empty one. Raises ArchiveError."""
        if topic not in self._found:
            self._found[topic] = self._look(topic, epoch, server)
        return self._found[topic]

    def earliest(self, topic: str, epoch: int, partition: int, live: int, server: int) -> int:
        """Return the first available seq, in the archive or live."""
        history = self.of(topic, epoch, server)
        if history is None or history.next_seq(partition) == 1:
            return live
        return history.earliest(partition)

    def first_at_or_after(self, topic: str, epoch: int, partition: int, ts_ms: int, live: int, server: int) -> int:
        """Return the seq of the first record at or after that time: in the archive, otherwise `live`."""
        history = self.of(topic, epoch, server)
        archived = None if history is None else history.first_at_or_after(partition, ts_ms)
        return live if archived is None else archived

    def split(self, ranges: list[SeqRange], min_parts: int) -> list[Part]:
        """Divide ranges into parts that lie in the archive or on the server; at least `min_parts` parts if there are enough seqs."""
        archived: list[SeqRange] = []
        live: list[SeqRange] = []
        for each in ranges:
            history = self.of(each.topic, each.epoch, each.server)
            boundary = each.first if history is None else history.next_seq(each.partition)
            if boundary > each.first:
                archived.append(each.between(each.first, min(each.last, boundary - 1)))
            if boundary <= each.last:
                live.append(each.between(max(each.first, boundary), each.last))
        total = sum([each.seqs for each in archived])
        archived = cut(archived, max(min_parts - len(live), -(-total // TASK_SEQS)))
        parts = [self._archived(each) for each in archived]
        return parts + [Part(each) for each in cut(live, min_parts - len(parts))]

    def _archived(self, wanted: SeqRange) -> Part:
        history = self.of(wanted.topic, wanted.epoch, wanted.server)
        assert history is not None
        files = history.files_between(wanted.partition, wanted.first, wanted.last)
        return Part(wanted, history.uri, tuple(files))

    def _look(self, topic: str, epoch: int, server: int) -> History | None:
        archive = self._clients[server].archive(topic)
        if archive is None:
            return None
        try:
            return History(_opened(archive.uri), topic, epoch)
        except NoTable:
            if archive.archived:
                raise
            return None


def read_archived(part: Part, on_data_loss: str) -> Iterator[Any]:
    """Yield the record batches of a part that lies in an archive, in order. Raises as `read_range` does."""
    assert part.uri is not None
    wanted = part.wanted
    found = read_files(Place(part.uri), list(part.files), wanted.partition, wanted.epoch, wanted.first, wanted.last)
    for rows in found:
        yield from _source_batches(rows, wanted, on_data_loss)


def recovered(clients: Sequence[Client], wanted: SeqRange, on_data_loss: str) -> tuple[int, Iterator[Any]]:
    """For a range that is no longer live: the last seq that is archived, and the archived records."""
    history = Histories(clients).of(wanted.topic, wanted.epoch, wanted.server)
    last = wanted.first - 1 if history is None else min(wanted.last, history.next_seq(wanted.partition) - 1)
    if history is None or last < wanted.first:
        return wanted.first - 1, iter(())
    files = tuple(history.files_between(wanted.partition, wanted.first, last))
    return last, read_archived(Part(wanted.between(wanted.first, last), history.uri, files), on_data_loss)


def _source_batches(rows: Any, wanted: SeqRange, on_data_loss: str) -> Iterator[Any]:
    if not tombstones_in(rows):
        yield from source_rows(rows, wanted)
        return
    kinds = rows.column("gap_from").is_valid().to_pylist()
    start = 0
    for index, is_gap in enumerate(kinds):
        if is_gap:
            yield from source_rows(rows.slice(start, index - start), wanted)
            yield from lost_rows(wanted, _tombstone(rows, index), on_data_loss)
            start = index + 1
    yield from source_rows(rows.slice(start), wanted)


def _tombstone(rows: Any, index: int) -> dict[str, Any]:
    gap_from, gap_to = rows.column("gap_from")[index].as_py(), rows.column("seq")[index].as_py()
    return {"gap_from": gap_from, "gap_to": gap_to, "reason": rows.column("reason")[index].as_py()}


def _opened(uri: str) -> Ledger:
    ledger = _ledgers.get(uri)
    if ledger is not None:
        try:
            ledger.refresh()
            return ledger
        except ArchiveError:
            # The table may have been removed and created again: open it again.
            del _ledgers[uri]
    ledger = _ledgers[uri] = open_archive(uri)
    return ledger
