"""Create, configure and delete topics; change their aliases, routes and archives.

Each of these is synced before it is answered, whatever the topic's class. Until then the topic's name is busy: other requests
for it wait, so they never see a topic that is half created, and exactly one of several creators creates it.
"""

from collections.abc import Callable

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.log.commit import Commit
from topics.broker.topics.append import decide_append
from topics.broker.topics.append_with_facts import AppendWithFacts
from topics.engine.routers.router import Router
from topics.engine.topics.topic import Topic
from topics.model.config import DEFAULT_CONFIG, ConfigChange, TopicConfig, merged
from topics.model.errors import Conflict, TopicsError
from topics.model.facts import (
    AliasSet,
    ArchiveCleared,
    Fact,
    HeadMoved,
    RoutesSet,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.model.names import check_topic_name
from topics.model.records.batch import Batch
from topics.model.tables.route import Route


class Configured(Struct):
    """The outcome of a PUT."""

    topic: Topic
    created: bool


class TopicGone(Struct):
    """The outcome of a DELETE."""

    name: str
    deleted: bool
    routers_removed: list[str]


ConfigureReply = Callable[[Configured | TopicsError], None]


def create(
    core: Core,
    name: str,
    change: ConfigChange,
    *,
    reply: Callable[..., None],
    alias: str | None = None,
    first: Batch | None = None,
) -> None:
    """Create the topic, with an alias or with its first records in one commit."""
    core.check_new_topics(name)
    config = merged(name, DEFAULT_CONFIG, change, exists=False)
    partitions = change.partitions if isinstance(change.partitions, int) else 1
    core.committer.check_writable()
    now_ms = core.runtime.now_ms()
    topic = core.state.new_topic(core.state.next_topic_id, name, config, partitions, now_ms)
    facts: list[Fact] = [TopicCreated(topic.id, name, config, partitions, now_ms)]
    if first is not None:
        group = decide_append(core, topic, first, reply)
        assert group is not None
        core.begin_create(topic)

        def applied(_: Commit) -> None:
            group.members[0].created = True

        commit = AppendWithFacts(
            group,
            lambda _: None,
            before=facts,
            after_apply=applied,
            rollback=lambda: core.state.cancel_create(topic),
            release=lambda: core.release(name),
        )
        core.committer.submit(commit)
        return
    if alias is not None:
        facts.append(AliasSet(topic.id, alias))
        core.aliases_in_flight.add(alias)
    core.begin_create(topic)

    def decided(_: object = None) -> None:
        # Before the reply, which may create the next topic at once.
        core.state.cancel_create(topic)
        if alias is not None:
            core.aliases_in_flight.discard(alias)

    core.commit_facts(
        facts,
        lambda error: reply(error or Configured(topic, True)),
        after_apply=decided,
        rollback=decided,
        release=lambda: core.release(name),
    )


def create_if_absent(
    core: Core, name: str, change: ConfigChange, alias: str | None, *, if_absent: bool, reply: ConfigureReply
) -> None:
    topic = core.state.topics.get(name)
    if topic is None:
        if alias is not None:
            _check_alias(core, name, alias)
        create(core, name, change, reply=reply, alias=alias)
    elif if_absent:
        reply(Configured(topic, False))
    else:
        raise Conflict(f'topic "{name}" exists already', detail={"topic": name})


def configure(
    core: Core,
    topic: Topic,
    change: ConfigChange,
    reply: ConfigureReply,
    configured: Callable[[Topic, TopicConfig], None],
) -> None:
    """Change the named fields. `configured` is called with the topic and its earlier configuration."""
    name, before = topic.name, topic.config
    config = merged(name, before, change, exists=True)
    if isinstance(change.partitions, int) and change.partitions != len(topic.partitions):
        raise Conflict(
            f'topic "{name}" has {len(topic.partitions)} partitions; their number cannot change',
            detail={"topic": name, "partitions": len(topic.partitions)},
        )
    if config == before:
        reply(Configured(topic, False))
        return
    core.committer.check_writable()
    for partition in topic.partitions:
        # What has expired or exceeds the cap by now stays evicted, whatever the new configuration says.
        core.evict(topic, partition)
    facts: list[Fact] = [TopicConfigured(topic.id, config)]
    if before.durability == "ephemeral" != config.durability:
        # A restart loses the records up to here, and none of those that are written from now on.
        heads = [HeadMoved(topic.id, each.number, each.next_seq - 1) for each in topic.partitions]
        facts += [fact for fact in heads if fact.head]

    def applied(_: Commit) -> None:
        for partition in topic.partitions:
            core.evict(topic, partition)
        configured(topic, before)

    change_topic(core, topic, facts, reply, after_apply=applied)


def set_alias(core: Core, topic: Topic, alias: str | None, reply: ConfigureReply) -> None:
    if alias == topic.alias:
        reply(Configured(topic, False))
        return
    if alias is not None:
        _check_alias(core, topic.name, alias)
    change_topic(core, topic, [AliasSet(topic.id, alias)], reply, reserved=alias, reservations=core.aliases_in_flight)


def change_routes(
    core: Core, topic: Topic, change: Callable[[list[Route], int], list[Route]], reply: ConfigureReply
) -> None:
    version = core.state.versions.routes.next()
    change_topic(core, topic, [RoutesSet(topic.id, change(topic.routes, version), version)], reply)


def change_topic(
    core: Core,
    topic: Topic,
    facts: list[Fact],
    reply: ConfigureReply,
    *,
    after_apply: Callable[[Commit], None] | None = None,
    reserved: str | None = None,
    reservations: set[str] | None = None,
) -> None:
    """Commit facts about the topic. REQUIRES: the topic is not busy.

    `reserved` is something that no two topics may have, such as an alias: it is in `reservations` until this is decided.
    """
    core.committer.check_writable()
    if reserved is not None and reservations is not None:
        reservations.add(reserved)

    def decided() -> None:
        if reserved is not None and reservations is not None:
            reservations.discard(reserved)

    def applied(commit: Commit) -> None:
        decided()
        if after_apply is not None:
            after_apply(commit)

    core.busy[topic.name] = []
    core.commit_facts(
        facts,
        lambda error: reply(error or Configured(topic, False)),
        after_apply=applied,
        rollback=decided,
        release=lambda: core.release(topic.name),
    )


def delete(
    core: Core,
    topic: Topic,
    if_empty: bool,
    reply: Callable[[TopicGone | TopicsError], None],
    router_removed: Callable[[Router], None],
) -> None:
    """Delete the topic, its records, and the routers from and to it."""
    name = topic.name
    if if_empty:
        for partition in topic.partitions:
            core.evict(topic, partition)
        count = topic.count + sum([partition.pending_records for partition in topic.partitions])
        if count:
            raise Conflict(
                f'topic "{name}" holds {count} records',
                code="topic_not_empty",
                detail={"topic": name, "count": count},
            )
    core.committer.check_writable()
    # Nothing that adds or removes a router of the topic can be applied before this: such requests wait for each other.
    routers = core.state.routers.touching(topic.id)
    facts: list[Fact] = [TopicDeleted(topic.id)]
    # Pipelines notice by the versions that the routes and the archive are gone.
    if topic.routes:
        facts.append(RoutesSet(topic.id, [], core.state.versions.routes.next()))
    if topic.archive is not None:
        facts.append(ArchiveCleared(topic.id, core.state.versions.archives.next()))

    def applied(commit: Commit) -> None:
        for router in routers:
            router_removed(router)
        for partition in topic.partitions:
            core.records_removed(partition, commit.lsn)
        core.wake(topic)

    core.busy[name] = []
    core.commit_facts(
        facts,
        lambda error: reply(error or TopicGone(name, True, [router.name for router in routers])),
        after_apply=applied,
        release=lambda: core.release(name),
    )


def _check_alias(core: Core, name: str, alias: str) -> None:
    check_topic_name(alias, "alias")
    taken = alias in core.state.aliases or alias in core.aliases_in_flight
    if taken or alias == name or alias in core.state.topics or alias in core.busy:
        raise Conflict(f'"{alias}" already names a topic', detail={"alias": alias})
