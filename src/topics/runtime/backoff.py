"""Delays between attempts of work that keeps failing, such as a checkpoint on a full disk."""

from collections.abc import Callable

from topics.runtime.interface import Runtime, Timer

MIN_DELAY_MS = 500
MAX_DELAY_MS = 30_000


class Backoff:
    """After a failure, `retry` is called MIN_DELAY_MS later, then after twice as long each time, up to `max_delay_ms`.

    The owner starts no attempt of its own while `waiting`.
    """

    def __init__(self, runtime: Runtime, retry: Callable[[], None], max_delay_ms: int = MAX_DELAY_MS) -> None:
        self._runtime = runtime
        self._max_delay_ms = max_delay_ms
        self._retry = retry
        self._delay_ms = 0
        self._timer: Timer | None = None

    @property
    def waiting(self) -> bool:
        return self._timer is not None

    def failed(self) -> None:
        """Schedule the next attempt, unless one is scheduled already."""
        if self._timer is None:
            self._delay_ms = min(max(2 * self._delay_ms, MIN_DELAY_MS), self._max_delay_ms)
            self._timer = self._runtime.call_later(self._delay_ms, self._over)

    def succeeded(self) -> None:
        """The next failure is a first one again."""
        self._delay_ms = 0
        self.stop()

    def stop(self) -> None:
        """Cancel the scheduled attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._retry()
