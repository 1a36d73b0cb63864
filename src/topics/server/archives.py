"""/v0/topics/:topic/archive and /api/archives — which topics are copied to which tables, and how far that has come.

    PUT  /v0/topics/app.events/archive {"uri": "s3://lake/events", "freshness_ms": 10000}
    POST /v0/topics/app.events/archive/progress {"partitions": [{"partition": 0, "epoch": 1, "next_seq": 124}],
                                                 "table_version": 7}
    GET  /api/archives?version=7&wait_ms=20000    all of them; can be waited for: see `versions`

The version of all archives rises when one is set, changed or cleared, not when one has come further. A topic may be named
by its alias.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from topics.broker.archives import ArchiveChanged, clear_archive, known_archive, report_progress, set_archive
from topics.broker.broker import Broker, Topic
from topics.model.archive import (
    COMPACT_INTERVAL_MS,
    FRESHNESS_MS,
    VACUUM_HOURS,
    ArchivedTo,
    ArchiveOptions,
    check_archive,
)
from topics.model.errors import InvalidRequest, TopicsError
from topics.server.access import caller_of
from topics.server.aliases import reached
from topics.server.answers import send, send_error
from topics.server.bodies import decode, require_json
from topics.server.http import Request
from topics.server.versions import answer_version

# What no seq and no version of a table is above: a table keeps them as signed numbers.
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ArchiveBody(Struct, forbid_unknown_fields=True):
    """A misspelled option is refused rather than ignored: its default may remove files."""

    uri: str
    freshness_ms: int = FRESHNESS_MS
    compact_interval_ms: int = COMPACT_INTERVAL_MS
    vacuum_hours: int = VACUUM_HOURS


class PlaceBody(Struct, forbid_unknown_fields=True):
    partition: Number
    epoch: Number
    next_seq: Number


class ProgressBody(Struct, forbid_unknown_fields=True):
    partitions: list[PlaceBody]
    table_version: Number | None = None


_archives = msgspec.json.Decoder(ArchiveBody)
_progress = msgspec.json.Decoder(ProgressBody)


def put_archive(broker: Broker, request: Request, name: str) -> None:
    require_json(request)
    options = _options(decode(request.body, _archives))

    def answer(changed: ArchiveChanged) -> None:
        send(request, 201 if changed.new else 200, {**archive_fields(changed.topic), "created": changed.new})

    set_archive(broker, reached(broker, request, name), options, _reply(request, answer))


def get_archive(broker: Broker, request: Request, name: str) -> None:
    topic = broker.topic(reached(broker, request, name))
    known_archive(topic)
    send(request, 200, archive_fields(topic))


def delete_archive(broker: Broker, request: Request, name: str) -> None:
    def answer(changed: ArchiveChanged) -> None:
        send(request, 200, {"topic": changed.topic.name, "deleted": changed.gone})

    clear_archive(broker, reached(broker, request, name), _reply(request, answer))


def post_progress(broker: Broker, request: Request, name: str) -> None:
    """Answers where the archive stands now, which may be further than what was reported."""
    require_json(request)
    body = decode(request.body, _progress)
    places = [ArchivedTo(each.partition, each.epoch, each.next_seq) for each in body.partitions]
    if len({each.partition for each in places}) != len(places):
        raise InvalidRequest("partitions names a partition twice")

    def answer(changed: ArchiveChanged) -> None:
        # Dropped or cleared while the report was being kept.
        known_archive(changed.topic)
        send(request, 200, archive_fields(changed.topic))

    topic_name = reached(broker, request, name)
    report_progress(broker, topic_name, places, body.table_version, _reply(request, answer))


def list_archives(broker: Broker, request: Request) -> None:
    caller = caller_of(request)
    version = broker.state.versions.archives

    def answer() -> None:
        archived = [topic for topic in broker.state.archived.values() if caller.may_touch(topic.name)]
        archives = [archive_fields(topic) for topic in sorted(archived, key=lambda topic: topic.name)]
        send(request, 200, {"version": version.now, "archives": archives})

    answer_version(broker, request, version, answer)


def archive_options(fields: Mapping[str, Any]) -> ArchiveOptions:
    """Options that came from elsewhere than a body, as strictly checked."""
    known = ArchiveBody.__struct_fields__
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise InvalidRequest(f"{unknown[0][:100]} is not an option of an archive: {', '.join(known)}")
    try:
        return _options(msgspec.convert(fields, ArchiveBody))
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from None


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


def _reply(
    request: Request, answer: Callable[[ArchiveChanged], None]
) -> Callable[[ArchiveChanged | TopicsError], None]:
    def reply(outcome: ArchiveChanged | TopicsError) -> None:
        try:
            if isinstance(outcome, TopicsError):
                raise outcome
            answer(outcome)
        except TopicsError as error:
            send_error(request, error)

    return reply
