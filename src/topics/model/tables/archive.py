"""Archives: the table that a topic's records are copied to, and how far it has come.

The server stores the options and the reported progress; the pipeline writes the table and reports how far it has come. Every
reader of the topic may see the location of its table, so the URI contains no secret.
"""

from collections.abc import Iterable

from msgspec import Struct

from topics.model.errors import InvalidRequest
from topics.model.tables.location import Location, parse_location
from topics.model.tables.table import check_location

DEFAULT_FRESHNESS_MS = 10_000
MIN_FRESHNESS_MS = 1000
MAX_FRESHNESS_MS = 600_000
DEFAULT_COMPACT_INTERVAL_MS = 600_000
MIN_COMPACT_INTERVAL_MS = 1000
MAX_COMPACT_INTERVAL_MS = 31_536_000_000
DEFAULT_VACUUM_HOURS = 168
MAX_VACUUM_HOURS = 87_600


class ArchiveOptions(Struct, frozen=True):
    """The options of an archive. `freshness_ms`: the maximum age of a record before it is in the table.

    Small files of the table are compacted every `compact_interval_ms`, and unreferenced files are removed when they are
    `vacuum_hours` old; 0 for never.
    """

    uri: str
    freshness_ms: int = DEFAULT_FRESHNESS_MS
    compact_interval_ms: int = DEFAULT_COMPACT_INTERVAL_MS
    vacuum_hours: int = DEFAULT_VACUUM_HOURS

    def __post_init__(self) -> None:
        # Parsed when it is set or recovered: comparing 10,000 of them later finds them in the cache (3 ms, not 100).
        _ = self.location

    @property
    def location(self) -> Location:
        """The same for all spellings of one table."""
        try:
            return parse_location(self.uri)
        except ValueError:
            # Set by an earlier version, which was less strict.
            return Location("", "", self.uri, plain=False)


class ArchivedTo(Struct, array_like=True, frozen=True):
    """Every record of the partition below `next_seq` is in the table, or was evicted before it was copied."""

    partition: int
    epoch: int
    next_seq: int


class Archive(Struct, frozen=True):
    """The archive of a topic. `begun` distinguishes this table from another one that the topic had before."""

    options: ArchiveOptions
    begun: int
    set_ts: int
    archived: tuple[ArchivedTo, ...] = ()
    table_version: int | None = None
    updated_ts: int | None = None

    def news(self, places: Iterable[ArchivedTo]) -> list[ArchivedTo]:
        """The places that advance the known ones: none of an older epoch, none that goes back within its epoch."""
        known = {each.partition: each for each in self.archived}
        return [
            place
            for place in places
            if place.partition not in known
            or (known[place.partition].epoch, known[place.partition].next_seq) < (place.epoch, place.next_seq)
        ]

    def progressed(self, places: Iterable[ArchivedTo], table_version: int | None, ts: int) -> "Archive":
        """The archive after this report. A report without news changes nothing."""
        news = self.news(places)
        version = self.table_version
        if table_version is not None and (version is None or table_version > version):
            version = table_version
        if not news and version == self.table_version:
            return self
        archived = {each.partition: each for each in (*self.archived, *news)}
        return Archive(
            self.options, self.begun, self.set_ts, tuple([archived[number] for number in sorted(archived)]), version, ts
        )


def check_archive(options: ArchiveOptions) -> ArchiveOptions:
    """Raises InvalidRequest, naming the option that is out of its range."""
    check_location(options.uri)
    try:
        parse_location(options.uri)
    except ValueError:
        raise InvalidRequest("the uri of an archive is a path or a URI in UTF-8", detail={"option": "uri"}) from None
    _check("freshness_ms", options.freshness_ms, MIN_FRESHNESS_MS, MAX_FRESHNESS_MS)
    if options.compact_interval_ms:
        minimum, maximum = MIN_COMPACT_INTERVAL_MS, MAX_COMPACT_INTERVAL_MS
        _check("compact_interval_ms", options.compact_interval_ms, minimum, maximum, "0 for never, or ")
    _check("vacuum_hours", options.vacuum_hours, 0, MAX_VACUUM_HOURS)
    return options


def _check(name: str, value: int, minimum: int, maximum: int, other: str = "") -> None:
    if not minimum <= value <= maximum:
        raise InvalidRequest(f"{name} is {other}from {minimum} to {maximum}", detail={"option": name})
