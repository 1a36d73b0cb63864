"""Routers come, change and go. Each of these is synced before it is answered.

One at a time: whether a route closes a cycle or gives a dest a second source is judged with all earlier ones decided.
Everything is checked before anything is created, and a router comes into being together with the topics it needs.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from topics.broker.committer import Commit
from topics.broker.control import new_topic_id
from topics.engine.router import Router
from topics.engine.topic import Topic
from topics.model.config import DEFAULT_CONFIG
from topics.model.errors import Conflict, InvalidRequest, NotFound, Throttled, TopicsError, topic_not_found
from topics.model.facts import Fact, RouterConfigured, RouterCreated, RouterDeleted, TopicCreated
from topics.model.names import check_router_name, check_topic_name
from topics.model.router import RouterChange, RouterOptions

if TYPE_CHECKING:
    from topics.broker.broker import Broker


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


PutReply = Callable[[RouterPut | TopicsError], None]
DeleteReply = Callable[[RouterGone | TopicsError], None]


class RouterControl:
    """Creates, changes and deletes routers."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._routers = broker.state.routers
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

    def put(self, wanted: WantedRouter, reply: PutReply) -> None:
        """Create the router, with the topics it needs, or change its options."""
        check_router_name(wanted.name)
        check_topic_name(wanted.source, "source topic")
        check_topic_name(wanted.dest, "dest topic")
        if wanted.source == wanted.dest:
            raise InvalidRequest("source and dest must differ", detail={"source": wanted.source})
        again = lambda: self.put(wanted, reply)  # noqa: E731
        broker = self._broker
        if self._later(again, reply):
            return
        for name in (wanted.source, wanted.dest):
            if broker.parked(name, again, reply):
                return
        router = self._routers.by_name.get(wanted.name)
        if router is None:
            self._create(wanted, reply)
            return
        topics = broker.state.by_id
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
        self._submit(router.dest_id, ConfigureRouter(self, router, options, reply))

    def delete(self, name: str, reply: DeleteReply) -> None:
        """Forwarding stops at once, whatever has been copied stays."""
        check_router_name(name)
        if self._later(lambda: self.delete(name, reply), reply):
            return
        router = self._routers.by_name.get(name)
        if router is None:
            reply(RouterGone(name, False))
            return
        self._submit(router.dest_id, DeleteRouter(self, router, reply))
        self._broker.forwarder.stop_router(router, True)

    def over(self) -> None:
        """A change is decided; the next one may be judged."""
        self._under_way = False
        while self._waiting and not self._under_way:
            self._waiting.popleft()()

    @property
    def broker(self) -> "Broker":
        return self._broker

    def _later(self, again: Callable[[], None], reply: Callable[[TopicsError], None]) -> bool:
        if not self._under_way:
            return False

        def later() -> None:
            try:
                again()
            except TopicsError as error:
                reply(error)

        self._waiting.append(later)
        return True

    def _submit(self, dest_id: int, commit: Commit) -> None:
        lane = self._broker.committer.lane_of(dest_id)
        self._broker.committer.check_writable(lane)
        self._under_way = True
        self._broker.committer.submit(lane, commit)

    def _create(self, wanted: WantedRouter, reply: PutReply) -> None:
        broker = self._broker
        options = wanted.change.applied(RouterOptions())
        topics = broker.state.topics
        source, dest = topics.get(wanted.source), topics.get(wanted.dest)
        if dest is None and not wanted.create_dest:
            raise topic_not_found(wanted.dest)
        if dest is not None:
            self._check_fan_in(wanted, source, dest)
        if source is not None and dest is not None and not options.allow_cycle:
            self._check_cycle(source, dest)
        most = broker.limits.max_routers
        if most and len(self._routers) >= most:
            raise Throttled(f"the server has {most} routers already", detail={"limit": "max_routers", "max": most})
        for name, topic in ((wanted.source, source), (wanted.dest, dest)):
            if topic is None:
                broker.check_no_alias(name)
        missing = (source is None) + (dest is None)
        most = broker.limits.max_topics
        if missing and most and len(topics) + broker.creating + missing > most:
            raise Throttled(f"the server holds {most} topics already", detail={"limit": "max_topics", "max": most})
        now_ms = broker.runtime.now_ms()
        facts: list[Fact] = []
        created: list[Topic] = []
        if source is None:
            source = self._new_topic(wanted.source, 1, now_ms, facts, created)
        if dest is None:
            dest = self._new_topic(wanted.dest, len(source.partitions), now_ms, facts, created)
        # What is still on its way into the source will come behind its head, and be forwarded.
        heads = [partition.head_seq for partition in source.partitions]
        cursors = heads
        known_to = [0] * len(heads)
        if wanted.from_earliest:
            for partition in source.partitions:
                broker.evict(source, partition)
            cursors = [partition.earliest_seq - 1 for partition in source.partitions]
            known_to = heads
        fact = RouterCreated(self._routers.next_id, wanted.name, source.id, dest.id, options, cursors, known_to, now_ms)
        self._submit(dest.id, CreateRouter(self, created, [*facts, fact], fact, reply))
        self._routers.next_id += 1
        for topic in created:
            broker.state.next_topic_id = max(broker.state.next_topic_id, topic.id + 1)
            broker.keep_busy(topic.name)
        broker.creating += len(created)

    def _new_topic(self, name: str, partitions: int, now_ms: int, facts: list[Fact], created: list[Topic]) -> Topic:
        state = self._broker.state
        topic_id = new_topic_id(self._broker, created[-1].id + 1 if created else 0)
        topic = state.new_topic(topic_id, name, DEFAULT_CONFIG, partitions, now_ms)
        facts.append(TopicCreated(topic_id, name, DEFAULT_CONFIG, partitions, now_ms))
        created.append(topic)
        return topic

    def _check_fan_in(self, wanted: WantedRouter, source: Topic | None, dest: Topic) -> None:
        present = self._routers.source_of(dest.id)
        if present is not None and (source is None or source.id != present):
            name = self._broker.state.by_id[present].name
            raise Conflict(
                f'topic "{wanted.dest}" takes the records of "{name}" already; a dest has one source',
                detail={"reason": "router_dest_fan_in", "dest": wanted.dest, "source": name},
            )

    def _check_cycle(self, source: Topic, dest: Topic) -> None:
        cycle = self._routers.cycle_with(source.id, dest.id)
        if cycle is not None:
            names = [self._broker.state.by_id[topic_id].name for topic_id in cycle]
            raise Conflict(
                f"the route would close a cycle: {' -> '.join(names)}", code="router_cycle", detail={"cycle": names}
            )


class CreateRouter(Commit):
    """A router comes into being, with the topics that it needs and that were not there."""

    __slots__ = ("_control", "_created", "_fact", "_reply")

    def __init__(
        self, control: RouterControl, created: list[Topic], facts: list[Fact], fact: RouterCreated, reply: PutReply
    ) -> None:
        super().__init__(facts)
        self.sync = True
        self._control = control
        self._created = created
        self._fact = fact
        self._reply = reply

    def apply(self) -> None:
        broker = self._control.broker
        broker.creating -= len(self._created)
        for topic in self._created:
            broker.state.add(topic)
        router: Router | None = broker.state.apply(self._fact)
        if router is None:
            self._reply(NotFound("one of its topics was deleted meanwhile", detail={"router": self._fact.name}))
        else:
            broker.forwarder.added(router)
            self._reply(RouterPut(router, True))
        self._over()

    def fail(self, error: TopicsError) -> None:
        self._control.broker.creating -= len(self._created)
        self._reply(error)
        self._over()

    def _over(self) -> None:
        broker = self._control.broker
        for topic in self._created:
            broker.release(topic.name)
        self._control.over()


class ConfigureRouter(Commit):
    """A router's options change, for all that it copies from here on."""

    __slots__ = ("_control", "_reply", "_router")

    def __init__(self, control: RouterControl, router: Router, options: RouterOptions, reply: PutReply) -> None:
        super().__init__([RouterConfigured(router.id, options)])
        self.sync = True
        self._control = control
        self._router = router
        self._reply = reply

    def apply(self) -> None:
        self._control.broker.state.apply(self.facts[0])
        self._reply(RouterPut(self._router, False))
        self._control.over()

    def fail(self, error: TopicsError) -> None:
        self._reply(error)
        self._control.over()


class DeleteRouter(Commit):
    """A router goes."""

    __slots__ = ("_control", "_reply", "_router")

    def __init__(self, control: RouterControl, router: Router, reply: DeleteReply) -> None:
        super().__init__([RouterDeleted(router.id)])
        self.sync = True
        self._control = control
        self._router = router
        self._reply = reply

    def apply(self) -> None:
        broker = self._control.broker
        broker.state.apply(self.facts[0])
        broker.forwarder.removed(self._router)
        self._reply(RouterGone(self._router.name, True))
        self._control.over()

    def fail(self, error: TopicsError) -> None:
        self._control.broker.forwarder.stop_router(self._router, False)
        self._reply(error)
        self._control.over()
