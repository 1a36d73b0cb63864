"""Archives are set, cleared and make progress, each synced before it is answered.

The facts of one topic's archive all go to that topic's shard, so that they stand there in the order they were decided in,
behind the topic's creation and before its end. Progress does not make the topic busy: its readers and writers go on.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from topics.broker.control import Configured
from topics.broker.single import keep_fact
from topics.engine.topic import Topic
from topics.model.archive import Archive, ArchivedTo, ArchiveOptions
from topics.model.errors import Conflict, InvalidRequest, NotFound, Throttled, TopicsError
from topics.model.facts import ArchiveCleared, ArchiveProgressed, ArchiveSet, Fact

if TYPE_CHECKING:
    from topics.broker.broker import Broker

ARCHIVES_MOST = 10_000


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


def set_archive(broker: "Broker", name: str, options: ArchiveOptions, reply: Reply) -> None:
    """Copy the topic's records to this table from now on, in place of any other."""
    if broker.parked(name, lambda: set_archive(broker, name, options, reply), reply):
        return
    topic = broker.topic(name)
    before = topic.archive
    if before is not None and before.options == options:
        reply(ArchiveChanged(topic))
        return
    if broker.in_turn([broker.state.versions.archives], lambda: set_archive(broker, name, options, reply), reply):
        return
    broker.committer.check_writable(broker.committer.lane_of(topic.id))
    same_table = before is not None and before.options.place == options.place
    if not same_table:
        _check_free(broker, topic, options)
    if before is None and len(broker.state.archived) + len(broker.archives_in_flight) >= ARCHIVES_MOST:
        detail = {"limit": "max_archives", "max": ARCHIVES_MOST}
        raise Throttled(f"the server has {ARCHIVES_MOST} archives already", detail=detail)
    version = broker.state.versions.archives.next()
    begun = before.begun if before is not None and same_table else version
    fact = ArchiveSet(topic.id, options, begun, version, broker.runtime.now_ms())
    _change(broker, topic, fact, ArchiveChanged(topic, new=before is None), reply, options.place)


def clear_archive(broker: "Broker", name: str, reply: Reply) -> None:
    """Copy the topic's records nowhere any more. The table stays as it is."""
    if broker.parked(name, lambda: clear_archive(broker, name, reply), reply):
        return
    topic = broker.topic(name)
    if topic.archive is None:
        reply(ArchiveChanged(topic))
        return
    if broker.in_turn([broker.state.versions.archives], lambda: clear_archive(broker, name, reply), reply):
        return
    fact = ArchiveCleared(topic.id, broker.state.versions.archives.next())
    _change(broker, topic, fact, ArchiveChanged(topic, gone=True), reply)


def report_progress(
    broker: "Broker", name: str, places: list[ArchivedTo], table_version: int | None, reply: Reply
) -> None:
    """The archive has come this far. What is older than what is known counts for nothing.

    Raises InvalidRequest for a partition, an epoch or records that the topic never had.
    """
    if broker.parked(name, lambda: report_progress(broker, name, places, table_version, reply), reply):
        return
    topic = broker.topic(name)
    archive = known_archive(topic)
    for place in places:
        head = broker.partition(topic, place.partition).head_seq
        if place.epoch > topic.epoch:
            raise InvalidRequest(f'topic "{name}" has epoch {topic.epoch}', detail={"epoch": topic.epoch})
        if place.epoch == topic.epoch and place.next_seq > head + 1:
            message = f"partition {place.partition} has records up to {head} only"
            raise InvalidRequest(message, detail={"partition": place.partition, "head_seq": head})
    if archive.progressed(places, table_version, 0) is archive:
        reply(ArchiveChanged(topic))
        return
    fact = ArchiveProgressed(topic.id, archive.begun, archive.news(places), table_version, broker.runtime.now_ms())

    def kept(error: TopicsError | None) -> None:
        reply(ArchiveChanged(topic) if error is None else error)

    keep_fact(broker, broker.committer.lane_of(topic.id), fact, kept)


def _check_free(broker: "Broker", topic: Topic, options: ArchiveOptions) -> None:
    """Raises Conflict when another topic is archived there: two would compact and vacuum each other's files."""
    others = [each.archive for each in broker.state.archived.values() if each is not topic]
    taken = [archive.options.place for archive in others if archive is not None]
    if options.place in taken or options.place in broker.archives_in_flight:
        raise Conflict("another topic is archived to this table", detail={"uri": options.uri})


def _change(
    broker: "Broker", topic: Topic, fact: Fact, changed: ArchiveChanged, reply: Reply, place: str | None = None
) -> None:
    def replied(outcome: Configured | TopicsError) -> None:
        if place is not None and isinstance(outcome, TopicsError) and broker.committer.lane_of(topic.id).shard.failed:
            # It may stand in the log all the same, and the next start find it: nobody else may have the table before.
            broker.archives_in_flight.add(place)
        reply(changed if isinstance(outcome, Configured) else outcome)

    broker.change_topic(topic, [fact], replied, place, broker.archives_in_flight)
