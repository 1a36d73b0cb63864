"""Archives are set, cleared and make progress, each synced before it is answered.

Progress does not make the topic busy: its readers and writers continue.
"""

from collections.abc import Callable

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.tables.tables import check_location_free
from topics.broker.topics.lifecycle import Configured, change_topic
from topics.engine.topics.topic import Topic
from topics.model.errors import InvalidRequest, NotFound, Throttled, TopicsError
from topics.model.facts import ArchiveCleared, ArchiveProgressed, ArchiveSet, Fact
from topics.model.tables.archive import Archive, ArchivedTo, ArchiveOptions

MAX_ARCHIVES = 10_000


class ArchiveChanged(Struct):
    """The topic whose archive was asked to change, and whether it is another now than before: new, or gone."""

    topic: Topic
    new: bool = False
    gone: bool = False


Reply = Callable[[ArchiveChanged | TopicsError], None]


def known_archive(topic: Topic) -> Archive:
    if topic.archive is None:
        raise NotFound(f'topic "{topic.name}" has no archive', code="not_found", detail={"topic": topic.name})
    return topic.archive


def set_archive(core: Core, name: str, options: ArchiveOptions, reply: Reply) -> None:
    """Copy the topic's records to this table from now on, in place of any other."""
    if core.parked(name, lambda: set_archive(core, name, options, reply), reply):
        return
    topic = core.topic(name)
    before = topic.archive
    if before is not None and before.options == options:
        reply(ArchiveChanged(topic))
        return
    core.committer.check_writable()
    same_table = before is not None and before.options.location.is_same(options.location)
    if not same_table:
        check_location_free(core, options.uri, options.location, topic=topic)
    if before is None and len(core.state.archived) + len(core.archives_in_flight) >= MAX_ARCHIVES:
        detail = {"limit": "max_archives", "max": MAX_ARCHIVES}
        raise Throttled(f"the server has {MAX_ARCHIVES} archives already", detail=detail)
    version = core.state.versions.archives.next()
    begun = before.begun if before is not None and same_table else version
    fact = ArchiveSet(topic.id, options, begun, version, core.runtime.now_ms())
    _change(core, topic, fact, ArchiveChanged(topic, new=before is None), reply, options.uri)


def clear_archive(core: Core, name: str, reply: Reply) -> None:
    """Copy the topic's records nowhere any more. The table stays as it is."""
    if core.parked(name, lambda: clear_archive(core, name, reply), reply):
        return
    topic = core.topic(name)
    if topic.archive is None:
        reply(ArchiveChanged(topic))
        return
    fact = ArchiveCleared(topic.id, core.state.versions.archives.next())
    _change(core, topic, fact, ArchiveChanged(topic, gone=True), reply)


def report_progress(core: Core, name: str, places: list[ArchivedTo], table_version: int | None, reply: Reply) -> None:
    """The archive has come this far. What is older than what is known counts for nothing.

    Raises InvalidRequest for a partition, an epoch or records that the topic never had.
    """
    if core.parked(name, lambda: report_progress(core, name, places, table_version, reply), reply):
        return
    topic = core.topic(name)
    archive = known_archive(topic)
    for place in places:
        head = core.partition(topic, place.partition).head_seq
        if place.epoch > topic.epoch:
            raise InvalidRequest(f'topic "{name}" has epoch {topic.epoch}', detail={"epoch": topic.epoch})
        if place.epoch == topic.epoch and place.next_seq > head + 1:
            message = f"partition {place.partition} has records up to {head} only"
            raise InvalidRequest(message, detail={"partition": place.partition, "head_seq": head})
    if archive.progressed(places, table_version, 0) is archive:
        reply(ArchiveChanged(topic))
        return
    fact = ArchiveProgressed(topic.id, archive.begun, archive.news(places), table_version, core.runtime.now_ms())

    def kept(error: TopicsError | None) -> None:
        reply(ArchiveChanged(topic) if error is None else error)

    core.commit_facts([fact], kept)


def _change(
    core: Core, topic: Topic, fact: Fact, changed: ArchiveChanged, reply: Reply, uri: str | None = None
) -> None:
    def replied(outcome: Configured | TopicsError) -> None:
        reply(changed if isinstance(outcome, Configured) else outcome)

    change_topic(core, topic, [fact], replied, reserved=uri, reservations=core.archives_in_flight)
