"""Compare the live state of a broker with the state replayed from its log.

The log may hold commits that are not applied yet, because they wait for a sync, and the live state may hold facts that are
not written yet, because evictions and leases are applied when they are decided (`broker/log/apply.py`). `compare` allows for
exactly these: it leaves frames of waiting commits out of the replay, and applies facts that are already in effect to the
replayed state. So it can be called after every turn of the loop, whatever is in flight.
"""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import msgspec

from topics.broker.broker import Broker
from topics.broker.durability.recovery import replay
from topics.broker.durability.snapshot_image import section_images
from topics.broker.log.apply import apply
from topics.broker.log.commit import Commit, Note
from topics.broker.state import State
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.facts import Leased
from topics.model.records.page import column, page_datas, page_times
from topics.model.storage_settings import StorageSettings
from topics.segments.packed_segments import PackedSegment
from topics.segments.sealed_segments import SealedSegment
from topics.storage.log.frame import Frame
from topics.storage.log.wal import WalReader
from topics.storage.snapshots.snapshot_format import decode_section, encode_image
from topics.testing.disk.fake_disk import FakeDisk

Description = dict[str, Any]


def compare(broker: Broker, disk: FakeDisk, settings: StorageSettings, now_ms: int, when: str = "") -> Description:
    """Raise AssertionError unless the live state equals the replayed one. Return the description of the live state.

    `now_ms`: the latest time that the broker has seen. Leases and delays that have ended by then are described as ended: the
    live state ends them when it next looks at them.
    """
    live = describe(broker.state, now_ms)
    if not broker.committer.read_only:
        # After a failed sync the log may hold commits that were refused.
        replayed = describe(replayed_state(broker, disk, settings), now_ms)
        _allow_for_numbers_in_flight(live, replayed)
        _allow_for_unlogged_records(live, replayed)
        if broker.committer.write_failures_total:
            # An extension of a lease stays in effect when its write fails; a restart ends the lease at the earlier deadline.
            for description in (live, replayed):
                _remove_leases(description)
        found = [*differences(replayed, live)]
        assert not found, f"the replayed state differs from the live one {when}: {'; '.join(found)}"
    return live


def differences(replayed: Any, live: Any, path: str = "") -> Iterator[str]:
    """The innermost values that differ."""
    if isinstance(replayed, dict) and isinstance(live, dict):
        for key in sorted(replayed.keys() | live.keys()):
            yield from differences(replayed.get(key, "absent"), live.get(key, "absent"), f"{path}/{key}")
    elif isinstance(replayed, list) and isinstance(live, list) and len(replayed) == len(live):
        for index, pair in enumerate(zip(replayed, live, strict=True)):
            yield from differences(*pair, f"{path}/{index}")
    elif replayed != live:
        yield f"{path}: replayed {replayed}, live {live}"


def replayed_state(broker: Broker, disk: FakeDisk, settings: StorageSettings) -> State:
    """Replay the log without the commits that are not applied, and with the facts that are in effect already."""
    committer = broker.committer
    pending = [*committer.unwritten_notes, *committer.pending]
    unapplied = {commit.lsn for commit in pending if not _is_in_effect(commit)}
    frames = WalReader.frames

    def applied_frames(reader: WalReader, *arguments: Any) -> Iterator[Frame]:
        return (frame for frame in frames(reader, *arguments) if frame.lsn not in unapplied)

    with patch.object(WalReader, "frames", applied_frames):
        state = replay(disk.after_kill(), settings).state
    state.replaying = True
    for commit in pending:
        if commit.lsn not in unapplied:
            for fact in commit.facts:
                apply(state, fact)
    state.replaying = False
    return state


def _is_in_effect(commit: Commit) -> bool:
    """Whether the facts of the commit were applied when they were decided."""
    return isinstance(commit, Note) or (bool(commit.facts) and all([isinstance(fact, Leased) for fact in commit.facts]))


def _allow_for_numbers_in_flight(live: Description, replayed: Description) -> None:
    """Numbers are assigned before the fact that uses them is logged, and are not assigned again if that fails."""
    for name in ("next_topic_id", "next_pack"):
        assert replayed[name] <= live[name]
        replayed[name] = live[name]


def _allow_for_unlogged_records(live: Description, replayed: Description) -> None:
    """A snapshot does not say which records were written while their topic was ephemeral: compare its heads only."""
    for name, topic in replayed["topics"].items():
        if "heads" in live["topics"].get(name, ()) and "partitions" in topic:
            heads = [each["positions"][0] for each in topic["partitions"]]
            replayed["topics"][name] = {"id": topic["id"], "heads": heads}


def _remove_leases(description: Description) -> None:
    for topic in description["topics"].values():
        for partition in topic.get("partitions", []):
            partition.pop("leases", None)


def describe(state: State, now_ms: int) -> Description:
    """Everything that must survive a restart, in a form that can be compared and written as JSON."""
    versions = state.versions
    sections = {}
    for image in section_images(state):
        decoded = decode_section(encode_image(image))
        sections[decoded.kind] = msgspec.to_builtins(msgspec.msgpack.decode(decoded.body))  # type: ignore[union-attr]
    return {
        "topics": {topic.name: _topic(topic, now_ms) for topic in state.by_id.values()},
        "aliases": {alias: topic.name for alias, topic in state.aliases.items()},
        "routes": {f"{table} {op}": len(routes) for (table, op), routes in state.routes.items()},
        "archived": sorted(state.archived),
        "versions": [versions.routes.now, versions.tables.now, versions.archives.now],
        "next_topic_id": state.next_topic_id,
        "next_pack": state.next_pack,
        "replaced_segments": sorted(state.replaced_segments),
        "sections": sections,
    }


def _topic(topic: Topic, now_ms: int) -> Description:
    if topic.config.durability == "ephemeral" or any([each.unlogged_below for each in topic.partitions]):
        # Its records do not survive, nor those that were written while it was ephemeral.
        return {"id": topic.id, "heads": [each.head_seq for each in topic.partitions]}
    return {
        "id": topic.id,
        "config": msgspec.to_builtins(topic.config),
        "created": topic.created_ts,
        "written": topic.last_write_ts,
        "routes": msgspec.to_builtins(topic.routes),
        "archive": msgspec.to_builtins(topic.archive),
        "keys": msgspec.to_builtins(topic.dedupe.all()),
        "groups": {name: msgspec.to_builtins(group.positions) for name, group in topic.groups.items()},
        "partitions": [_partition(each, now_ms, durable=topic.config.leases_durable) for each in topic.partitions],
    }


def _partition(partition: Partition, now_ms: int, *, durable: bool) -> Description:
    segments = [each for each in partition.segments if isinstance(each, SealedSegment | PackedSegment)]
    result = {
        "positions": [partition.head_seq, partition.evict_floor, partition.evict_reasons, partition.delete_below],
        "holes": [[hole.first, hole.last, hole.reasons] for hole in partition.holes],
        "counts": [partition.count, partition.bytes],
        "segments": [[segment.base, segment.first_seq, segment.last_seq] for segment in segments],
        "records": [*_records(partition)],
    }
    if partition.leases is not None:
        result["leases"] = [partition.leases.dead_lettered, _jobs(partition, now_ms, durable=durable)]
    return result


def _jobs(partition: Partition, now_ms: int, *, durable: bool) -> dict[str, list[Any]]:
    """The jobs that are leased, delayed or were delivered before, as of `now_ms`."""
    assert partition.leases is not None
    image = partition.leases.image(durable=durable)
    jobs: dict[int, list[Any]] = {seq: ["ready", count] for seq, count in image.returned}
    for seq, due, count in image.delayed:
        jobs[seq] = ["delayed", count, due] if due > now_ms else ["ready", count]
    for each in image.deliveries:
        for seq, count in zip(each.seqs, each.deliveries, strict=True):
            lease = ["leased", count, each.node, each.token.decode(), each.deadline]
            jobs[seq] = lease if each.deadline >= now_ms else ["ready", count]
    return {str(seq): job for seq, job in sorted(jobs.items()) if job != ["ready", 0] and partition.is_live(seq)}


def _records(partition: Partition) -> Iterator[list[Any]]:
    seq = partition.next_live(1)
    while seq is not None:
        page = partition.page_at(seq)
        at = seq - page.first_seq
        texts = [page_datas(page), *[column(each, page.count) for each in (page.metas, page.nodes, page.tags)]]
        yield [seq, page_times(page)[at], *[each[at].decode() for each in texts]]
        seq = partition.next_live(seq + 1)
