"""Long polls: requests that are answered when something happens, when their time is over, or when the server stops.

    poll = LongPoll(broker, request, answer)
    poll.watch(topic, look)           `look` is called after every change of the topic
    poll.wait(wait_ms)                from now on the time runs, and a stop of the server answers the request
    poll.cancel_on_disconnect()       last: the client may have disconnected already

    waiting -> over    `finish`: `answer` is called once, with what there is at that time
                       `refuse`: answered with an error
                       `end`: not answered, because the client has disconnected or `answer` is called by the owner

diff, heads, versions and consume wait with this class. A claim waits in the broker instead: jobs are divided among all claims that
wait for them (`topics.broker.queues.claims`, docs/decisions/0027-claim-waiting.md).
"""

from collections.abc import Callable

from topics.broker.broker import Broker, Topic
from topics.broker.core import Version
from topics.model.errors import TopicsError
from topics.runtime.interface import Timer
from topics.server.http import Request
from topics.server.responses import send_error


class LongPoll:
    """One waiting request: its timer, what it watches, and what ends it."""

    __slots__ = ("_answer", "_broker", "_refuse", "_releases", "_request", "_timer", "over")

    def __init__(
        self,
        broker: Broker,
        request: Request,
        answer: Callable[[], None],
        refuse: Callable[[TopicsError], None] | None = None,
    ) -> None:
        """`refuse` answers with an error; without it the request gets the error as it is."""
        self.over = False
        self._broker = broker
        self._request = request
        self._answer = answer
        self._refuse = refuse
        self._timer: Timer | None = None
        self._releases: list[Callable[[], None]] = []

    def watch(self, topic: Topic, look: Callable[[], None]) -> None:
        """Call `look` after every change of the topic until the poll is over."""
        broker = self._broker
        broker.watch(topic, look)
        self._releases.append(lambda: broker.unwatch(topic, look))

    def watch_version(self, version: Version) -> None:
        """Finish when the version changes."""
        version.watchers.add(self.finish)
        self._releases.append(lambda: version.watchers.discard(self.finish))

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the poll is over, before the request is answered."""
        self._releases.append(callback)

    def wait(self, wait_ms: float | None = None, on_timeout: Callable[[], None] | None = None) -> None:
        """Wait for `wait_ms`, then call `on_timeout`, or `finish` if there is none. None: without a time limit."""
        self._broker.polls.add(self)
        if wait_ms is not None:
            self._timer = self._broker.runtime.call_later(wait_ms, on_timeout or self.finish)

    def cancel_on_disconnect(self) -> None:
        """End the poll when the client disconnects; at once if it has disconnected."""
        self._request.on_disconnect(self.end)

    def finish(self) -> None:
        """Answer with what there is now. Does nothing when the poll is over."""
        if not self.over:
            self.end()
            self._answer()

    def refuse(self, error: TopicsError) -> None:
        """Answer with the error. Does nothing when the poll is over."""
        if not self.over:
            self.end()
            if self._refuse is not None:
                self._refuse(error)
            else:
                send_error(self._request, error)

    def end(self) -> None:
        """Stop waiting without an answer."""
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
        self._broker.polls.discard(self)
        for release in self._releases:
            release()
        # Break the reference cycles with the owner, so that all are freed without the garbage collector.
        self._releases = []
