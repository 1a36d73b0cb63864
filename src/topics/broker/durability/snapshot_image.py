"""Images: the state as a snapshot keeps it.

Each topic is taken by itself, between two turns of the loop, so a snapshot of many topics never stops the server. That
is sound because every fact written since the snapshot began is replayed over it, and replaying a fact that an image
already holds changes nothing.

What belongs to no single topic is kept in sections of its own, each with a kind: see `State.sections`.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from topics.broker.segments.packed_segments import PackedSegment
from topics.broker.segments.sealed_segments import SealedSegment
from topics.broker.state import State
from topics.engine.dedupe import KeptWrite
from topics.engine.group import Group, Position
from topics.engine.lease import LeaseImage
from topics.engine.partition import Partition
from topics.engine.segment import HotSegment
from topics.engine.topic import Topic
from topics.model.archive import Archive
from topics.model.config import DEFAULT_CONFIG, TopicConfig
from topics.model.facts import Lost, PackedInfo, SegmentInfo
from topics.model.page import Page
from topics.model.route import Route
from topics.storage.pack import pack_base
from topics.storage.segment_format import segment_base


class HeaderImage(Struct):
    """What holds for the snapshot as a whole.

    `cut` is the first log file per shard that must be replayed over it, `lsns` the last lsn of each shard before that
    file. `shards` are those that were written at that time: the file at their cut must exist. Servers write shard 0; the
    others are left from earlier versions. `clean`: the server stopped after this snapshot and wrote nothing more.
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
    next_pack: int = 1
    # Segments and packs that the images name, as paths without suffix; None in a snapshot of version 1.
    named: list[str] | None = None


class HotImage(Struct, array_like=True):
    first_seq: int
    low: int
    pages: list[Page]
    flags: bytes | None


class PackedImage(Struct, array_like=True):
    """A packed segment and what has become of its records: the pack itself never changes."""

    info: PackedInfo
    low: int
    live: int
    live_bytes: int
    flags: bytes | None


# Fields that have their default are left out: most topics are small and plain, and there may be very many of them.


class PartitionImage(Struct, omit_defaults=True):
    head_seq: int
    last_ts: int
    evict_floor: int = 1
    evict_reasons: int = 0
    delete_below: int = 1
    holes: list[Lost] = []
    sealed: list[SegmentInfo] = []
    hot: list[HotImage] = []
    leases: LeaseImage | None = None
    packed: list[PackedImage] = []


class TopicImage(Struct, tag="topic", omit_defaults=True):
    topic_id: int
    name: str
    created_ts: int
    partitions: list[PartitionImage]
    config: TopicConfig = DEFAULT_CONFIG
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    keys: list[tuple[str, KeptWrite]] = []
    alias: str | None = None
    routes: list[Route] = []
    # Per consumer group and partition: start, acked, ts.
    groups: dict[str, dict[int, tuple[int, int, int]]] = {}
    archive: Archive | None = None


class SectionImage(Struct, tag="section"):
    """A part of the state beside the topics, encoded by the object of its kind in `State.sections`."""

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
    """Raises KeyError for an unknown kind. Topics are restored before."""
    state.sections[image.kind].restore(image.body)


def named_segments(images: Iterable[TopicImage | SectionImage]) -> set[str]:
    """The sealed segments and packs that a snapshot of these images cannot do without."""
    packs: set[int] = set()
    bases: set[str] = set()
    for image in images:
        if isinstance(image, TopicImage):
            for number, partition in enumerate(image.partitions):
                for info in partition.sealed:
                    bases.add(segment_base(image.topic_id, number, info.first_seq, info.generation))
                for packed in partition.packed:
                    packs.add(packed.info.pack)
    return bases.union(map(pack_base, packs))


def topic_image(topic: Topic, now_ms: int) -> TopicImage:
    """The topic as it is now. Shares its pages, which never change; encoding it may be left to another thread."""
    topic.dedupe.expire(now_ms, topic.config.idempotency_window_ms)
    keeps_records = topic.config.durability != "ephemeral"
    return TopicImage(
        topic.id,
        topic.name,
        topic.created_ts,
        [_partition_image(partition, keeps_records, topic.config.leases_durable) for partition in topic.partitions],
        topic.config,
        topic.last_write_ts,
        topic.last_read_ts,
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
    packed = [_packed_image(segment) for segment in partition.segments if isinstance(segment, PackedSegment)]
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
        packed if keeps_records else [],
    )


def _hot_image(segment: HotSegment) -> HotImage:
    pages, flags = segment.image()
    return HotImage(pages[0].first_seq, segment.low, pages, flags)


def _packed_image(segment: PackedSegment) -> PackedImage:
    flags = segment.flags()
    return PackedImage(
        segment.info, segment.low, segment.live, segment.live_bytes, None if flags is None else bytes(flags)
    )


def _restore_partition(state: State, topic_id: int, partition: Partition, image: PartitionImage) -> None:
    partition.restore_position(image.head_seq, image.last_ts)
    partition.evict_floor = image.evict_floor
    partition.evict_reasons = image.evict_reasons
    partition.delete_below = image.delete_below
    partition.holes = list(image.holes)
    segments: list[SealedSegment | PackedSegment | HotSegment] = []
    for info in image.sealed:
        sealed = SealedSegment(state.segment_cache, topic_id, partition.number, info)
        sealed.restore_flags()
        segments.append(sealed)
    for entry in image.packed:
        packed = PackedSegment(state.segment_cache, topic_id, partition.number, entry.info)
        packed.restore(entry.low, entry.live, entry.live_bytes, entry.flags)
        segments.append(packed)
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
    segment.snapshot_seq = segment.last_seq
    return segment
