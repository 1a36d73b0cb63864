"""Health: named conditions that an operator should know about while the server serves.

A condition is raised when something failed and is not yet repaired, and cleared when it works again:

    health.fail("seal", "cannot write segments/…: no space left on device; its records stay in memory and in the log")
    health.clear("seal")

`subject` distinguishes conditions of one kind, such as damaged files. Each failure is counted by its kind, for
/v0/metrics. A condition is logged when it is raised, when its reason changes, and then once a minute while it fails
again. While any condition is raised /v0/ready reports `degraded: true` with the reasons.

A reason is shown without authentication by default: it names files below the data directory, never topics or payloads.
Everything runs on the loop.
"""

import logging
from collections.abc import Callable

from msgspec import Struct

log = logging.getLogger("topics.health")

# How often a condition that keeps failing for the same reason is logged again.
LOG_INTERVAL_MS = 60_000


class Condition(Struct):
    """Something that failed and is not yet repaired. Times in epoch milliseconds."""

    kind: str
    subject: str
    reason: str
    since_ms: int
    failures: int
    logged_ms: int


class Health:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        # By kind, how often it failed since the process started.
        self.failures_total: dict[str, int] = {}
        self._now_ms = now_ms
        self._conditions: dict[tuple[str, str], Condition] = {}

    @property
    def degraded(self) -> bool:
        return bool(self._conditions)

    @property
    def conditions(self) -> list[Condition]:
        """Those that are raised now, the oldest first."""
        return list(self._conditions.values())

    def is_raised(self, kind: str, subject: str = "") -> bool:
        return (kind, subject) in self._conditions

    def declare(self, *kinds: str) -> None:
        """Count these kinds from zero, so that metrics list them before the first failure."""
        for kind in kinds:
            self.failures_total.setdefault(kind, 0)

    def fail(self, kind: str, reason: str, subject: str = "") -> None:
        """Count a failure and raise its condition, or renew the reason of one that is raised already."""
        self.failures_total[kind] = self.failures_total.get(kind, 0) + 1
        now_ms = self._now_ms()
        condition = self._conditions.get((kind, subject))
        if condition is None:
            condition = self._conditions[kind, subject] = Condition(kind, subject, reason, now_ms, 1, now_ms)
        else:
            condition.failures += 1
            if condition.reason == reason and abs(now_ms - condition.logged_ms) < LOG_INTERVAL_MS:
                return
            condition.reason = reason
            condition.logged_ms = now_ms
        fields = {"condition": kind, "subject": subject} if subject else {"condition": kind}
        log.error("degraded: %s", reason, extra={"fields": {**fields, "failures": condition.failures}})

    def clear_all(self, kind: str) -> None:
        """All conditions of this kind are over."""
        for condition in self.conditions:
            if condition.kind == kind:
                self.clear(kind, condition.subject)

    def clear(self, kind: str, subject: str = "") -> None:
        """The condition, if it is raised, is over."""
        condition = self._conditions.pop((kind, subject), None)
        if condition is not None:
            lasted_ms = self._now_ms() - condition.since_ms
            log.info("repaired: %s", condition.reason, extra={"fields": {"condition": kind, "lasted_ms": lasted_ms}})
