"""Routes and aliases change: synced before they are answered, like everything else about what a topic is.

All routes of the server share one version that only ever rises, also over restarts and when a topic with routes is
dropped: whoever runs them compares one number to know whether it still has the right ones.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.broker.committer import Commit
from topics.broker.control import Configured
from topics.engine.topic import Topic
from topics.model.errors import TopicsError
from topics.model.facts import Fact, RoutesSet

if TYPE_CHECKING:
    from topics.broker.broker import Broker


def new_routes_version(broker: "Broker") -> int:
    """A version no set of routes has had; one whose commit fails is never used."""
    broker.routes_version_decided += 1
    return broker.routes_version_decided


class ChangeRoutes(Commit):
    """A topic's alias or its routes change."""

    __slots__ = ("_alias", "_broker", "_reply", "_topic")

    def __init__(
        self,
        broker: "Broker",
        topic: Topic,
        facts: list[Fact],
        alias: str | None,
        reply: Callable[[Configured | TopicsError], None],
    ) -> None:
        super().__init__(facts)
        self.sync = True
        self._broker = broker
        self._topic = topic
        self._alias = alias
        self._reply = reply
        if alias is not None:
            broker.aliases_in_flight.add(alias)

    def apply(self) -> None:
        for fact in self.facts:
            self._broker.state.apply(fact)
        self._over()
        self._reply(Configured(self._topic, False))
        if any([isinstance(fact, RoutesSet) for fact in self.facts]):
            self._broker.routes_changed()
        self._broker.release(self._topic.name)

    def fail(self, error: TopicsError) -> None:
        self._over()
        self._reply(error)
        self._broker.release(self._topic.name)

    def _over(self) -> None:
        if self._alias is not None:
            self._broker.aliases_in_flight.discard(self._alias)
