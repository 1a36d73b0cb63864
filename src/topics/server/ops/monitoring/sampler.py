"""Figures of the last five minutes: a few counters, read every two seconds (about 20 us each time)."""

from collections import deque
from collections.abc import Callable
from typing import Any

from topics.broker.broker import Broker
from topics.runtime.interface import Timer
from topics.server.topics.throttle import Throttle

SAMPLE_MS = 2_000
MAX_SAMPLES = 150


class Sampler:
    """The samples of one server, oldest first. `connections` and `streams` count what is open."""

    def __init__(self, throttle: Throttle, connections: Callable[[], int], streams: Callable[[], int]) -> None:
        self.history: deque[dict[str, Any]] = deque(maxlen=MAX_SAMPLES)
        self._throttle = throttle
        self._connections = connections
        self._streams = streams
        self._before: tuple[float, ...] | None = None
        self._timer: Timer | None = None

    def start(self, broker: Broker) -> None:
        """Take a sample now and every SAMPLE_MS."""
        self._timer = broker.runtime.call_later(SAMPLE_MS, lambda: self.start(broker))
        committer = broker.committer
        counters = (
            broker.runtime.perf(),
            broker.state.totals.appended,
            broker.counts.records_read,
            committer.wal.bytes_written,
            committer.sync_times.sum_us,
            committer.sync_times.count,
        )
        before, self._before = self._before, counters
        if before is None:
            return
        seconds, appended, read, written, sync_us, syncs = [a - b for a, b in zip(counters, before, strict=True)]
        if seconds <= 0:
            return
        self.history.append(
            {
                "ts": broker.runtime.now_ms(),
                "appended_per_s": round(appended / seconds, 2),
                "read_per_s": round(read / seconds, 2),
                "wal_bytes_per_s": round(written / seconds),
                "loop_lag_ms": round(self._throttle.pressure.lag_ms, 3),
                "sync_ms": round(sync_us / syncs / 1000, 3) if syncs else None,
                "connections": self._connections(),
                "streams": self._streams(),
            }
        )

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
