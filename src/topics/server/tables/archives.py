"""/v0/topics/:topic/archive and /api/archives: which topics are copied to which tables, and the progress.

    PUT  /v0/topics/app.events/archive {"uri": "s3://lake/events", "freshness_ms": 10000}
    POST /v0/topics/app.events/archive/progress {"partitions": [{"partition": 0, "epoch": 1, "next_seq": 124}],
                                                 "table_version": 7}
    GET  /api/archives?version=7&wait_ms=20000    all archives; can be waited for: see `versions`

The version of all archives rises when one is set, changed or cleared, not with progress. A topic may be named by its alias.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from topics.api.common import VersionQuery
from topics.api.tables.archives import ArchiveBody, ProgressBody
from topics.broker.broker import Topic
from topics.broker.tables.archives import ArchiveChanged, clear_archive, known_archive, report_progress, set_archive
from topics.model.errors import InvalidRequest
from topics.model.tables.archive import (
    ArchivedTo,
    ArchiveOptions,
    check_archive,
)
from topics.server.decoding import convert_options
from topics.server.operations import Call, handles
from topics.server.responses import reply_to, send
from topics.server.tables.versions import answer_version


@handles("put_archive")
def put_archive(call: Call[ArchiveBody, None]) -> None:
    request = call.request
    options = _options(call.body)

    @reply_to(request)
    def reply(changed: ArchiveChanged) -> None:
        send(request, 201 if changed.new else 200, {**archive_fields(changed.topic), "created": changed.new})

    set_archive(call.broker, call.name, options, reply)


@handles("get_archive")
def get_archive(call: Call[None, None]) -> None:
    topic = call.broker.topic(call.name)
    known_archive(topic)
    send(call.request, 200, archive_fields(topic))


@handles("delete_archive")
def delete_archive(call: Call[None, None]) -> None:
    request = call.request

    @reply_to(request)
    def reply(changed: ArchiveChanged) -> None:
        send(request, 200, {"topic": changed.topic.name, "deleted": changed.gone})

    clear_archive(call.broker, call.name, reply)


@handles("post_progress")
def post_progress(call: Call[ProgressBody, None]) -> None:
    """Answers with the progress that is recorded, which may be further than what was reported."""
    request, body = call.request, call.body
    places = [ArchivedTo(each.partition, each.epoch, each.next_seq) for each in body.partitions]
    if len({each.partition for each in places}) != len(places):
        raise InvalidRequest("partitions names a partition twice")

    @reply_to(request)
    def reply(changed: ArchiveChanged) -> None:
        # Dropped or cleared while the report was committed.
        known_archive(changed.topic)
        send(request, 200, archive_fields(changed.topic))

    report_progress(call.broker, call.name, places, body.table_version, reply)


@handles("list_archives")
def list_archives(call: Call[None, VersionQuery]) -> None:
    broker, caller = call.broker, call.caller
    version = broker.state.versions.archives

    def answer() -> None:
        archived = [topic for topic in broker.state.archived.values() if caller.may_touch(topic.name)]
        archives = [archive_fields(topic) for topic in sorted(archived, key=lambda topic: topic.name)]
        send(call.request, 200, {"version": version.now, "archives": archives})

    answer_version(call, version, answer)


def archive_options(fields: Mapping[str, Any]) -> ArchiveOptions:
    """The options of an SQL statement, checked as strictly as a body."""
    return _options(convert_options(fields, ArchiveBody, "an archive"))


def archive_fields(topic: Topic) -> dict[str, Any]:
    archive = known_archive(topic)
    return {
        "topic": topic.name,
        **structs.asdict(archive.options),
        "set_ts": archive.set_ts,
        "archived": [structs.asdict(place) for place in archive.archived],
        "table_version": archive.table_version,
        "updated_ts": archive.updated_ts,
    }


def _options(body: ArchiveBody) -> ArchiveOptions:
    return check_archive(ArchiveOptions(**structs.asdict(body)))
