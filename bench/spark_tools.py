"""What the sections of the Spark benchmark share: the session, rounds, and reads and writes through the connector."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.servers import TopicsServer

PAYLOAD = "concat('{\"id\":', id, ',\"text\":\"', repeat('x', 80), '\"}')"
ROUNDS = 5


@dataclass
class Bench:
    """What every section gets."""

    spark: Any
    server: TopicsServer
    directory: str
    rows: int
    quick: bool
    before: str | None = None

    @property
    def url(self) -> str:
        return self.server.url("")

    @property
    def rounds(self) -> int:
        return 1 if self.quick else ROUNDS


def session(master: str, more: dict[str, str] | None = None) -> Any:
    """As `topics pipeline run` makes it for a checkpoint on a local disk."""
    from topics.spark.pipeline.session import build_session, set_checkpoint_files

    settings = {"spark.driver.memory": "2g", "spark.ui.enabled": "false", **(more or {})}
    spark = build_session(master, "bench", settings, logs=False)
    set_checkpoint_files(spark, "file:/")
    return spark


def in_turns(rounds: int, actions: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each action measures, in turns. The first round does not count, unless it is the only one."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for number in range(rounds + 1 if rounds > 1 else 1):
        for name, action in actions.items():
            value = action()
            if number or rounds == 1:
                found[name].append(value)
    return found


def rates(rounds: int, rows: int, **actions: Callable[[], object]) -> dict[str, list[float]]:
    """Rows a second of each action."""

    def timed(action: Callable[[], object]) -> Callable[[], float]:
        def measure() -> float:
            return rows / seconds_of(action)

        return measure

    return in_turns(rounds, {name: timed(action) for name, action in actions.items()})


def seconds_of(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [own / other for own, other in zip(ours, theirs, strict=True)]


def drain(frame: Any) -> None:
    """Every value is read and none is kept."""
    frame.selectExpr("sum(length(data))").collect()


def read(spark: Any, url: str, topic: str, transport: str) -> Any:
    reader = spark.read.format("topics").option("url", url).option("subscribe", topic)
    return reader.option("transport", transport).load()


def write(frame: Any, url: str, topic: str, transport: str) -> None:
    writer = frame.write.format("topics").mode("append").option("url", url).option("topic", topic)
    writer.option("transport", transport).save()
