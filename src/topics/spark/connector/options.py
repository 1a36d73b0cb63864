"""Options of the source and the sink, all checked before anything is read or written.

Names follow Spark's Kafka connector where the meaning is the same. An unknown option is an error that names the nearest
known one, because a misspelt option would otherwise be ignored silently.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from msgspec import Struct

from topics.client import Client, RetryPolicy

# Options that Spark itself adds.
_SPARK_OPTIONS = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode", "header", "__metadata"})


class Option(Struct, frozen=True):
    """An option as the reference shows it (docs/reference/spark-options.md)."""

    default: str
    about: str


SHARED_OPTIONS = {
    "url": Option(
        "TOPICS_URL",
        "Address of the server. A source reads several servers as one: `http://a:4000,http://b:4000`; each topic may exist on one of "
        "them only. Add new servers at the end. The sink writes to one server.",
    ),
    "token": Option("TOPICS_TOKEN", "Key or token; with several urls one for all, or one for each with commas."),
    "numRetries": Option("8", "Retries of each request: about ten seconds, long enough for a server to restart."),
    "requestTimeoutMs": Option("60000", "Time-out of each request."),
    "transport": Option("arrow", "`arrow` or `json`."),
}
SOURCE_OPTIONS = {
    **SHARED_OPTIONS,
    "subscribe": Option("", "Names of topics, with commas. Give one of `subscribe`, `subscribePattern` and `assign`."),
    "subscribePattern": Option("", "A regular expression for whole names."),
    "assign": Option("", 'Partitions of topics: `{"orders": [0, 1]}`.'),
    "startingOffsets": Option(
        "earliest",
        'Where a new query begins; streams: `latest`. Or `{"orders": {"0": 15, "1": -2}}`; -2 is earliest, -1 latest.',
    ),
    "endingOffsets": Option("latest", "Where a batch query ends; exclusive."),
    "startingTimestamp": Option("", "Begin at the first record of this time or later; milliseconds."),
    "endingTimestamp": Option("", "End before the first record of this time or later; milliseconds."),
    "startingOffsetsByTimestamp": Option("", 'The same for each partition: `{"orders": {"0": 1700000000000}}`.'),
    "endingOffsetsByTimestamp": Option("", 'The same for each partition: `{"orders": {"0": 1700000000000}}`.'),
    "maxOffsetsPerTrigger": Option(
        "250000", "Seqs in one micro-batch, but at least one of each partition that has some."
    ),
    "minOffsetsPerTrigger": Option("0", "Wait until there are this many seqs."),
    "maxTriggerDelay": Option(
        "15m", "The longest time to wait for `minOffsetsPerTrigger`: `500ms`, `30s`, `15m`, `1h`."
    ),
    "minPartitions": Option("0", "Minimum number of tasks, if there are as many seqs."),
    "maxRecordsPerPartition": Option("", "Maximum number of seqs in one task."),
    "payload": Option("json", "`json`: `data` is JSON text. `variant`: `data` is a VARIANT."),
    "onBadRecord": Option("fail", "`fail`: a record that does not fit the schema fails the query."),
    "failOnDataLoss": Option("true", "`false` is `onDataLoss=ignore`."),
    "onDataLoss": Option("fail", "`fail`, `emit` (a row with `data` NULL and the range in `meta`) or `ignore`."),
    "group": Option(
        "", "Show the progress as this consumer group, one batch behind. The checkpoint holds the position."
    ),
    "queueAsLog": Option("false", "`true`: read a queue without taking its jobs."),
    "history": Option(
        "live", "`all`: read the archives of the topics first. Streams then begin with the earliest record."
    ),
}
SINK_OPTIONS = {
    **SHARED_OPTIONS,
    "topic": Option("", "Topic of rows without a topic column, or with NULL in it."),
    "queryId": Option("", "Identifies the writer in `foreachBatch`; needs `batchId`."),
    "batchId": Option("", "Number of the batch in `foreachBatch`; needs `queryId`."),
    "checkRepeats": Option(
        "true", "A batch of `queryId` that was written before with other rows fails. `false`: it is ignored."
    ),
    "atomic": Option("true", "`false`: a batch job of any size; each piece is readable at once, at least once."),
    "onBadRecord": Option("fail", "`deadLetter`: rows that cannot become records go to `deadLetterTopic`."),
    "deadLetterTopic": Option("", "Topic for rows that cannot become records."),
}
# A micro-batch has a fixed cost of 120 to 200 ms; larger batches amortise it.
MAX_OFFSETS_PER_TRIGGER = 250_000
# As in Spark's Kafka connector.
DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60_000
# Retries take about ten seconds together, long enough for a server to restart.
NUM_RETRIES = 8

# Positions that are not seqs, with the numbers that Spark's Kafka connector uses.
EARLIEST = -2
LATEST = -1

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


class BadOption(ValueError):
    """An option is missing or wrong. The message names the option and the expected value."""


class ServerOptions(Struct, frozen=True):
    """How a worker reaches the server. Plain values, so that executors can receive it."""

    url: str | None
    token: str | None
    retries: int
    timeout_ms: int
    transport: str

    def client(self) -> Client:
        retry = RetryPolicy(attempts=self.retries + 1)
        return Client(self.url, self.token, timeout_s=self.timeout_ms / 1000, retry=retry)


class SourceOptions(Struct, frozen=True):
    # One for each server of `url`. Offsets name a server by its index here.
    servers: tuple[ServerOptions, ...]
    topics: tuple[str, ...]
    pattern: str | None
    # Partitions to read of each topic; all partitions of a topic that is not a key.
    assigned: dict[str, tuple[int, ...]]
    starting: "Positions | None"
    ending: "Positions | None"
    starting_times: "Positions | None"
    ending_times: "Positions | None"
    max_offsets: int
    min_offsets: int
    # The longest time to wait for min_offsets.
    max_trigger_delay_ms: int
    min_partitions: int
    # Seqs in one task, unless None.
    max_task_seqs: int | None
    on_data_loss: str
    group: str | None
    queue_as_log: bool
    # Read the topics' archives first.
    history: bool = False
    # "json": data is its JSON text. "variant": data is a VARIANT.
    payload: str = "json"

    @contextmanager
    def clients(self) -> Iterator[list[Client]]:
        """One client for each server, in the order of `url`."""
        with ExitStack() as opened:
            yield [opened.enter_context(server.client()) for server in self.servers]

    @property
    def bounds_a_batch(self) -> bool:
        """Whether an option says where the read ends, which only a batch query can do."""
        return self.ending is not None or self.ending_times is not None


class Positions(Struct, frozen=True):
    """Seqs or times in milliseconds: one for all partitions, or one for each partition that is named."""

    everywhere: int | None
    each: dict[str, dict[int, int]]

    def of(self, topic: str, partition: int) -> int | None:
        if self.everywhere is not None:
            return self.everywhere
        return self.each.get(topic, {}).get(partition)


class SinkOptions(Struct, frozen=True):
    server: ServerOptions
    topic: str | None
    # For writers that do not get them from Spark: foreachBatch under Spark Connect.
    query_id: str | None
    batch_id: int | None
    # Fail when a batch of `query_id` was written before with other rows.
    check_repeats: bool = True
    # Make all rows readable together. Without it each piece is readable when it is written, at least once.
    atomic: bool = True
    # Where rows go that cannot become records; None to fail the write.
    dead_letter_topic: str | None = None


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """Raises BadOption."""
    options = _Options(given, SOURCE_OPTIONS)
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name)]
    if not given:
        raise BadOption(
            "no options. Spark does not pass the options of CREATE TABLE to sources written in Python: use CREATE TEMPORARY "
            "VIEW ... USING topics OPTIONS (...)"
        )
    if len(chosen) != 1:
        raise BadOption("give exactly one of subscribe (names, comma between), subscribePattern and assign (JSON)")
    for bound in ("starting", "ending"):
        given_bounds = [
            name
            for name in (f"{bound}Offsets", f"{bound}Timestamp", f"{bound}OffsetsByTimestamp")
            if options.text(name)
        ]
        if len(given_bounds) > 1:
            raise BadOption(f"give {given_bounds[0]} or {given_bounds[1]}, not both")
    if options.word("onBadRecord", "fail", ("fail", "deadletter")) != "fail":
        raise BadOption(
            "onBadRecord=deadLetter is an option of the sink. To keep records that do not fit the schema, add a column "
            "_corrupt STRING to it and write the rows in which that column is not NULL to a topic."
        )
    assigned = _assigned(options.text("assign"))
    names = options.text("subscribe") or ""
    topics = tuple(assigned) or tuple([name.strip() for name in names.split(",") if name.strip()])
    if chosen == ["subscribe"] and not topics:
        raise BadOption("subscribe names no topic")
    return SourceOptions(
        servers=_servers(options),
        topics=topics,
        pattern=options.text("subscribePattern"),
        assigned=assigned,
        starting=_positions("startingOffsets", options.text("startingOffsets")),
        ending=_positions("endingOffsets", options.text("endingOffsets")),
        starting_times=_times("starting", options),
        ending_times=_times("ending", options),
        max_offsets=options.number("maxOffsetsPerTrigger", MAX_OFFSETS_PER_TRIGGER, low=1) or MAX_OFFSETS_PER_TRIGGER,
        min_offsets=options.number("minOffsetsPerTrigger", 0) or 0,
        max_trigger_delay_ms=options.duration_ms("maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        min_partitions=options.number("minPartitions", 0) or 0,
        max_task_seqs=options.number("maxRecordsPerPartition", None, low=1),
        on_data_loss=_on_data_loss(options),
        group=options.text("group"),
        queue_as_log=options.flag("queueAsLog", False),
        history=options.word("history", "live", ("live", "all")) == "all",
        payload=options.word("payload", "json", ("json", "variant")),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises BadOption."""
    options = _Options(given, SINK_OPTIONS)
    query_id, batch_id = options.text("queryId"), options.number("batchId", None)
    if (query_id is None) != (batch_id is None):
        raise BadOption(
            "queryId and batchId come together: a query id alone would take the first batch of a new checkpoint for a repeat"
        )
    atomic = options.flag("atomic", True)
    if not atomic and query_id is not None:
        raise BadOption("atomic=false writes at least once: leave out queryId and batchId, which write once")
    on_bad_record = options.word("onBadRecord", "fail", ("fail", "deadletter"))
    dead_letter_topic = options.text("deadLetterTopic")
    if on_bad_record == "deadletter" and dead_letter_topic is None:
        raise BadOption("onBadRecord=deadLetter needs deadLetterTopic")
    if on_bad_record == "fail" and dead_letter_topic is not None:
        raise BadOption("deadLetterTopic needs onBadRecord=deadLetter")
    return SinkOptions(
        server=_one_server(options),
        topic=options.text("topic"),
        query_id=query_id,
        batch_id=batch_id,
        check_repeats=options.flag("checkRepeats", True),
        atomic=atomic,
        dead_letter_topic=dead_letter_topic,
    )


class _Options:
    def __init__(self, given: Mapping[str, str], known: Mapping[str, Option]) -> None:
        by_lower = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in by_lower:
                self._values[by_lower[name.lower()]] = str(value)
            elif name.lower() not in _SPARK_OPTIONS:
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

    def duration_ms(self, name: str, default_ms: int) -> int:
        text = self.text(name)
        if text is None:
            return default_ms
        found = _DURATION.fullmatch(text.lower())
        if found is None or not found[1].isascii():
            raise BadOption(f"{name} must be a duration such as 500ms, 30s, 15m or 1h, not {text!r}")
        return int(found[1]) * _UNIT_MS[found[2]]

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


def _servers(options: _Options) -> tuple[ServerOptions, ...]:
    """One connection for each URL of `url`. `token` is one for all servers, or one for each in the same order."""
    urls = _list(options.text("url")) or [None]
    tokens = [options.text("token")] if len(urls) == 1 else _list(options.text("token")) or [None]
    repeated = {url for url in urls if urls.count(url) > 1}
    if repeated:
        raise BadOption(f"url names {min(map(str, repeated))} twice")
    if len(tokens) == 1:
        tokens *= len(urls)
    if len(tokens) != len(urls):
        raise BadOption(f"token must be one for all servers or one for each: {len(tokens)} tokens for {len(urls)} urls")
    retries = options.number("numRetries", NUM_RETRIES, low=0) or 0
    timeout_ms = options.number("requestTimeoutMs", 60_000, low=1) or 60_000
    transport = options.word("transport", "arrow", ("arrow", "json"))
    return tuple(
        [ServerOptions(url, token, retries, timeout_ms, transport) for url, token in zip(urls, tokens, strict=True)]
    )


def _one_server(options: _Options) -> ServerOptions:
    servers = _servers(options)
    if len(servers) != 1:
        raise BadOption(f"the sink writes to one server, but url names {len(servers)}. Use one write for each server.")
    return servers[0]


def _list(text: str | None) -> list[str | None]:
    """The parts of a list with commas, without empty parts."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


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
    each = _by_partition(name, text, EARLIEST, 'earliest, latest, or JSON such as {"orders": {"0": 15}}')
    if name == "endingOffsets" and any([EARLIEST in partitions.values() for partitions in each.values()]):
        raise BadOption("endingOffsets cannot be earliest")
    return Positions(None, each)


def _times(bound: str, options: _Options) -> Positions | None:
    """Where a read starts or ends, by the time of the records."""
    everywhere = options.number(f"{bound}Timestamp", None)
    if everywhere is not None:
        return Positions(everywhere, {})
    name = f"{bound}OffsetsByTimestamp"
    text = options.text(name)
    if text is None:
        return None
    return Positions(None, _by_partition(name, text, 0, 'JSON such as {"orders": {"0": 1700000000000}}'))


def _by_partition(name: str, text: str, low: int, expected: str) -> dict[str, dict[int, int]]:
    """A number for each partition that is named: `{"topic": {"0": 15}}`. Raises BadOption with what is expected."""
    decoded = _json(name, text)
    problem = BadOption(f"{name} must be {expected}")
    if not isinstance(decoded, dict) or not decoded:
        raise problem
    each: dict[str, dict[int, int]] = {}
    for topic, partitions in decoded.items():
        if not isinstance(partitions, dict):
            raise problem
        each[topic] = {}
        for number, value in partitions.items():
            if (
                not (number.isascii() and number.isdigit())
                or not isinstance(value, int)
                or isinstance(value, bool)
                or value < low
            ):
                raise problem
            each[topic][int(number)] = value
    return each


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadOption(f"{name} is not JSON: {error}") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
