"""Create, change and delete routers. Each of these is synced before it is answered.

One runs at a time: whether a router closes a cycle or gives a dest a second source depends on all earlier ones. Everything is
checked before anything is created, and a router is created in one commit with the topics it needs.
"""

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.log.commit import Commit
from topics.broker.routers.forwarder import Forwarder
from topics.engine.routers.router import Router
from topics.engine.topics.topic import Topic
from topics.model.config import DEFAULT_CONFIG
from topics.model.errors import Conflict, Forbidden, InvalidRequest, NotFound, Throttled, TopicsError, topic_not_found
from topics.model.facts import Fact, RouterConfigured, RouterCreated, RouterDeleted, TopicCreated
from topics.model.names import check_router_name, check_topic_name
from topics.model.router import RouterChange, RouterOptions
from topics.runtime.replies import call, retried


class WantedRouter(Struct, frozen=True):
    """What a PUT asks for."""

    name: str
    source: str
    dest: str
    # What is not named stays as it is, or takes its default in a new router.
    change: RouterChange = RouterChange()
    create_dest: bool = True
    # Also forward what the source holds already.
    from_earliest: bool = False


class RouterPut(Struct):
    """The outcome of a PUT."""

    router: Router
    created: bool


class RouterGone(Struct):
    """The outcome of a DELETE."""

    name: str
    deleted: bool


# Whether the caller may touch a topic or router of this name.
MayTouch = Callable[[str], bool]
PutReply = Callable[[RouterPut | TopicsError], None]
DeleteReply = Callable[[RouterGone | TopicsError], None]


def touch_any(_name: str) -> bool:
    """The MayTouch of a caller without restrictions."""
    return True


class RouterControl:
    """Creates, changes and deletes routers."""

    def __init__(self, core: Core, forwarder: Forwarder) -> None:
        self._core = core
        self._forwarder = forwarder
        self._routers = core.state.routers
        self._under_way = False
        self._waiting: deque[Callable[[], None]] = deque()

    def find(self, name: str) -> Router:
        router = self._routers.by_name.get(name)
        if router is None:
            check_router_name(name)
            raise NotFound(f'router "{name}" does not exist', code="router_not_found", detail={"router": name})
        return router

    def listed(self, prefix: str, after: str) -> Iterator[Router]:
        return self._routers.listed(prefix, after)

    def reached(self, router: Router, may_touch: MayTouch) -> bool:
        """Whether a caller reaches the router: its own name, its source and its dest."""
        topics = self._core.state.by_id
        names = (router.name, topics[router.source_id].name, topics[router.dest_id].name)
        return all([may_touch(name) for name in names])

    def check_reached(self, router: Router, may_touch: MayTouch) -> None:
        if not self.reached(router, may_touch):
            raise Forbidden(
                "the source or dest of the router lies outside the prefixes of this api key",
                detail={"router": router.name},
            )

    def check_removable(self, topic: Topic, may_touch: MayTouch) -> None:
        """Raises Forbidden when deleting the topic would delete a router that the caller does not reach."""
        if not all([self.reached(router, may_touch) for router in self._routers.touching(topic.id)]):
            raise Forbidden(
                f'topic "{topic.name}" is the source or dest of a router outside the prefixes of this api key; '
                "delete that router first, with a key that reaches it",
                detail={"topic": topic.name},
            )

    def put(self, wanted: WantedRouter, reply: PutReply, may_touch: MayTouch = touch_any) -> None:
        """Create the router, with the topics it needs, or change its options. An error names no topic outside `may_touch`."""
        check_router_name(wanted.name)
        check_topic_name(wanted.source, "source topic")
        check_topic_name(wanted.dest, "dest topic")
        if wanted.source == wanted.dest:
            raise InvalidRequest("source and dest must differ", detail={"source": wanted.source})
        again = lambda: self.put(wanted, reply, may_touch)  # noqa: E731
        core = self._core
        if self.deferred(again, reply):
            return
        for name in (wanted.source, wanted.dest):
            if core.parked(name, again, reply):
                return
        router = self._routers.by_name.get(wanted.name)
        if router is None:
            self._create(wanted, reply, may_touch)
            return
        self.check_reached(router, may_touch)
        topics = core.state.by_id
        source, dest = topics[router.source_id].name, topics[router.dest_id].name
        if (source, dest) != (wanted.source, wanted.dest):
            raise Conflict(
                f'router "{wanted.name}" leads from "{source}" to "{dest}"; that cannot change',
                code="router_exists_incompatible",
                detail={"router": wanted.name, "source": source, "dest": dest},
            )
        options = wanted.change.applied(router.options)
        if router.options == options:
            reply(RouterPut(router, False))
            return
        self._commit([RouterConfigured(router.id, options)], lambda error: reply(error or RouterPut(router, False)))

    def delete(self, name: str, reply: DeleteReply, may_touch: MayTouch = touch_any) -> None:
        """Delete the router. It stops at once; its copies stay."""
        check_router_name(name)
        if self.deferred(lambda: self.delete(name, reply, may_touch), reply):
            return
        router = self._routers.by_name.get(name)
        if router is None:
            reply(RouterGone(name, False))
            return
        self.check_reached(router, may_touch)
        self._commit(
            [RouterDeleted(router.id)],
            lambda error: reply(error or RouterGone(name, True)),
            after_apply=lambda _: self._forwarder.removed(router),
            rollback=lambda: self._forwarder.cancel_delete(router),
        )
        self._forwarder.begin_delete(router)

    def deferred(self, again: Callable[[], None], reply: Callable[[TopicsError], None]) -> bool:
        """Whether a change of a router is under way; then `again` is called when it is decided."""
        if not self._under_way:
            return False
        self._waiting.append(retried(again, reply))
        return True

    def _commit(
        self,
        facts: list[Fact],
        reply: Callable[[TopicsError | None], None],
        *,
        after_apply: Callable[[Commit], None] | None = None,
        rollback: Callable[[], None] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        def released() -> None:
            if release is not None:
                call(release)
            self._under_way = False
            while self._waiting and not self._under_way:
                call(self._waiting.popleft())

        self._core.commit_facts(facts, reply, after_apply=after_apply, rollback=rollback, release=released)
        self._under_way = True

    def _create(self, wanted: WantedRouter, reply: PutReply, may_touch: MayTouch) -> None:
        core = self._core
        options = wanted.change.applied(RouterOptions())
        topics = core.state.topics
        source, dest = topics.get(wanted.source), topics.get(wanted.dest)
        if dest is None and not wanted.create_dest:
            raise topic_not_found(wanted.dest)
        if dest is not None:
            self._check_fan_in(wanted, source, dest, may_touch)
        if source is not None and dest is not None and not options.allow_cycle:
            self._check_cycle(source, dest, may_touch)
        limit = core.limits.max_routers
        if limit and len(self._routers) >= limit:
            raise Throttled(f"the server has {limit} routers already", detail={"limit": "max_routers", "max": limit})
        core.check_new_topics(*[name for name in (wanted.source, wanted.dest) if name not in topics])
        now_ms = core.runtime.now_ms()
        facts: list[Fact] = []
        created: list[Topic] = []
        if source is None:
            source = self._new_topic(wanted.source, 1, now_ms, facts, created)
        if dest is None:
            dest = self._new_topic(wanted.dest, len(source.partitions), now_ms, facts, created)
        # Records of the source that are not applied yet come after its head, and are forwarded.
        heads = [partition.head_seq for partition in source.partitions]
        cursors = heads
        known_to = [0] * len(heads)
        if wanted.from_earliest:
            for partition in source.partitions:
                core.evict(source, partition)
            cursors = [partition.earliest_seq - 1 for partition in source.partitions]
            known_to = heads
        fact = RouterCreated(self._routers.next_id, wanted.name, source.id, dest.id, options, cursors, known_to, now_ms)

        def decided(_: object = None) -> None:
            for topic in created:
                core.state.cancel_create(topic)

        def applied(_: Commit) -> None:
            decided()
            router = self._routers.by_id.get(fact.router_id)
            if router is not None:
                self._forwarder.added(router)

        def answer(error: TopicsError | None) -> None:
            router = self._routers.by_id.get(fact.router_id)
            if error is None and router is None:
                error = NotFound("one of its topics was deleted meanwhile", detail={"router": wanted.name})
            reply(error or RouterPut(router, True))  # type: ignore[arg-type]

        def release() -> None:
            for topic in created:
                core.release(topic.name)

        self._commit([*facts, fact], answer, after_apply=applied, rollback=decided, release=release)
        self._routers.next_id += 1
        for topic in created:
            core.begin_create(topic)

    def _new_topic(self, name: str, partitions: int, now_ms: int, facts: list[Fact], created: list[Topic]) -> Topic:
        state = self._core.state
        topic_id = state.next_topic_id + len(created)
        topic = state.new_topic(topic_id, name, DEFAULT_CONFIG, partitions, now_ms)
        facts.append(TopicCreated(topic_id, name, DEFAULT_CONFIG, partitions, now_ms))
        created.append(topic)
        return topic

    def _check_fan_in(self, wanted: WantedRouter, source: Topic | None, dest: Topic, may_touch: MayTouch) -> None:
        present = self._routers.source_of(dest.id)
        if present is not None and (source is None or source.id != present):
            name = self._core.state.by_id[present].name
            detail = {"reason": "router_dest_fan_in", "dest": wanted.dest}
            other = "another topic"
            if may_touch(name):
                detail["source"], other = name, f'"{name}"'
            raise Conflict(
                f'topic "{wanted.dest}" takes the records of {other} already; a dest has one source', detail=detail
            )

    def _check_cycle(self, source: Topic, dest: Topic, may_touch: MayTouch) -> None:
        cycle = self._routers.cycle_with(source.id, dest.id)
        if cycle is not None:
            # Its first and last are the source, which the caller has named.
            names = [name for topic_id in cycle if may_touch(name := self._core.state.by_id[topic_id].name)]
            raise Conflict(
                f"the route would close a cycle: {' -> '.join(names)}", code="router_cycle", detail={"cycle": names}
            )
