"""Long polls: requests that are answered when something happens, when their time is over, or when the server stops.

    poll = LongPoll(broker, answer, refuse)
    poll.watch(topic, look)           `look` is called after every change of the topic
    poll.wait(wait_ms)                from now on the time runs, and a stop of the server answers the request
    request.on_disconnect(poll.end)   last: the client may have disconnected already

    waiting -> over    `finish`: `answer` is called once, with what there is at that time
                       `refuse`: called with an error
                       `end`: neither is called, because the client has disconnected or the owner answers

diff, heads, versions, consume and claim wait with this class. A claim watches no topic: jobs are divided among all claims that wait
for them (`topics.broker.queues.claim_waiters`), which then ends the poll and answers.
"""

from collections.abc import Callable

from topics.broker.core import Core
from topics.engine.tables.versions import Version
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError
from topics.runtime.interface import Timer


class LongPoll:
    """One waiting request: its timer, what it watches, and what ends it."""

    __slots__ = ("_answer", "_core", "_refuse", "_releases", "_timer", "over")

    def __init__(self, core: Core, answer: Callable[[], None], refuse: Callable[[TopicsError], None]) -> None:
        self.over = False
        self._core = core
        self._answer = answer
        self._refuse = refuse
        self._timer: Timer | None = None
        self._releases: list[Callable[[], None]] = []

    def watch(self, topic: Topic, look: Callable[[], None]) -> None:
        """Call `look` after every change of the topic until the poll is over."""
        core = self._core
        core.watch(topic, look)
        self._releases.append(lambda: core.unwatch(topic, look))

    def watch_version(self, version: Version) -> None:
        """Finish when the version changes."""
        version.watchers.add(self.finish)
        self._releases.append(lambda: version.watchers.discard(self.finish))

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the poll is over, before the request is answered."""
        self._releases.append(callback)

    def wait(self, wait_ms: float | None = None, on_timeout: Callable[[], None] | None = None) -> None:
        """Wait for `wait_ms`, then call `on_timeout`, or `finish` if there is none. None: without a time limit.

        While a time runs, another one has no effect. Finishes at once when the server stops.
        """
        core = self._core
        if core.polls_finished:
            self.finish()
            return
        core.polls.add(self)
        if wait_ms is not None and self._timer is None:

            def timed_out() -> None:
                self._timer = None
                (on_timeout or self.finish)()

            self._timer = core.runtime.call_later(wait_ms, timed_out)

    def finish(self) -> None:
        """Answer with what there is now. Does nothing when the poll is over."""
        if not self.over:
            answer = self._answer
            self.end()
            answer()

    def refuse(self, error: TopicsError) -> None:
        """Answer with the error. Does nothing when the poll is over."""
        if not self.over:
            refuse = self._refuse
            self.end()
            refuse(error)

    def end(self) -> None:
        """Stop waiting without an answer."""
        if self.over:
            return
        self.over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._core.polls.discard(self)
        for release in self._releases:
            release()
        # Break the reference cycles with the owner, so that all are freed without the garbage collector.
        del self._answer, self._refuse, self._releases
