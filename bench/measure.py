"""A workload is measured in interleaved rounds: each contender in turn, round after round, after one warm-up round.

A disturbance of the machine then hits all contenders alike. The result of a contender is the median over the rounds,
with the lowest and highest value as its spread.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

from bench.servers import ServerProcess, TopicsServer, topics_server, v0_server

OURS = "topics"
# A server that uses at most this much processor time in this time is idle.
IDLE_SECONDS = 0.05
MAX_IDLE_CPU_SECONDS = 0.01
MAX_IDLE_WAIT_SECONDS = 2.0


@dataclass(frozen=True)
class Sample:
    """One measurement: a value in the workload's unit, and how many operations it took."""

    value: float
    operations: float
    # Further figures of the same measurement, such as percentiles.
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """Something that a workload can be measured on. Without a server, no CPU time and memory are reported."""

    measure: Callable[[], Sample]
    server: ServerProcess | None = None


Contenders = dict[str, Contender]


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    quick: bool = False
    rounds: int = 3
    # Seconds of one measurement.
    seconds: float = 1.0
    # Other servers of the /v0 API: name -> command line.
    peers: tuple[tuple[str, str], ...] = ()

    def scaled(self, number: int) -> int:
        """A number of records or jobs, a tenth of it in a quick run."""
        return max(1, number // 10) if self.quick else number

    @contextlib.contextmanager
    def v0_servers(self, **environment: str) -> Iterator[list[TopicsServer]]:
        """Ours and every peer of the same API, with the same settings."""
        with ExitStack() as stack:
            servers = [stack.enter_context(topics_server(**environment))]
            servers += [stack.enter_context(v0_server(name, command, **environment)) for name, command in self.peers]
            yield servers


@dataclass(frozen=True)
class Workload:
    """One row of the results."""

    group: str
    name: str
    unit: str
    contenders: Callable[[Options], AbstractContextManager[Contenders]]
    lower_is_better: bool = False
    # The contender that the others are compared with, if it is not ours.
    baseline: str = OURS
    # Fewer rounds for what takes long; None means as many as the command line says.
    rounds: int | None = None

    @property
    def title(self) -> str:
        return f"{self.group}: {self.name}"


def run(workload: Workload, options: Options) -> dict[str, Any]:
    """Measure a workload; the result is a JSON object."""
    rounds = min(options.rounds, workload.rounds or options.rounds)
    started = time.perf_counter()
    with workload.contenders(options) as contenders:
        if rounds > 1:
            for contender in contenders.values():
                contender.measure()
        taken: dict[str, list[tuple[Sample, float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, contender in contenders.items():
                taken[name].append(_timed(contender))
                if len(contenders) > 1:
                    _wait_until_idle(contender)
        memory = {name: _rss_mb(contender) for name, contender in contenders.items()}
    return {
        "group": workload.group,
        "name": workload.name,
        "unit": workload.unit,
        "lower_is_better": workload.lower_is_better,
        "baseline": workload.baseline,
        "rounds": rounds,
        "seconds": round(time.perf_counter() - started, 1),
        "contenders": {name: _summary(samples, memory[name]) for name, samples in taken.items()},
    }


def _timed(contender: Contender) -> tuple[Sample, float]:
    """A sample, and the microseconds of the server's processor time per operation."""
    before = contender.server.cpu_seconds() if contender.server else 0.0
    sample = contender.measure()
    # A workload may restart its server; its counter then starts again.
    used = contender.server.cpu_seconds() - before if contender.server else 0.0
    return sample, max(0.0, used) * 1e6 / max(1.0, sample.operations)


def _wait_until_idle(contender: Contender) -> None:
    """What a server still does after its measurement, such as sealing segments, must not slow the next contender."""
    server = contender.server
    if server is None:
        return
    deadline = time.perf_counter() + MAX_IDLE_WAIT_SECONDS
    used = server.cpu_seconds()
    while time.perf_counter() < deadline:
        time.sleep(IDLE_SECONDS)
        before, used = used, server.cpu_seconds()
        # The processor time is counted in ticks of 10 ms.
        if used - before <= MAX_IDLE_CPU_SECONDS:
            return


def _rss_mb(contender: Contender) -> float | None:
    return round(contender.server.rss_mb(), 1) if contender.server else None


def _summary(samples: Sequence[tuple[Sample, float]], rss_mb: float | None) -> dict[str, Any]:
    values = [sample.value for sample, _ in samples]
    summary: dict[str, Any] = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    if rss_mb is not None:
        summary["cpu_us_per_operation"] = round(statistics.median([cpu for _, cpu in samples]), 2)
        summary["rss_mb"] = rss_mb
    for name in samples[0][0].extra:
        summary[name] = statistics.median([sample.extra[name] for sample, _ in samples])
    return summary
