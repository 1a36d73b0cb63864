"""History: read a range of seqs from an archive, in order.

A file is opened only if its statistics allow a row of the range to be in it, and of an opened file only such row groups
are read. Compaction merges files, and one file may hold rows of several partitions, so the seqs of files can overlap: a
range is read in windows of about 64 MB, and each window is sorted.

Only the newest archived instance (epoch) of a topic continues in the live topic. Rows of earlier instances remain in the
table for queries.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from topics.archive.ledger import Ledger, NoTable, StoredFile, open_archive
from topics.archive.place import Place
from topics.archive.rows import FILE_SCHEMA
from topics.client import Client, Record, Tombstone
from topics.client.decoding import LoneSurrogates, decode_payload

WINDOW_BYTES = 64 << 20
WINDOW_SEQS = 500_000
# Assumed ratio of the size of rows in memory to their size in the file.
_MEMORY_PER_FILE_BYTE = 8


class HistoryGone(Exception):
    """A file of the archive was removed (by a vacuum) after this read was planned. Start the read again."""


class History:
    """One instance of a topic in an archive, as of the construction of this object."""

    def __init__(self, ledger: Ledger, topic: str, epoch: int) -> None:
        self._ledger = ledger
        self._position = ledger.position(topic)
        self.topic = topic
        self.epoch = epoch

    @property
    def uri(self) -> str:
        return self._ledger.uri

    @cached_property
    def _files(self) -> list[StoredFile]:
        return self._ledger.files(self.topic)

    def next_seq(self, partition: int) -> int:
        """Return the first seq that is not archived; 1 when nothing is archived."""
        return self._position.next_seq(self.epoch, partition)

    def earliest(self, partition: int) -> int:
        """Return the first seq that was not lost before the archive was created."""
        if self.next_seq(partition) == 1:
            return 1
        files = [file for file in self._files if not file.no_gaps and (file.min_gap_from or 1) <= 1]
        wanted = (ds.field("kind") == "tombstone") & (ds.field("gap_from") == 1)
        rows = _scan(self._ledger.place, files, partition, self.epoch, wanted, ["seq"])
        lost = pc.max(rows.column("seq")).as_py() if rows.num_rows else None
        return 1 if lost is None else int(lost) + 1

    def first_at_or_after(self, partition: int, ts_ms: int) -> int | None:
        """Return the seq of the first archived record at or after that time; None when all are earlier."""
        wanted = (ds.field("kind") == "record") & (ds.field("ts") >= pa.scalar(ts_ms * 1000, pa.timestamp("us", "UTC")))
        rows = _scan(self._ledger.place, self._files, partition, self.epoch, wanted, ["seq"])
        found = pc.min(rows.column("seq")).as_py() if rows.num_rows else None
        return None if found is None else int(found)

    def files_between(self, partition: int, first: int, last: int) -> list[StoredFile]:
        return [file for file in self._files if _may_hold(file, partition, self.epoch, first, last)]

    def read(self, partition: int, first: int, last: int) -> Iterator[Any]:
        """Yield tables of rows (`rows.FILE_SCHEMA`) in order: the records first..last, and tombstones clipped to that range."""
        files = self.files_between(partition, first, last)
        return read_files(self._ledger.place, files, partition, self.epoch, first, last)


def read_files(
    place: Place, files: list[StoredFile], partition: int, epoch: int, first: int, last: int
) -> Iterator[Any]:
    """As `History.read`, from files that were chosen elsewhere. Raises HistoryGone."""
    at = first
    step = _window(files)
    while at <= last and files:
        end = min(last, at + step - 1)
        inside = [file for file in files if _may_hold(file, partition, epoch, at, end)]
        if not inside:
            # All records of this window were deleted: continue at the start of the next file.
            later = [file.min_seq for file in files if file.min_seq is not None and file.min_seq > end]
            at = min(later, default=last + 1)
            continue
        wanted = (ds.field("seq") >= at) & (
            (ds.field("seq") <= end) | ((ds.field("kind") == "tombstone") & (ds.field("gap_from") <= end))
        )
        rows = _scan(place, inside, partition, epoch, wanted, FILE_SCHEMA.names)
        reached = end
        if rows.num_rows:
            rows = _cut_gaps(rows.sort_by("seq"), at, last)
            # A tombstone may end beyond the window; no other row lies in its range.
            reached = max(end, rows.column("seq")[-1].as_py())
            yield rows
        at = reached + 1


def read_records(
    client: Client,
    topic: str,
    partition: int = 0,
    from_seq: int = 0,
    *,
    from_ts: int | None = None,
    follow: bool = False,
) -> Iterator[Record | Tombstone]:
    """Read as `Client.read` does, beginning in the archive: records after the cursor, and a Tombstone for lost ones.

    For a topic without an archive it reads the live records only. A payload with a lone surrogate is what the client's
    `lone_surrogates` says, archived or live. Raises ArchiveError when the table cannot be read.
    """
    at = from_seq
    archived = 0
    while True:
        found = history_of(client, topic)
        if found is not None and found.next_seq(partition) > max(archived, at + 1):
            archived = found.next_seq(partition)
            for item in _archived_items(
                found, partition, at + 1, archived - 1, from_ts, client.settings.lone_surrogates
            ):
                yield item
            at = archived - 1
        for item in client.read(topic, at, follow=follow, from_ts=from_ts, partition=partition):
            if (
                isinstance(item, Tombstone)
                and item.reason != "recreated"
                and _archived_now(client, topic, partition, item)
            ):
                # Evicted after the archive was opened, and archived before that: read it from the archive.
                at = item.gap_from - 1
                break
            yield item
            at = item.gap_to if isinstance(item, Tombstone) else item.seq
        else:
            return


def history_of(client: Client, topic: str) -> History | None:
    """Return the current history of the topic; None when it has no archive, or an empty one."""
    archive = client.archive(topic)
    if archive is None:
        return None
    info = client.info(topic, touch=False)
    try:
        return History(open_archive(archive.uri), info.topic, info.epoch)
    except NoTable:
        if archive.archived:
            raise
        return None


def tombstones_in(rows: Any) -> bool:
    """Return whether a table of rows has a tombstone. Constant time: it compares null counts."""
    return bool(rows.column("gap_from").null_count < rows.num_rows)


def _archived_now(client: Client, topic: str, partition: int, lost: Tombstone) -> bool:
    found = history_of(client, topic)
    return found is not None and found.next_seq(partition) > lost.gap_from


def _archived_items(
    found: History, partition: int, first: int, last: int, from_ts: int | None, lone_surrogates: LoneSurrogates
) -> Iterator[Record | Tombstone]:
    if from_ts is not None:
        begin = found.first_at_or_after(partition, from_ts)
        if begin is None:
            return
        first = max(first, begin)

    def decoded(seq: int, text: str | None) -> Any:
        return None if text is None else decode_payload(msgspec.json.decode, text.encode(), where, seq, lone_surrogates)

    where = f'archive of topic "{found.topic}"'
    for rows in found.read(partition, first, last):
        names = ("kind", "seq", "node", "tag", "data", "meta", "gap_from", "reason")
        times = rows.column("ts").cast(pa.int64()).to_pylist()
        columns = [rows.column(name).to_pylist() for name in names]
        for ts, kind, seq, node, tag, data, meta, gap_from, reason in zip(times, *columns, strict=True):
            if kind == "tombstone":
                yield Tombstone(gap_from, seq, reason, seq - gap_from + 1)
            else:
                yield Record(seq, ts // 1000, decoded(seq, data), node, tag, decoded(seq, meta))


def _window(files: list[StoredFile]) -> int:
    """Return how many seqs to read at once, estimated from the row sizes of the files."""
    rows, size = sum([file.rows for file in files]), sum([file.bytes for file in files])
    per_row = max(64, size * _MEMORY_PER_FILE_BYTE // max(1, rows))
    return max(1000, min(WINDOW_SEQS, WINDOW_BYTES // per_row))


def _may_hold(file: StoredFile, partition: int, epoch: int, first: int, last: int) -> bool:
    if not _between(file.min_partition, partition, file.max_partition):
        return False
    if not _between(file.min_epoch, epoch, file.max_epoch) or (file.max_seq is not None and file.max_seq < first):
        return False
    if file.min_seq is None or file.min_seq <= last:
        return True
    # The seq of a tombstone is its last seq, which may lie beyond a range that the tombstone overlaps.
    return not file.no_gaps and (file.min_gap_from is None or file.min_gap_from <= last)


def _between(low: int | None, value: int, high: int | None) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def _scan(place: Place, files: list[StoredFile], partition: int, epoch: int, wanted: Any, columns: list[str]) -> Any:
    if not files:
        return FILE_SCHEMA.empty_table().select(columns)
    wanted = wanted & (ds.field("partition") == partition) & (ds.field("epoch") == epoch)
    try:
        dataset = ds.dataset(
            [file.path for file in files],
            schema=FILE_SCHEMA,
            format=ds.ParquetFileFormat(),
            filesystem=place.filesystem(),
        )
        return dataset.to_table(columns=columns, filter=wanted, use_threads=False)
    except FileNotFoundError as error:
        raise HistoryGone(f"a file of the archive is gone since this read was planned: {error}") from error


def _cut_gaps(rows: Any, first: int, last: int) -> Any:
    """Clip tombstones to first..last."""
    if not tombstones_in(rows):
        return rows
    gap_from = pc.max_element_wise(rows.column("gap_from"), pa.scalar(first, pa.int64()), skip_nulls=False)
    seq = pc.min_element_wise(rows.column("seq"), pa.scalar(last, pa.int64()))
    rows = rows.set_column(rows.schema.get_field_index("gap_from"), "gap_from", gap_from)
    return rows.set_column(rows.schema.get_field_index("seq"), "seq", seq)
