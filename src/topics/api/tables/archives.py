"""Archives: the tables that topics are copied to, and how far that is."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated

from msgspec import Struct, field

from topics.api.common import Response, VersionQuery, about
from topics.api.operation import ADMIN, DELETE, READ, WRITE, WRITE_ERRORS, Example, Name, Operation
from topics.model.tables.archive import DEFAULT_COMPACT_INTERVAL_MS, DEFAULT_FRESHNESS_MS, DEFAULT_VACUUM_HOURS

TOPIC = Name("path", "topic", "aliased_topic")
ARCHIVE_PATH = "/v0/topics/{topic}/archive"
ARCHIVE_ERRORS = ("topic_not_found", "not_found", *WRITE_ERRORS)
# No seq and no version of a table is above this: a table stores them as signed numbers.
MAX_NUMBER = 2**63 - 1


class ArchiveBody(Struct, forbid_unknown_fields=True):
    """Where a topic is copied to. A misspelled option is refused: its default may remove files."""

    uri: Annotated[str, about("URI or path of a Delta table, without a password.")]
    freshness_ms: Annotated[int, about("How old a record may be before it is in the table; 1000 to 600000.")] = (
        DEFAULT_FRESHNESS_MS
    )
    compact_interval_ms: Annotated[int, about("How often small files are merged; at least 1000, 0 for never.")] = (
        DEFAULT_COMPACT_INTERVAL_MS
    )
    vacuum_hours: Annotated[int, about("Age at which unused files are removed; 0 for never.")] = DEFAULT_VACUUM_HOURS


class ArchivedTo(Struct, forbid_unknown_fields=True):
    """Every record of the partition below `next_seq` is in the table, or was lost before it could be copied."""

    partition: Annotated[int, about("Number of the partition.", ge=0, le=MAX_NUMBER)]
    epoch: Annotated[int, about("Epoch of the topic.", ge=0, le=MAX_NUMBER)]
    next_seq: Annotated[int, about("First seq that is not copied yet.", ge=0, le=MAX_NUMBER)]


class ProgressBody(Struct, forbid_unknown_fields=True):
    """How far the table is."""

    partitions: Annotated[list[ArchivedTo], about("Each partition at most once.")]
    table_version: Annotated[int, about("Version of the table.", ge=0, le=MAX_NUMBER)] | None = None


class ArchiveInfo(Response):
    """The table that a topic is copied to, and how far that is."""

    topic: Annotated[str, about("Name of the topic.")]
    uri: Annotated[str, about("Where the table is.")]
    freshness_ms: Annotated[int, about("How old a record may be before it is in the table.")]
    compact_interval_ms: Annotated[int, about("How often small files are merged; 0 for never.")]
    vacuum_hours: Annotated[int, about("Age at which unused files are removed; 0 for never.")]
    set_ts: Annotated[int, about("When the archive was set, in Unix milliseconds.")]
    archived: Annotated[list[ArchivedTo], about("By partition, how far the copy is.")] = field(default_factory=list)
    table_version: Annotated[int | None, about("Version of the table after the last report.")] = None
    updated_ts: Annotated[int | None, about("Last report, in Unix milliseconds.")] = None
    created: Annotated[bool, about("PUT only: whether the archive is new.")] = False


class ArchiveList(Response):
    """All archives, and their version: it rises when one is set, changed or cleared, not with progress."""

    version: Annotated[int, about("Version of all archives.")]
    archives: Annotated[list[ArchiveInfo], about("The archives.")]


class ArchiveGone(Response):
    """An archive that was cleared."""

    topic: Annotated[str, about("Name of the topic.")]
    deleted: Annotated[bool, about("False when there was none.")]


_INFO = {
    "topic": "orders", "uri": "s3://lake/orders", "freshness_ms": 10000, "compact_interval_ms": 600000, "vacuum_hours": 168,
    "set_ts": 1767225600000, "archived": [{"partition": 0, "epoch": 7, "next_seq": 42}], "table_version": 3,
    "updated_ts": 1767225610000,
}  # fmt: skip

OPERATIONS = (
    Operation(
        name="get_archive", noun="archives", method="GET", path=ARCHIVE_PATH,
        summary="Show the archive of a topic.", scope=READ, names=(TOPIC,), response=ArchiveInfo, errors=ARCHIVE_ERRORS,
        example=Example("/v0/topics/orders/archive", response={**_INFO, "performance": {"server_total_ms": 0.05}}),
    ),
    Operation(
        name="put_archive", noun="archives", method="PUT", path=ARCHIVE_PATH,
        summary="Copy the records of a topic to a Delta table.",
        description="Keys with prefixes may name locations within the archive roots of the server (TOPICS_ARCHIVE_ROOTS).",
        scope=ADMIN, names=(TOPIC, Name("body", "uri", "archive_location")), body=ArchiveBody, response=ArchiveInfo,
        statuses=(200, 201), errors=(*ARCHIVE_ERRORS, "topic_exists_incompatible"),
        example=Example("/v0/topics/orders/archive", {"uri": "s3://lake/orders"}, {
            **_INFO, "created": True, "performance": {"server_total_ms": 0.3}}),
    ),
    Operation(
        name="delete_archive", noun="archives", method="DELETE", path=ARCHIVE_PATH,
        summary="Stop copying a topic; the table stays.",
        scope=DELETE, names=(TOPIC,), response=ArchiveGone, errors=ARCHIVE_ERRORS,
        example=Example("/v0/topics/orders/archive", response={
            "topic": "orders", "deleted": True, "performance": {"server_total_ms": 0.3}}),
    ),
    Operation(
        name="post_progress", noun="archives", method="POST", path=ARCHIVE_PATH + "/progress",
        summary="Report how far the table of a topic is; answers how far the server knows it to be.",
        scope=WRITE, names=(TOPIC,), body=ProgressBody, response=ArchiveInfo, errors=ARCHIVE_ERRORS,
        example=Example("/v0/topics/orders/archive/progress",
                        {"partitions": [{"partition": 0, "epoch": 7, "next_seq": 42}], "table_version": 3},
                        {**_INFO, "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="list_archives", noun="archives", method="GET", path="/api/archives",
        summary="List the archives of all topics; waits, if wanted, until one is set, changed or cleared.",
        scope=READ, query=VersionQuery, response=ArchiveList,
        example=Example("/api/archives", response={"version": 2, "archives": [_INFO], "performance": {"server_total_ms": 0.1}}),
    ),
)  # fmt: skip
