"""When a request is sent again: never when that could do something twice, and never all clients at the same moment."""

import os

from msgspec import Struct


class RetryPolicy(Struct, frozen=True):
    """Up to `attempts` attempts in all. The wait doubles each time, half of it random, and is at least `Retry-After`.

    Example:

        client.with_options(retry=RetryPolicy(attempts=2)).health()
    """

    attempts: int = 6
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0

    def wait_s(self, attempt: int, retry_after_s: float | None, chance: float | None = None) -> float:
        """How long to wait before try number `attempt` + 1."""
        wait: float = min(self.longest_wait_s, self.first_wait_s * 2 ** (attempt - 1))
        wait *= 0.5 + 0.5 * (_chance() if chance is None else chance)
        return wait if retry_after_s is None else max(wait, retry_after_s)


NO_RETRY = RetryPolicy(attempts=1)


def _chance() -> float:
    """A random number from 0 to 1; the generator of `random`, which programs seed, is left alone."""
    return int.from_bytes(os.urandom(4), "big") / 0xFFFFFFFF
