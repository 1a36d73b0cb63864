"""Long polls on a version: whoever runs routes, tables or archives asks once and is answered when something has changed.

    ?version=7&wait_ms=20000    answer when the version is another one than this, or when the time is over

A version rises with every change and is never used twice, so a reader that has the same version has the same things.
"""

from collections.abc import Callable

from topics.broker.broker import Broker
from topics.broker.runtime import Timer
from topics.broker.versions import Version
from topics.server.bodies import Query
from topics.server.http import Request


def answer_version(broker: Broker, request: Request, version: Version, answer: Callable[[], None]) -> None:
    """Call `answer` once: now, or when the asker has waited for another version than it knows."""
    query = Query(request.query)
    known = query.number("version", 0) if query.text("version") else None
    wait_ms = min(query.number("wait_ms", 0), broker.limits.max_wait_ms)
    if known == version.now and wait_ms:
        VersionPoll(broker, request, version, answer, wait_ms)
    else:
        answer()


class VersionPoll:
    """A reader that has the present version and waits for another."""

    def __init__(
        self, broker: Broker, request: Request, version: Version, answer: Callable[[], None], wait_ms: int
    ) -> None:
        self._broker = broker
        self._version = version
        self._answer = answer
        self._over = False
        version.watchers.add(self.finish)
        broker.polls.add(self)
        self._timer: Timer = broker.runtime.call_later(wait_ms, self.finish)
        request.on_disconnect(self._end)

    def finish(self) -> None:
        if not self._over:
            self._end()
            self._answer()

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self._version.watchers.discard(self.finish)
        self._broker.polls.discard(self)
