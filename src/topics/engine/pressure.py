"""Pressure: from how late the event loop runs to who has to wait.

The loop's lag is sampled; what counts is its running mean, so that one long turn is not pressure but many are. Measured
against the lag that is tolerated it gives a level, and the level a cutoff:

    level < 1        nobody waits
    level 1 to 3     writes to topics below a priority that rises from 1 to 1000 wait
    level >= 3       only topics of priority 1000 do not wait

Those who wait are let in a few at a time: twice as many after a sample within bounds, half as many after one beyond
(but always some, so there is progress). Whoever waits too long is refused and told when to come back.
"""

# How much of the mean a new sample is. About three in a row beyond the bounds make pressure.
WEIGHT = 0.3
# The loop is let in again only when the mean is well below what is tolerated, or it would flap.
RELEASE_LEVEL = 0.5

CUTOFF_LEAST = 1
CUTOFF_MOST = 1000
CUTOFF_FULL_LEVEL = 3.0

LET_IN_LEAST = 8
LET_IN_MOST = 4096

RETRY_LEAST_MS = 100
RETRY_MOST_MS = 5000


class Pressure:
    """How the loop is doing. Pure: samples come in, decisions come out."""

    __slots__ = ("_let_in", "lag_ms", "on", "tolerated_ms")

    def __init__(self, tolerated_ms: float) -> None:
        """`tolerated_ms` of 0 means that there never is any pressure."""
        self.tolerated_ms = tolerated_ms
        self.lag_ms = 0.0
        """The running mean."""
        self.on = False
        self._let_in = LET_IN_LEAST

    @property
    def level(self) -> float:
        return self.lag_ms / self.tolerated_ms if self.tolerated_ms else 0.0

    def sample(self, lag_ms: float) -> int:
        """Take a new measurement; answers how many of those who wait may go in now."""
        self.lag_ms += WEIGHT * (lag_ms - self.lag_ms)
        level = self.level
        self.on = level >= (RELEASE_LEVEL if self.on else 1.0)
        if lag_ms < self.tolerated_ms:
            self._let_in = min(LET_IN_MOST, self._let_in * 2)
        else:
            self._let_in = max(LET_IN_LEAST, self._let_in // 2)
        return self._let_in

    def begin(self) -> None:
        """Somebody has to wait who is the first: start carefully."""
        self._let_in = LET_IN_LEAST

    def cutoff(self) -> int:
        """Writes to topics whose effective priority is lower wait."""
        if not self.on:
            return CUTOFF_LEAST
        share = (self.level - 1.0) / (CUTOFF_FULL_LEVEL - 1.0)
        return round(CUTOFF_LEAST + (CUTOFF_MOST - CUTOFF_LEAST) * min(1.0, max(0.0, share)))

    def retry_after_ms(self) -> int:
        """When a refused writer should come back: the later, the worse it is."""
        return round(min(RETRY_MOST_MS, max(RETRY_LEAST_MS, RETRY_LEAST_MS * 2 ** min(self.level, 10.0))))
