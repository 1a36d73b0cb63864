"""Routes, aliases and archives change: synced before they are answered, like everything else about what a topic is."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.broker.committer import Commit
from topics.broker.control import Configured
from topics.engine.topic import Topic
from topics.model.errors import TopicsError
from topics.model.facts import Fact

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class ChangeTopic(Commit):
    """A topic's alias, its routes or its archive change.

    `claimed`, if there is something that no two topics may have, stands in `claims` until it is decided.
    """

    __slots__ = ("_broker", "_claimed", "_claims", "_reply", "_topic")

    def __init__(
        self,
        broker: "Broker",
        topic: Topic,
        facts: list[Fact],
        reply: Callable[[Configured | TopicsError], None],
        claimed: str | None,
        claims: set[str] | None,
    ) -> None:
        super().__init__(facts)
        self.sync = True
        self._topic = topic
        self._broker = broker
        self._reply = reply
        self._claimed = claimed
        self._claims = claims
        if claimed is not None and claims is not None:
            claims.add(claimed)

    def apply(self) -> None:
        for fact in self.facts:
            self._broker.state.apply(fact)
        self._over()
        self._reply(Configured(self._topic, False))
        self._broker.state.versions.tell(self.facts)
        self._broker.release(self._topic.name)
        self._broker.state.versions.over(self.facts)

    def fail(self, error: TopicsError) -> None:
        self._over()
        self._reply(error)
        self._broker.release(self._topic.name)
        self._broker.state.versions.over(self.facts)

    def _over(self) -> None:
        if self._claimed is not None and self._claims is not None:
            self._claims.discard(self._claimed)
