"""Rates of single topics: records appended and removed a second, between two passes over all topics.

A pass reads two numbers of every topic, in slices: 100,000 topics take about 60 ms of the loop's time, in steps of less than a
millisecond. One is made when a client asks for rates and the last is older than MIN_AGE_MS, so a server that is not asked does
no work.
"""

import logging
from collections.abc import Callable

from topics.broker.broker import Broker, Topic
from topics.model.steps import Steps

log = logging.getLogger("topics.server")

MIN_AGE_MS = 2_000
TOPICS_PER_STEP = 500

# By topic id: records appended so far, and records that were removed.
Counters = dict[int, tuple[int, int]]


class Rates:
    def __init__(self) -> None:
        # The last two passes, with their times in seconds.
        self._before: tuple[float, Counters] | None = None
        self._latest: tuple[float, Counters] | None = None
        self._waiting: list[Callable[[], None]] = []

    def refresh(self, broker: Broker, done: Callable[[], None]) -> None:
        """Call `done` when the last pass is recent."""
        now = broker.runtime.perf()
        if self._latest is not None and not self._waiting and (now - self._latest[0]) * 1000 < MIN_AGE_MS:
            done()
            return
        self._waiting.append(done)
        if len(self._waiting) > 1:
            return

        def finished(counters: Counters | None, error: BaseException | None) -> None:
            if error is not None:
                log.error("exception while reading the rates of topics; the last ones are shown", exc_info=error)
            elif counters is not None:
                self._before, self._latest = self._latest, (now, counters)
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each()

        broker.slices.run(_read(broker), finished)

    def of(self, topic: Topic) -> tuple[float, float] | None:
        """Records appended and removed a second; None until two passes have seen the topic."""
        if self._before is None or self._latest is None:
            return None
        before, latest = self._before[1].get(topic.id), self._latest[1].get(topic.id)
        if before is None or latest is None:
            return None
        seconds = self._latest[0] - self._before[0]
        appended, removed = latest[0] - before[0], latest[1] - before[1]
        return round(max(0, appended) / seconds, 2), round(max(0, removed) / seconds, 2)


def _read(broker: Broker) -> Steps[Counters]:
    counters: Counters = {}
    for index, topic in enumerate(list(broker.state.topics.values())):
        if index % TOPICS_PER_STEP == TOPICS_PER_STEP - 1:
            yield
        heads = sum([partition.head_seq for partition in topic.partitions])
        counters[topic.id] = (heads, heads - topic.count)
    return counters
