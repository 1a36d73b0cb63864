"""The log of a Delta table: the files and row counts of each version, and which versions can no longer be read.

Every version is one file of JSON lines, `_delta_log/00000000000000000007.json`. A version that changed rows names the files
it added and removed, and, if rows were updated or deleted individually, files of its change data feed (`cdc`). Log clean-up
removes old versions and vacuum removes old files. In both cases changes that were not read in time are lost, and the error
names exactly these versions.
"""

from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

FEED_PROPERTY = "delta.enableChangeDataFeed"
# A smaller file with a known row count is not opened: its rows are assumed to be narrow.
SMALL_FILE_BYTES = 64 << 10
# The weight of a row is its size divided by this, and at least 1.
ROW_BYTES = 160
# The maximum number of versions in the cache, and of versions that `lost_message` checks.
MAX_CACHED_VERSIONS = 4096
MAX_CHECKED_VERSIONS = 10_000


class FeedError(Exception):
    """The feed cannot be read. The message says what is wrong with the table and what to do."""


class FeedLost(FeedError):
    """Versions were removed before they were read. The message names them."""


class TableFile(Struct, frozen=True):
    """A file of a table as the log names it. `rows` is None when the log does not say."""

    path: str
    size: int
    rows: int | None = None


class Version(Struct, frozen=True):
    """The files that one version added, removed or changed. A version without files changed no rows."""

    version: int
    ts: int
    # Files of added rows, of removed rows, and of the change data feed; each sorted by path.
    added: tuple[TableFile, ...]
    removed: tuple[TableFile, ...]
    feed: tuple[TableFile, ...]
    # Whether the columns or the properties of the table may have changed.
    new_metadata: bool
    # Whether the version turned the feed on or off; None when it did neither.
    feed_on: bool | None = None

    @property
    def only_adds(self) -> bool:
        return not self.removed and not self.feed

    @property
    def files(self) -> tuple[TableFile, ...]:
        """The files that reading its changes needs."""
        return self.feed or (*self.added, *self.removed)


class TableLog:
    """The Delta table at a URI. Raises FeedError when there is none."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._table = open_table(uri)
        self._files = file_system(uri)
        self._versions: dict[int, Version] = {}
        self._weights: dict[str, tuple[int, int]] = {}

    @property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def latest(self) -> int:
        return int(self._table.version())

    def refresh(self) -> int:
        """Load new versions and return the newest."""
        from deltalake.exceptions import DeltaError

        try:
            self._table.update_incremental()
        except (DeltaError, OSError):
            # The log was cleaned up, or the table was replaced: open it again.
            self._table = open_table(self.uri)
        return self.latest

    def check_feed(self, table: str) -> None:
        """Raise FeedError when the table has no change data feed."""
        if not _is_on(self._table.metadata().configuration):
            raise FeedError(
                f"{table}: the table at {self.uri} keeps no change data feed. Set its property {FEED_PROPERTY} to true: "
                "what is written from then on can be followed."
            )

    def version(self, number: int) -> Version:
        """Return a version. Raises FeedLost when its log file is gone."""
        known = self._versions.get(number)
        if known is None:
            text = self._log(number)
            if text is None:
                raise FeedLost(self.lost_message(number))
            known = parse_version(number, text)
            if len(self._versions) >= MAX_CACHED_VERSIONS:
                self._versions.clear()
                self._weights.clear()
            self._versions[number] = known
        return known

    def snapshot(self, number: int) -> tuple[TableFile, ...]:
        """The files that make up the table at a version, sorted by path."""
        import pyarrow as pa

        actions = pa.table(open_table(self.uri, number).get_add_actions(flatten=False)).to_pylist()
        files = [TableFile(unquote(each["path"]), each["size_bytes"], each.get("num_records")) for each in actions]
        return tuple(sorted(files, key=lambda file: file.path))

    def weight(self, version: Version) -> int:
        """Estimate the work of its changes: 1 for each row, more for a wide one. Raises FeedLost when a file is gone."""
        try:
            return sum([self.file_weight(file) for file in version.files])
        except FileNotFoundError:
            raise FeedLost(self.lost_message(version.version)) from None

    def file_weight(self, file: TableFile) -> int:
        """Raises FileNotFoundError."""
        if file.rows is not None and file.size < SMALL_FILE_BYTES:
            return file.rows
        return self._footer(file)[1]

    def file_rows(self, file: TableFile) -> int:
        """Raises FileNotFoundError."""
        return self._footer(file)[0] if file.rows is None else file.rows

    def lost_message(self, first: int) -> str:
        """Return the message for FeedLost: which versions from `first` on are gone, and what to do."""
        latest = self.refresh()
        gone = [
            number
            for number in range(first, min(latest, first + MAX_CHECKED_VERSIONS) + 1)
            if not self._has_all_files(number)
        ]
        what = f"versions {ranges_text(gone)}" if gone else f"files of version {first}"
        return (
            f"the change data feed at {self.uri} has lost {what}: vacuum or the clean-up of its log removed them before "
            f"they were read (the table is at version {latest}). Nothing was skipped. To continue with the present "
            "table, stop the pipeline, delete the checkpoint of this job and start again: it then sends a truncate and all rows."
        )

    def _has_all_files(self, number: int) -> bool:
        from pyarrow.fs import FileType

        text = self._log(number)
        if text is None:
            return False
        paths = [file.path for file in parse_version(number, text).files]
        return not paths or all([each.type == FileType.File for each in self._files.get_file_info(paths)])

    def _log(self, number: int) -> bytes | None:
        try:
            with self._files.open_input_file(f"_delta_log/{number:020}.json") as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def _footer(self, file: TableFile) -> tuple[int, int]:
        known = self._weights.get(file.path)
        if known is None:
            import pyarrow.parquet as pq

            with self._files.open_input_file(file.path) as opened:
                footer = pq.ParquetFile(opened).metadata
            size = sum([footer.row_group(at).total_byte_size for at in range(footer.num_row_groups)])
            known = footer.num_rows, max(footer.num_rows, size // ROW_BYTES)
            self._weights[file.path] = known
        return known


def open_table(uri: str, version: int | None = None) -> Any:
    """Open a Delta table. Raises FeedError when it does not exist or cannot be read."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(uri, version=version)
    except (DeltaError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise FeedError(f"there is no Delta table to read at {uri}: {reason}") from error


def file_system(uri: str) -> Any:
    """Return a file system with the table as its root, for any store that delta-rs supports."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(uri))


def parse_version(number: int, text: bytes) -> Version:
    ts = 0
    new_metadata = False
    feed_on: bool | None = None
    files: dict[str, list[TableFile]] = {"add": [], "remove": [], "cdc": []}
    for line in text.splitlines():
        action: dict[str, dict[str, Any]] = msgspec.json.decode(line) if line.strip() else {}
        for kind, fields in action.items():
            if kind == "commitInfo":
                ts = int(fields.get("inCommitTimestamp") or fields.get("timestamp") or 0)
            elif kind in ("metaData", "protocol"):
                new_metadata = True
                if kind == "metaData":
                    feed_on = _is_on(fields.get("configuration") or {})
            elif kind == "cdc" or (kind in files and fields.get("dataChange", True)):
                files[kind].append(_file(fields))
    added, removed, feed = [tuple(sorted(each, key=lambda file: file.path)) for each in files.values()]
    return Version(number, ts, added, removed, feed, new_metadata, feed_on)


def _is_on(configuration: dict[str, str]) -> bool:
    return configuration.get(FEED_PROPERTY, "false").lower() == "true"


def _file(fields: dict[str, Any]) -> TableFile:
    stats = fields.get("stats")
    rows = msgspec.json.decode(stats).get("numRecords") if isinstance(stats, str) and stats else None
    return TableFile(unquote(fields["path"]), int(fields.get("size") or 0), rows)


def ranges_text(numbers: list[int]) -> str:
    """Format numbers as ranges: `3 to 5, 9` for 3, 4, 5 and 9. At most the first 20 ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:20]]
    return ", ".join(texts) + (" and more" if len(ranges) > 20 else "")
