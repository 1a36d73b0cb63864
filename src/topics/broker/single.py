"""One fact by itself, synced before it is answered: for what is neither a record nor about what a topic is."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.broker.committer import Commit, Lane
from topics.model.errors import TopicsError
from topics.model.facts import Fact

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class SingleFact(Commit):
    """`reply` gets nothing when the fact is true and safe, or what went wrong."""

    __slots__ = ("_broker", "_reply")

    def __init__(self, broker: "Broker", fact: Fact, reply: Callable[[TopicsError | None], None]) -> None:
        super().__init__([fact])
        self.sync = True
        self._broker = broker
        self._reply = reply

    def apply(self) -> None:
        self._broker.state.apply(self.facts[0])
        self._reply(None)
        self._broker.state.versions.tell(self.facts)

    def fail(self, error: TopicsError) -> None:
        self._reply(error)


def keep_fact(broker: "Broker", lane: Lane, fact: Fact, reply: Callable[[TopicsError | None], None]) -> None:
    """Raises Unavailable when the lane takes nothing more."""
    broker.committer.check_writable(lane)
    broker.committer.submit(lane, SingleFact(broker, fact, reply))
