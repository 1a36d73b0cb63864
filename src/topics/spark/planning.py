"""Planning on the driver: which topics there are, where each begins and ends, and how a batch is bounded.

An offset is a small dict, `{topic: {"epoch": e, "0": seq, "1": seq}}`: the next seq to read in each partition. It is what
Spark keeps in the checkpoint, so its shape only ever grows.
"""

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.client import Client, TopicInfo
from topics.model.errors import NotFound
from topics.spark.options import EARLIEST, LATEST, BadOption, SourceOptions
from topics.spark.ranges import SeqRange
from topics.spark.reading import DataLoss, recreated

if TYPE_CHECKING:
    from topics.spark.histories import Histories

Offset = dict[str, dict[str, int]]


class PartitionState(Struct, frozen=True):
    topic: str
    partition: int
    epoch: int
    earliest: int
    head: int


def look(client: Client, options: SourceOptions) -> list[PartitionState]:
    """The partitions this query is about, as they are now. Raises BadOption for topics that cannot be read."""
    found: list[PartitionState] = []
    for name in _names(client, options):
        try:
            info = client.info(name, touch=False)
        except NotFound:
            raise BadOption(f'topic "{name}" does not exist on {client.url}') from None
        if info.type == "queue" and not options.queue_as_log:
            raise BadOption(
                f'topic "{name}" is a queue: reading it here would not take its jobs. Claim them with a worker, or set '
                "queueAsLog=true to read the queue as the log it stands on."
            )
        found += _partitions(info, options.assigned.get(name))
    return found


def first_offset(client: Client, options: SourceOptions, default: int) -> Offset:
    """Where a new query begins."""
    offset: Offset = {}
    histories = _histories(client) if options.history else None
    for state in look(client, options):
        offset.setdefault(state.topic, {"epoch": state.epoch})[str(state.partition)] = _start(
            client, options, state, default, histories
        )
    return offset


def _histories(client: Client) -> "Histories":
    # Only here, as it brings much that no other query needs.
    from topics.spark.histories import Histories

    return Histories(client)


def last_offset(client: Client, options: SourceOptions) -> Offset:
    """Where a batch query ends: behind the head, or where it was told to."""
    offset: Offset = {}
    for state in look(client, options):
        seq = _position(options.ending, state, LATEST)
        offset.setdefault(state.topic, {"epoch": state.epoch})[str(state.partition)] = (
            state.head + 1 if seq == LATEST else min(seq, state.head + 1)
        )
    return offset


def ranges_between(start: Offset, end: Offset) -> list[SeqRange]:
    """What lies between two offsets. A partition that only the end knows is new and is read from its beginning."""
    result = []
    for topic, partitions in end.items():
        began = start.get(topic, {})
        if "epoch" in began and began["epoch"] != partitions["epoch"]:
            raise recreated(topic)
        for number, last in partitions.items():
            if number != "epoch":
                first = began.get(number, 1)
                if first < last:
                    result.append(SeqRange(topic, int(number), partitions["epoch"], first, last - 1))
    return result


def available(start: Offset, states: list[PartitionState]) -> dict[tuple[str, int], int]:
    """How many seqs each partition has beyond the offset.

    Raises TopicRecreated, and DataLoss where a partition ends before the offset.
    """
    result = {}
    for state in states:
        began = start.get(state.topic, {})
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


def moved(start: Offset, states: list[PartitionState], taken: dict[tuple[str, int], int]) -> Offset:
    """The offset after taking so many seqs of each partition."""
    offset: Offset = {topic: dict(partitions) for topic, partitions in start.items()}
    for state in states:
        partitions = offset.setdefault(state.topic, {"epoch": state.epoch})
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
    names = [topic.topic for topic in client.topics() if pattern.fullmatch(topic.topic)]
    return [name for name in names if options.queue_as_log or client.info(name, touch=False).type != "queue"]


def _partitions(info: TopicInfo, assigned: tuple[int, ...] | None) -> list[PartitionState]:
    states = [
        PartitionState(info.topic, each.partition, info.epoch, each.earliest_seq, each.head_seq)
        for each in info.partitions
    ] or [PartitionState(info.topic, 0, info.epoch, info.earliest_seq, info.head_seq)]
    if assigned is None:
        return states
    missing = set(assigned) - {state.partition for state in states}
    if missing:
        raise BadOption(f'topic "{info.topic}" has no partition {min(missing)}')
    return [state for state in states if state.partition in assigned]


def _start(
    client: Client, options: SourceOptions, state: PartitionState, default: int, histories: "Histories | None"
) -> int:
    if options.starting is None and options.starting_timestamp is not None:
        page: Any = client.diff(
            state.topic, 0, limit=1, from_ts=options.starting_timestamp, partition=state.partition, include_meta=False
        )
        live = page.records[0].seq if page.records else state.head + 1
        if histories is None:
            return live
        place = (state.topic, state.epoch, state.partition)
        return histories.first_at_or_after(*place, options.starting_timestamp, live)
    seq = _position(options.starting, state, default)
    if seq == EARLIEST:
        if histories is None:
            return state.earliest
        return histories.earliest(state.topic, state.epoch, state.partition, state.earliest)
    return state.head + 1 if seq == LATEST else max(1, seq)


def _position(positions: Any, state: PartitionState, default: int) -> int:
    if positions is None:
        return default
    if positions.everywhere is not None:
        return int(positions.everywhere)
    return int(positions.each.get(state.topic, {}).get(state.partition, default))
