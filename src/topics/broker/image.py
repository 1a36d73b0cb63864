"""Images: the state as a snapshot keeps it.

Each topic is taken by itself, between two turns of the loop, so a snapshot of many topics never stops the server. That
is sound because every fact written since the snapshot began is replayed over it, and replaying a fact that an image
already holds changes nothing.

What belongs to no single topic is kept in sections of its own, each with a kind: see `State.sections`.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from topics.broker.sealed import SealedSegment
from topics.broker.state import State
from topics.engine.dedupe import KeptWrite
from topics.engine.group import Group, Position
from topics.engine.lease import LeaseImage
from topics.engine.partition import Partition
from topics.engine.segment import HotSegment
from topics.engine.topic import Topic
from topics.model.archive import Archive
from topics.model.config import TopicConfig
from topics.model.facts import Lost, SegmentInfo
from topics.model.page import Page
from topics.model.route import Route
from topics.storage.segment import segment_base


class HeaderImage(Struct):
    """What holds for the snapshot as a whole.

    `cut` is the first log file per shard that must be replayed over it, `lsns` the last lsn of each shard before that
    file. `shards` are those that were written then: the file at their cut must be there. `clean`: the server stopped
    after this snapshot and wrote nothing more.
    """

    cut: dict[int, int]
    next_lsn: int
    next_topic_id: int
    ts: int
    clean: bool
    routes_version: int = 0
    lsns: dict[int, int] = {}
    shards: list[int] = []
    tables_version: int = 0
    archives_version: int = 0


class HotImage(Struct, array_like=True):
    first_seq: int
    low: int
    pages: list[Page]
    flags: bytes | None


class PartitionImage(Struct):
    head_seq: int
    last_ts: int
    evict_floor: int
    evict_reasons: int
    delete_below: int
    holes: list[Lost]
    sealed: list[SegmentInfo]
    hot: list[HotImage]
    leases: LeaseImage | None = None


class TopicImage(Struct, tag="topic"):
    topic_id: int
    name: str
    config: TopicConfig
    created_ts: int
    last_write_ts: int | None
    last_read_ts: int | None
    partitions: list[PartitionImage]
    keys: list[tuple[str, KeptWrite]] = []
    alias: str | None = None
    routes: list[Route] = []
    # Per consumer group and partition: start, acked, ts.
    groups: dict[str, dict[int, tuple[int, int, int]]] = {}
    archive: Archive | None = None


class SectionImage(Struct, tag="section"):
    """Something kept beside the topics. What the body says is known to whoever keeps that kind."""

    kind: str
    body: bytes


def _late(encode: Callable[[], bytes]) -> bytes:
    """A body that was left to be encoded with its image."""
    return encode()


encode_image = msgspec.msgpack.Encoder(enc_hook=_late).encode
decode_header = msgspec.msgpack.Decoder(HeaderImage).decode
decode_section = msgspec.msgpack.Decoder(TopicImage | SectionImage).decode


def section_images(state: State) -> list[SectionImage]:
    """All that is kept beside the topics, as it is now. Encoding it may be left to another thread."""
    return [SectionImage(kind, section.capture()) for kind, section in state.sections.items()]  # type: ignore[arg-type]


def restore_section(state: State, image: SectionImage) -> None:
    """Raises KeyError for a kind nobody keeps. Topics are restored before."""
    state.sections[image.kind].restore(image.body)


def named_segments(images: Iterable[TopicImage | SectionImage]) -> set[str]:
    """The sealed segments that a snapshot of these images cannot do without."""
    return {
        segment_base(image.topic_id, number, info.first_seq)
        for image in images
        if isinstance(image, TopicImage)
        for number, partition in enumerate(image.partitions)
        for info in partition.sealed
    }


def topic_image(topic: Topic, now_ms: int) -> TopicImage:
    """The topic as it is now. Shares its pages, which never change; encoding it may be left to another thread."""
    topic.dedupe.expire(now_ms, topic.config.idempotency_window_ms)
    keeps_records = topic.config.durability != "ephemeral"
    return TopicImage(
        topic.id,
        topic.name,
        topic.config,
        topic.created_ts,
        topic.last_write_ts,
        topic.last_read_ts,
        [_partition_image(partition, keeps_records, topic.config.leases_durable) for partition in topic.partitions],
        topic.dedupe.all() if keeps_records else [],
        topic.alias,
        list(topic.routes),
        {name: _positions(group) for name, group in topic.groups.items() if group.positions},
        topic.archive,
    )


def restore_topic(state: State, image: TopicImage) -> Topic:
    topic = state.new_topic(image.topic_id, image.name, image.config, len(image.partitions), image.created_ts)
    topic.last_write_ts = image.last_write_ts
    topic.last_read_ts = image.last_read_ts
    for key, write in image.keys:
        topic.dedupe.keep(key, write)
    for partition, each in zip(topic.partitions, image.partitions, strict=True):
        _restore_partition(state, topic.id, partition, each)
    topic.alias = image.alias
    topic.routes = image.routes
    topic.archive = image.archive
    for name, positions in image.groups.items():
        group = topic.groups[name] = Group(name)
        group.positions = {number: Position(*position) for number, position in positions.items()}
    state.add(topic)
    return topic


def _positions(group: Group) -> dict[int, tuple[int, int, int]]:
    return {number: (each.start, each.acked, each.ts) for number, each in group.positions.items()}


def _partition_image(partition: Partition, keeps_records: bool, leases_durable: bool) -> PartitionImage:
    sealed = [segment.info for segment in partition.segments if isinstance(segment, SealedSegment)]
    hot = [_hot_image(segment) for segment in partition.segments if isinstance(segment, HotSegment) and segment.live]
    leases = partition.leases
    return PartitionImage(
        partition.head_seq,
        partition.last_ts,
        partition.evict_floor,
        partition.evict_reasons,
        partition.delete_below,
        list(partition.holes),
        sealed if keeps_records else [],
        hot if keeps_records else [],
        None if leases is None else leases.image(durable=leases_durable),
    )


def _hot_image(segment: HotSegment) -> HotImage:
    pages, flags = segment.image()
    return HotImage(pages[0].first_seq, segment.low, pages, flags)


def _restore_partition(state: State, topic_id: int, partition: Partition, image: PartitionImage) -> None:
    partition.head_seq = image.head_seq
    partition.next_seq = image.head_seq + 1
    partition.last_ts = image.last_ts
    partition.evict_floor = image.evict_floor
    partition.evict_reasons = image.evict_reasons
    partition.delete_below = image.delete_below
    partition.holes = list(image.holes)
    segments: list[SealedSegment | HotSegment] = []
    for info in image.sealed:
        sealed = SealedSegment(state.shelf, topic_id, partition.number, info)
        sealed.restore_flags()
        segments.append(sealed)
    for each in image.hot:
        segments.append(_restore_hot(each))
    segments.sort(key=lambda segment: segment.first_seq)
    for segment in segments[:-1]:
        if isinstance(segment, HotSegment):
            segment.close()
    for segment in segments:
        partition.restore_segment(segment)
    if partition.leases is not None and image.leases is not None:
        partition.leases.restore(image.leases)


def _restore_hot(image: HotImage) -> HotSegment:
    segment = HotSegment(image.first_seq)
    for page in image.pages:
        segment.append(page)
    # Flags first: a record below `low` whose flag is lost would come back when the segment is sealed.
    if image.flags is not None:
        segment.kill([image.first_seq + position for position, gone in enumerate(image.flags) if gone])
    segment.kill_below(image.low)
    return segment
