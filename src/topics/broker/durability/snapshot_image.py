"""Images: the state as a snapshot keeps it.

Each topic is taken by itself, between two turns of the loop, so a snapshot of many topics never stops the server. That
is sound because every fact written since the snapshot began is replayed over it, and replaying a fact that an image
already holds changes nothing.

What belongs to no single topic is kept in sections of its own, each with a kind: see `State.sections`.
"""

from topics.broker.state import State
from topics.engine.groups.group import Group, Position
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.segments.packed_segments import PackedSegment
from topics.segments.sealed_segments import SealedSegment
from topics.storage.snapshots.snapshot_format import HotImage, PackedImage, PartitionImage, SectionImage, TopicImage


def section_images(state: State) -> list[SectionImage]:
    """All that is kept beside the topics, as it is now. Encoding it may be left to another thread."""
    return [SectionImage(kind, section.capture()) for kind, section in state.sections.items()]  # type: ignore[arg-type]


def restore_section(state: State, image: SectionImage) -> None:
    """Raises KeyError for an unknown kind. Topics are restored before."""
    state.sections[image.kind].restore(image.body)


def topic_image(topic: Topic, now_ms: int) -> TopicImage:
    """The topic as it is now. Shares its pages, which never change; encoding it may be left to another thread."""
    keys = topic.dedupe.image(now_ms, topic.config.idempotency_window_ms)
    keeps_records = topic.config.durability != "ephemeral"
    return TopicImage(
        topic.id,
        topic.name,
        topic.created_ts,
        [_partition_image(partition, keeps_records, topic.config.leases_durable) for partition in topic.partitions],
        topic.config,
        topic.last_write_ts,
        topic.last_read_ts,
        keys if keeps_records else [],
        topic.alias,
        list(topic.routes),
        {name: _positions(group) for name, group in topic.groups.items() if group.positions},
        topic.archive,
    )


def restore_topic(state: State, image: TopicImage) -> Topic:
    topic = state.new_topic(image.topic_id, image.name, image.config, len(image.partitions), image.created_ts)
    topic.last_write_ts = image.last_write_ts
    topic.last_read_ts = image.last_read_ts
    topic.dedupe.restore(image.keys)
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
