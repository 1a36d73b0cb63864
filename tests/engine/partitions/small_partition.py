"""Partitions for tests: append, delete, evict and read with few arguments."""

import json
from typing import Any

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.partitions.reading import Read, read_records
from topics.engine.partitions.render import USUAL, View
from topics.engine.partitions.selection import Selection
from topics.model.config import TopicConfig
from topics.model.records.match import TagMatch
from topics.model.records.page import make_page
from topics.model.steps import finish

START_MS = 1_700_000_000_000
MUCH = 1 << 40


def new_partition(cache_bytes: int = 1 << 20) -> Partition:
    return Partition(1, 0, Cache(cache_bytes), Totals())


def append(
    partition: Partition, count: int = 1, ts: int = START_MS, tag: str | None = None, node: str | None = None
) -> None:
    first = partition.next_seq
    data = b"\0".join([b"%d" % seq for seq in range(first, first + count)])
    tags = None if tag is None else b"\0".join([json.dumps(tag).encode()] * count)
    nodes = None if node is None else b"\0".join([json.dumps(node).encode()] * count)
    partition.apply_append(make_page(first, count, ts, data, None, nodes, tags))


def evict(partition: Partition, now_ms: int = START_MS, **config: Any) -> None:
    fact = partition.decide_eviction(TopicConfig(**config), now_ms)
    if fact is not None:
        partition.apply_evicted(fact)


def delete_tag(partition: Partition, tag: str, before_seq: int | None = None) -> int:
    return partition.apply_selection(select(partition, tag, before_seq))


def select(partition: Partition, tag: str, before_seq: int | None = None) -> Selection:
    bound = partition.head_seq + 1
    return finish(partition.select(TagMatch(tag, False), bound if before_seq is None else min(bound, before_seq)))


def delete_below(partition: Partition, before_seq: int) -> int:
    return partition.apply_deleted_below(partition.decide_delete_below(before_seq))


def read(partition: Partition, from_seq: int = 0, limit: int = 1000, budget: int = MUCH, view: View = USUAL) -> Read:
    return read_records(partition, from_seq, limit, budget, view)


def seqs(found: Read) -> list[int]:
    records = json.loads(b"[" + found.records + b"]")
    assert len(records) == found.count
    assert found.tombstone is None or found.tombstone.gap_from <= found.tombstone.gap_to
    assert all([record["data"] == record["$seq"] for record in records])
    return [record["$seq"] for record in records]


# Appending
