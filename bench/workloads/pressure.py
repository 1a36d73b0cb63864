"""A server under pressure: a high-priority topic during a flood, and writes during scrapes of the metrics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.pressure import flooded, scrapes

SECONDS = 4.0


@contextmanager
def _flood(options: Options) -> Iterator[Contenders]:
    """With the throttle, and without it."""

    def measure(lag_ms: int) -> Callable[[], Sample]:
        def run() -> Sample:
            result = flooded(SECONDS, lag_ms=lag_ms)
            return Sample(result.p99_ms, result.writes, {"p50": result.p50_ms})

        return run

    yield {"topics": Contender(measure(10)), "without throttle": Contender(measure(0))}


@contextmanager
def _scrapes(options: Options) -> Iterator[Contenders]:
    """During scrapes, and without them."""
    quiet_ms = 0.0

    def scraped() -> Sample:
        nonlocal quiet_ms
        quiet_ms, scraped_ms, longest_ms = scrapes(2 * SECONDS)
        return Sample(scraped_ms, 1, {"longest scrape": longest_ms})

    yield {"topics": Contender(scraped), "without scrapes": Contender(lambda: Sample(quiet_ms, 1))}


WORKLOADS = [
    Workload("pressure", "high-priority appends during a flood of 192 connections, p99", "ms", _flood, lower_is_better=True, rounds=1),
    Workload("pressure", "appends during scrapes of 10,000 topics, p99", "ms", _scrapes, lower_is_better=True, rounds=1),
]  # fmt: skip
