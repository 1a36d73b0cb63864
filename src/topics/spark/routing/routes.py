"""Which routes a job runs, where it starts to read, and when they have changed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from topics.client import Client
from topics.client.values import RouteInfo, TopicInfo
from topics.model.errors import NotFound

EARLIEST = "Earliest"


def own_routes(routes: Iterable[RouteInfo], version: int | None) -> list[RouteInfo]:
    """The routes that one job of a table runs.

    With a version: that route alone, which starts with the earliest change. Without: all that start at their creation.
    """
    return [route for route in routes if (route.version if route.start == EARLIEST else None) == version]


def declared_columns(client: Client, table: str) -> dict[str, str]:
    """The columns of a table that is registered with their types; empty for any other."""
    try:
        return client.table(table).columns
    except NotFound:
        return {}


def signature(routes: Sequence[RouteInfo], columns: Mapping[str, str]) -> str:
    """A text that differs when a query with another plan is needed."""
    encoded = msgspec.json.encode([list(routes), sorted(columns.items())])
    return hashlib.sha256(encoded).hexdigest()[:32]


def starting_offsets(info: TopicInfo, routes: Sequence[RouteInfo]) -> str:
    """Where a new job of these routes starts to read the change topic, as the source's option.

    Without routes that is the head: routes that are created later start behind it.
    """
    heads = {each.partition: each.head_seq + 1 for each in info.partitions} or {0: info.head_seq + 1}
    for route in routes:
        position = route.starts_at
        if position is None or position.epoch != info.epoch:
            return "earliest"
        heads = {number: min(seq, position.first(number)) for number, seq in heads.items()}
    return json.dumps({info.topic: {str(number): seq for number, seq in heads.items()}})
