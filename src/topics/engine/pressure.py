"""Pressure: from the lag of the event loop to the writes that have to wait.

The lag is sampled, and its running mean is used, so that a single long turn is no pressure. The mean divided by the tolerated lag
is the level, and the level determines the cutoff:

    level < 1        no write waits
    level 1 to 3     writes to topics below a priority that rises from 1 to 1000 wait
    level >= 3       only topics of priority 1000 do not wait

Waiting writes are admitted a few at a time: twice as many after a sample within the limit, half as many after one above it, and
always at least MIN_ADMITTED, so there is progress. A write that waits too long is refused with a time to retry after.
"""

# The weight of a new sample in the mean. About three in a row above the limit make pressure.
WEIGHT = 0.3
# Pressure ends only when the mean is well below the tolerated lag: otherwise it would alternate.
RELEASE_LEVEL = 0.5

MIN_CUTOFF = 1
MAX_CUTOFF = 1000
CUTOFF_FULL_LEVEL = 3.0

MIN_ADMITTED = 8
MAX_ADMITTED = 4096

MIN_RETRY_MS = 100
MAX_RETRY_MS = 5000


class Pressure:
    """The pressure on the loop. Pure: samples in, decisions out."""

    __slots__ = ("_admitted", "lag_ms", "on", "tolerated_ms")

    def __init__(self, tolerated_ms: float) -> None:
        """`tolerated_ms` of 0 means that there never is any pressure."""
        self.tolerated_ms = tolerated_ms
        self.lag_ms = 0.0
        """The running mean."""
        self.on = False
        self._admitted = MIN_ADMITTED

    @property
    def level(self) -> float:
        return self.lag_ms / self.tolerated_ms if self.tolerated_ms else 0.0

    def sample(self, lag_ms: float) -> int:
        """Add a sample. Returns how many waiting writes may be admitted now."""
        self.lag_ms += WEIGHT * (lag_ms - self.lag_ms)
        level = self.level
        self.on = level >= (RELEASE_LEVEL if self.on else 1.0)
        if lag_ms < self.tolerated_ms:
            self._admitted = min(MAX_ADMITTED, self._admitted * 2)
        else:
            self._admitted = max(MIN_ADMITTED, self._admitted // 2)
        return self._admitted

    def begin(self) -> None:
        """The first write has to wait: admit few at first."""
        self._admitted = MIN_ADMITTED

    def cutoff(self) -> int:
        """Writes to topics whose effective priority is lower wait."""
        if not self.on:
            return MIN_CUTOFF
        share = (self.level - 1.0) / (CUTOFF_FULL_LEVEL - 1.0)
        return round(MIN_CUTOFF + (MAX_CUTOFF - MIN_CUTOFF) * min(1.0, max(0.0, share)))

    def retry_after_ms(self) -> int:
        """When a refused writer should retry: later at a higher level."""
        return round(min(MAX_RETRY_MS, max(MIN_RETRY_MS, MIN_RETRY_MS * 2 ** min(self.level, 10.0))))
