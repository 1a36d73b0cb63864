"""The content of a snapshot: images of topics, and sections for what belongs to no single topic."""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from topics.model.config import DEFAULT_CONFIG, TopicConfig
from topics.model.facts import Lost, PackedInfo, SegmentInfo
from topics.model.images import KeptWrite, LeaseImage
from topics.model.records.page import Page
from topics.model.tables.archive import Archive
from topics.model.tables.route import Route
from topics.storage.segments.pack import pack_base
from topics.storage.segments.segment_format import segment_base


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
