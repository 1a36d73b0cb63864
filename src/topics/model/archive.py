"""Archives: the table that a topic's records are copied to, and how far it has come.

What is kept here is the wish and the report; whoever runs the archive writes the table and tells how far it is. Everybody
who may read the topic sees where its table is, so no secret stands in the URI.
"""

from collections.abc import Iterable

from msgspec import Struct

from topics.model.errors import InvalidRequest
from topics.model.table import check_location

FRESHNESS_MS = 10_000
FRESHNESS_MS_LEAST = 1000
FRESHNESS_MS_MOST = 600_000
COMPACT_INTERVAL_MS = 600_000
COMPACT_INTERVAL_MS_LEAST = 1000
COMPACT_INTERVAL_MS_MOST = 31_536_000_000
VACUUM_HOURS = 168
VACUUM_HOURS_MOST = 87_600


class ArchiveOptions(Struct, frozen=True):
    """What was asked for. `freshness_ms`: how old a record may be before it stands in the table.

    The table's small files are put together every `compact_interval_ms`, and files it does not need any more are removed
    when they are `vacuum_hours` old; 0 for never.
    """

    uri: str
    freshness_ms: int = FRESHNESS_MS
    compact_interval_ms: int = COMPACT_INTERVAL_MS
    vacuum_hours: int = VACUUM_HOURS

    @property
    def place(self) -> str:
        """The same for two spellings of one table that differ in nothing but a slash at the end."""
        return self.uri.rstrip("/")


class ArchivedTo(Struct, array_like=True, frozen=True):
    """Every record of the partition below `next_seq` stands in the table, or was gone before it could."""

    partition: int
    epoch: int
    next_seq: int


class Archive(Struct, frozen=True):
    """The archive of a topic. `begun` tells this table from another one that the topic had before."""

    options: ArchiveOptions
    begun: int
    set_ts: int
    archived: tuple[ArchivedTo, ...] = ()
    table_version: int | None = None
    updated_ts: int | None = None

    def news(self, places: Iterable[ArchivedTo]) -> list[ArchivedTo]:
        """Those that are further than what is known: none of an older epoch, none that goes back within its epoch."""
        known = {each.partition: each for each in self.archived}
        return [
            place
            for place in places
            if place.partition not in known
            or (known[place.partition].epoch, known[place.partition].next_seq) < (place.epoch, place.next_seq)
        ]

    def progressed(self, places: Iterable[ArchivedTo], table_version: int | None, ts: int) -> "Archive":
        """As it is after this report. One that says nothing new changes nothing."""
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
    _check("freshness_ms", options.freshness_ms, FRESHNESS_MS_LEAST, FRESHNESS_MS_MOST)
    if options.compact_interval_ms:
        least, most = COMPACT_INTERVAL_MS_LEAST, COMPACT_INTERVAL_MS_MOST
        _check("compact_interval_ms", options.compact_interval_ms, least, most, "0 for never, or ")
    _check("vacuum_hours", options.vacuum_hours, 0, VACUUM_HOURS_MOST)
    return options


def _check(name: str, value: int, least: int, most: int, other: str = "") -> None:
    if not least <= value <= most:
        raise InvalidRequest(f"{name} is {other}from {least} to {most}", detail={"option": name})
