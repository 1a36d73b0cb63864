"""Options of the source and the sink: every one checked before anything is read or written.

They are named as Kafka users know them. An unknown one is an error that names the nearest known one: a misspelt option that
is silently ignored costs more than it saves.
"""

import difflib
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from topics.client import Client, RetryPolicy

# What Spark itself puts among a source's options.
_SPARKS_OWN = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode", "header", "__metadata"})
_CONNECTION = ("url", "token", "numRetries", "requestTimeoutMs", "transport")
SOURCE_OPTIONS = (
    *_CONNECTION,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "onDataLoss",
    "group",
    "queueAsLog",
    "history",
)
SINK_OPTIONS = (*_CONNECTION, "topic", "queryId", "batchId")
# A micro-batch costs 120 to 200 ms before it reads anything: larger ones amortise that.
MAX_OFFSETS_PER_TRIGGER = 250_000
# Tried for about ten seconds: a server that is started anew is back by then.
NUM_RETRIES = 8

# Where a partition begins or ends: a seq, or one of these.
EARLIEST = -2
LATEST = -1


class BadOption(ValueError):
    """The options cannot be used as they are. Says which one and what it should be."""


class Connecting(Struct, frozen=True):
    """How a worker reaches the server; plain values, so that it can be sent to executors."""

    url: str | None
    token: str | None
    retries: int
    timeout_ms: int
    transport: str

    def client(self) -> Client:
        retry = RetryPolicy(attempts=self.retries + 1)
        return Client(self.url, self.token, timeout_s=self.timeout_ms / 1000, retry=retry)


class SourceOptions(Struct, frozen=True):
    connecting: Connecting
    topics: tuple[str, ...]
    pattern: str | None
    # Of a topic only these partitions; all when it is not named.
    assigned: dict[str, tuple[int, ...]]
    starting: "Positions | None"
    ending: "Positions | None"
    starting_timestamp: int | None
    max_offsets: int
    min_offsets: int
    min_partitions: int
    on_data_loss: str
    group: str | None
    queue_as_log: bool
    # Whether to begin in the topics' archives.
    history: bool = False


class Positions(Struct, frozen=True):
    """One word for all partitions, or a seq for each that is named."""

    everywhere: int | None
    each: dict[str, dict[int, int]]


class SinkOptions(Struct, frozen=True):
    connecting: Connecting
    topic: str | None
    # For writers that cannot know them otherwise: foreachBatch under Spark Connect.
    query_id: str | None
    batch_id: int | None


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises BadOption."""
    options = _Options(given, SOURCE_OPTIONS)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name)]
    if len(chosen) != 1:
        raise BadOption("give exactly one of subscribe (names, comma between), subscribePattern and assign (JSON)")
    if options.text("startingOffsets") and options.text("startingTimestamp"):
        raise BadOption("give startingOffsets or startingTimestamp, not both")
    assigned = _assigned(options.text("assign"))
    names = options.text("subscribe") or ""
    topics = tuple(assigned) or tuple([name.strip() for name in names.split(",") if name.strip()])
    if chosen == ["subscribe"] and not topics:
        raise BadOption("subscribe names no topic")
    return SourceOptions(
        connecting=_connecting(options),
        topics=topics,
        pattern=options.text("subscribePattern"),
        assigned=assigned,
        starting=_positions("startingOffsets", options.text("startingOffsets")),
        ending=_positions("endingOffsets", options.text("endingOffsets")),
        starting_timestamp=options.number("startingTimestamp", None),
        max_offsets=options.number("maxOffsetsPerTrigger", MAX_OFFSETS_PER_TRIGGER, low=1) or MAX_OFFSETS_PER_TRIGGER,
        min_offsets=options.number("minOffsetsPerTrigger", 0) or 0,
        min_partitions=options.number("minPartitions", 0) or 0,
        on_data_loss=_on_data_loss(options),
        group=options.text("group"),
        queue_as_log=options.flag("queueAsLog", False),
        history=options.word("history", "live", ("live", "all")) == "all",
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises BadOption."""
    options = _Options(given, SINK_OPTIONS)
    query_id, batch_id = options.text("queryId"), options.number("batchId", None)
    if (query_id is None) != (batch_id is None):
        raise BadOption(
            "queryId and batchId come together: a query id alone would take the first batch of a new checkpoint for a repeat"
        )
    return SinkOptions(_connecting(options), options.text("topic"), query_id, batch_id)


class _Options:
    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        by_lower = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in by_lower:
                self._values[by_lower[name.lower()]] = str(value)
            elif name.lower() not in _SPARKS_OWN:
                near = difflib.get_close_matches(name.lower(), by_lower, 1, 0.5)
                hint = f"; did you mean {by_lower[near[0]]}?" if near else f"; known are {', '.join(known)}"
                raise BadOption(f"unknown option {name!r}{hint}")

    def text(self, name: str) -> str | None:
        return self._values.get(name, "").strip() or None

    def number(self, name: str, default: int | None, *, low: int = 0) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or int(text) < low:
            raise BadOption(f"{name} must be a whole number of at least {low}, not {text!r}")
        return int(text)

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise BadOption(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"

    def word(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        text = (self.text(name) or default).lower()
        if text not in allowed:
            raise BadOption(f"{name} must be one of {', '.join(allowed)}, not {text!r}")
        return text


def _connecting(options: _Options) -> Connecting:
    return Connecting(
        options.text("url"),
        options.text("token"),
        options.number("numRetries", NUM_RETRIES, low=0) or 0,
        options.number("requestTimeoutMs", 60_000, low=1) or 60_000,
        options.word("transport", "arrow", ("arrow", "json")),
    )


def _on_data_loss(options: _Options) -> str:
    chosen = options.text("onDataLoss")
    fail = options.flag("failOnDataLoss", True)
    if chosen is None:
        return "fail" if fail else "ignore"
    return options.word("onDataLoss", "fail", ("fail", "emit", "ignore"))


def _assigned(text: str | None) -> dict[str, tuple[int, ...]]:
    if text is None:
        return {}
    decoded = _json("assign", text)
    if not isinstance(decoded, dict) or not decoded:
        raise BadOption('assign must be JSON such as {"orders": [0, 1]}')
    result = {}
    for topic, numbers in decoded.items():
        if not isinstance(numbers, list) or not numbers or not all([_is_whole(number) for number in numbers]):
            raise BadOption('assign must be JSON such as {"orders": [0, 1]}')
        result[topic] = tuple(sorted(set(numbers)))
    return result


def _positions(name: str, text: str | None) -> Positions | None:
    if text is None:
        return None
    if text.lower() in ("earliest", "latest"):
        if name == "endingOffsets" and text.lower() == "earliest":
            raise BadOption("endingOffsets cannot be earliest")
        return Positions(EARLIEST if text.lower() == "earliest" else LATEST, {})
    decoded = _json(name, text)
    problem = BadOption(f'{name} must be earliest, latest, or JSON such as {{"orders": {{"0": 15}}}}')
    if not isinstance(decoded, dict) or not decoded:
        raise problem
    each: dict[str, dict[int, int]] = {}
    for topic, partitions in decoded.items():
        if not isinstance(partitions, dict):
            raise problem
        each[topic] = {}
        for number, seq in partitions.items():
            if not number.isdigit() or not isinstance(seq, int) or isinstance(seq, bool) or seq < EARLIEST:
                raise problem
            if name == "endingOffsets" and seq == EARLIEST:
                raise BadOption("endingOffsets cannot be earliest")
            each[topic][int(number)] = seq
    return Positions(None, each)


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadOption(f"{name} is not JSON: {error}") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
