"""Planning on the driver: which topics exist, where each starts and ends, and how a batch is bounded.

An offset is a dict, `{topic: {"epoch": e, "0": seq, "1": seq}}`: the next seq to read in each partition. A topic of the
second or a later server of the option `url` has its index, `"server": 1`; without it the topic is on the first one. Spark
keeps offsets in the checkpoint, so later versions may add to their form but not change it.

A query reads each topic from one server. A topic that exists on two of them is refused.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.client import Client, TopicDescription
from topics.spark.connector.options import EARLIEST, LATEST, BadOption, Positions, SourceOptions
from topics.spark.connector.ranges import SeqRange
from topics.spark.connector.reading import DataLoss, recreated

if TYPE_CHECKING:
    from topics.spark.connector.archive_reader import Histories

Offset = dict[str, dict[str, int]]


class PartitionState(Struct, frozen=True):
    topic: str
    partition: int
    epoch: int
    earliest: int
    head: int
    # Index of the server in the option `url`.
    server: int = 0


def partition_states(
    clients: Sequence[Client], options: SourceOptions, known: Offset | None = None
) -> list[PartitionState]:
    """Return the present partitions of this query on all its servers.

    `known` is the offset of a running query, or {} when the caller does not have it: a topic that does not exist was
    then deleted and is left out, and `check_deleted` handles it. Raises BadOption for a topic that does not
    exist when a query begins, for a topic that two servers have, and for a queue.
    """
    found: list[PartitionState] = []
    servers: dict[str, int] = {}
    for server, client in enumerate(clients):
        for name, description in client.describe(_names(client, options)).items():
            if description is None:
                continue
            if name in servers:
                raise BadOption(
                    f'topic "{name}" exists on {clients[servers[name]].url} and on {client.url}: one query reads it from '
                    "one server only"
                )
            servers[name] = server
            found += _described(name, description, options, server)
    missing = [name for name in options.topics if name not in servers]
    if missing and known is None:
        raise BadOption(f'topic "{missing[0]}" does not exist on {" or ".join([client.url for client in clients])}')
    return found


def _described(name: str, description: TopicDescription, options: SourceOptions, server: int) -> list[PartitionState]:
    if description.type == "queue" and not options.queue_as_log:
        if options.pattern is not None:
            return []
        raise BadOption(
            f'topic "{name}" is a queue: reading it here would not take its jobs. Claim them with a worker, or set '
            "queueAsLog=true to read the queue as a log."
        )
    return _partitions(name, description, options.assigned.get(name), server)


def check_deleted(options: SourceOptions, start: Offset, states: list[PartitionState]) -> None:
    """Raise DataLoss, unless the options allow it, for a topic that was read before and does not exist any more.

    How far its head had come is not known, so unread records may be lost with it.
    """
    existing = {state.topic for state in states}
    deleted = sorted([topic for topic in start if topic not in existing])
    if deleted and options.on_data_loss == "fail":
        names = ", ".join([f'"{topic}"' for topic in deleted])
        raise DataLoss(
            f"topic {names}, which this query has read, was deleted or is not selected by its options any more: records "
            "that were not read are lost to it. Set onDataLoss to emit or ignore to go on without it."
        )


def first_offset(
    clients: Sequence[Client], options: SourceOptions, default: int, states: list[PartitionState]
) -> Offset:
    """Where a new query starts."""
    offset: Offset = {}
    histories = _histories(clients) if options.history else None
    _check_positions("startingOffsets", options.starting, states)
    _check_named("startingOffsetsByTimestamp", options.starting_times, states)
    for state in states:
        offset.setdefault(state.topic, topic_entry(state))[str(state.partition)] = _start(
            clients[state.server], options, state, default, histories
        )
    return offset


def _histories(clients: Sequence[Client]) -> "Histories":
    # Imported here: the module loads much that queries without history do not need.
    from topics.spark.connector.archive_reader import Histories

    return Histories(clients)


def last_offset(clients: Sequence[Client], options: SourceOptions, states: list[PartitionState]) -> Offset:
    """Where a batch query ends: after the head, or where the options say."""
    offset: Offset = {}
    histories = _histories(clients) if options.history else None
    _check_positions("endingOffsets", options.ending, states)
    _check_named("endingOffsetsByTimestamp", options.ending_times, states)
    for state in states:
        ts_ms = None if options.ending_times is None else options.ending_times.of(state.topic, state.partition)
        seq = _position(options.ending, state, LATEST)
        if ts_ms is not None:
            seq = first_at_or_after(clients[state.server], state, ts_ms, histories)
        elif seq == LATEST:
            seq = state.head + 1
        offset.setdefault(state.topic, topic_entry(state))[str(state.partition)] = seq
    return offset


def _check_positions(option: str, positions: Positions | None, states: list[PartitionState]) -> None:
    """Raise BadOption for a topic or partition that is not read, and for a seq beyond the head."""
    _check_named(option, positions, states)
    for state in states:
        seq = LATEST if positions is None else positions.each.get(state.topic, {}).get(state.partition, LATEST)
        if seq > state.head + 1:
            raise BadOption(
                f'{option}: {seq} is beyond the end of topic "{state.topic}" partition {state.partition}, '
                f"whose next seq is {state.head + 1}"
            )


def _check_named(option: str, positions: Positions | None, states: list[PartitionState]) -> None:
    """Raise BadOption for a topic or partition that is not read."""
    read: dict[str, set[int]] = {}
    for state in states:
        read.setdefault(state.topic, set()).add(state.partition)
    for topic, partitions in (positions.each if positions is not None else {}).items():
        if topic not in read:
            raise BadOption(f'{option}: topic "{topic}" is not read')
        unknown = sorted(set(partitions) - read[topic])
        if unknown:
            raise BadOption(f'{option}: topic "{topic}" has no partition {unknown[0]}')


def topic_entry(state: PartitionState) -> dict[str, int]:
    """The part of an offset that identifies the topic, without its partitions."""
    return {"epoch": state.epoch, "server": state.server} if state.server else {"epoch": state.epoch}


def next_seqs(partitions: dict[str, int]) -> dict[int, int]:
    """The next seq of each partition of a topic's entry in an offset."""
    return {int(number): seq for number, seq in partitions.items() if number.isdigit()}


def ranges_between(start: Offset, end: Offset) -> list[SeqRange]:
    """Return the ranges between two offsets. A partition that only the end contains is new and is read from its beginning."""
    result = []
    for topic, partitions in end.items():
        began = start.get(topic, {})
        if "epoch" in began and began["epoch"] != partitions["epoch"]:
            raise recreated(topic)
        for number, last in next_seqs(partitions).items():
            first = began.get(str(number), 1)
            if first < last:
                server = partitions.get("server", 0)
                result.append(SeqRange(topic, number, partitions["epoch"], first, last - 1, server))
    return result


def available(start: Offset, states: list[PartitionState]) -> dict[tuple[str, int], int]:
    """How many seqs each partition has beyond the offset.

    Raises TopicRecreated, DataLoss where a partition ends before the offset, and BadOption where `url` has another order.
    """
    result = {}
    for state in states:
        began = start.get(state.topic, {})
        if began and began.get("server", 0) != state.server:
            raise BadOption(
                f'topic "{state.topic}" was read from server {began.get("server", 0) + 1} of url and is now on server '
                f"{state.server + 1}: keep the order of the servers, and add new ones at the end"
            )
        if "epoch" in began and began["epoch"] != state.epoch:
            raise recreated(state.topic)
        at = began.get(str(state.partition), 1)
        if at > state.head + 1:
            raise DataLoss(
                f'topic "{state.topic}" partition {state.partition} ends at {state.head}, but this query has read up to '
                f"{at - 1}: the server has lost its newest records. Start the query with a new checkpoint."
            )
        result[state.topic, state.partition] = state.head + 1 - at
    return result


def advanced(start: Offset, states: list[PartitionState], taken: dict[tuple[str, int], int]) -> Offset:
    """The offset after taking these numbers of seqs from the partitions.

    A topic that was deleted is not in it: the loss was accepted, and a later start with onDataLoss=fail does not fail again.
    """
    existing = {state.topic for state in states}
    offset: Offset = {topic: dict(partitions) for topic, partitions in start.items() if topic in existing}
    for state in states:
        partitions = offset.setdefault(state.topic, topic_entry(state))
        number = str(state.partition)
        partitions[number] = partitions.get(number, 1) + taken.get((state.topic, state.partition), 0)
    return offset


def _names(client: Client, options: SourceOptions) -> list[str]:
    if options.pattern is None:
        return list(options.topics)
    try:
        pattern = re.compile(options.pattern)
    except re.error as error:
        raise BadOption(f"subscribePattern is not a regular expression: {error}") from None
    return [topic.topic for topic in client.topics() if pattern.fullmatch(topic.topic)]


def _partitions(
    topic: str, description: TopicDescription, assigned: tuple[int, ...] | None, server: int
) -> list[PartitionState]:
    states = [
        PartitionState(topic, number, description.epoch, description.earliest[number], head, server)
        for number, head in sorted(description.heads.items())
    ]
    if assigned is None:
        return states
    missing = set(assigned) - {state.partition for state in states}
    if missing:
        raise BadOption(f'topic "{topic}" has no partition {min(missing)}')
    return [state for state in states if state.partition in assigned]


def _start(
    client: Client, options: SourceOptions, state: PartitionState, default: int, histories: "Histories | None"
) -> int:
    ts_ms = None if options.starting_times is None else options.starting_times.of(state.topic, state.partition)
    if ts_ms is not None:
        return first_at_or_after(client, state, ts_ms, histories)
    seq = _position(options.starting, state, default)
    if seq == EARLIEST:
        if histories is None:
            return state.earliest
        return histories.earliest(state.topic, state.epoch, state.partition, state.earliest, state.server)
    return state.head + 1 if seq == LATEST else max(1, seq)


def first_at_or_after(client: Client, state: PartitionState, ts_ms: int, histories: "Histories | None") -> int:
    """The seq of the first record of that time or later, in the archive or live; after the head when there is none."""
    page: Any = client.diff(state.topic, 0, limit=1, from_ts=ts_ms, partition=state.partition, include_meta=False)
    live = min(page.records[0].seq, state.head + 1) if page.records else state.head + 1
    if histories is None:
        return live
    return histories.first_at_or_after(state.topic, state.epoch, state.partition, ts_ms, live, state.server)


def has_lost(client: Client, topic: str, partition: int, first: int, floor: int) -> bool:
    """Whether records from `first` up to `floor`, the first that there is, were lost: records deleted on purpose were not."""
    if first >= floor:
        return False
    page: Any = client.diff(topic, first - 1, limit=1, partition=partition, include_meta=False)
    return page.tombstone is not None


def _position(positions: Positions | None, state: PartitionState, default: int) -> int:
    found = None if positions is None else positions.of(state.topic, state.partition)
    return default if found is None else found
