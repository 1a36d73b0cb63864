"""Writing a pack: the entries of hot segments, and of packed segments that are merged or copied."""

from collections.abc import Sequence

from msgspec import Struct

from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.partition import Partition
from topics.engine.topics.packing import PackLimits, SealKey, merge_count
from topics.model.errors import CorruptStorage
from topics.model.facts import PackedInfo
from topics.model.records.page import Page
from topics.segments.packed_segments import PackedSegment
from topics.storage.fs import Bytes, FileSystem
from topics.storage.segments.pack import Entry, PackFile, encode_pages, pack_size, write_pack


class NewEntry(Struct):
    """One entry of the pack that is being made: older packed segments, then the pages of a hot segment, if any.

    `key` and `hot_bytes` are of the hot segment `hot`; None and 0 when an entry is only copied.
    """

    topic_id: int
    partition: int
    packed: list[PackedSegment]
    pages: list[Page]
    key: SealKey | None = None
    hot: HotSegment | None = None
    hot_bytes: int = 0


class Written(Struct):
    """What was written: entries in their order; entries of damaged packs are not copied and not merged."""

    size: int
    entries: list[tuple[NewEntry, PackedInfo]]
    damaged: list[tuple[PackedSegment, CorruptStorage]]


class Source(Struct):
    """The content of an entry to be written, and what is known about it."""

    job: NewEntry
    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    size: int
    tagged: bool
    body: Bytes


def write_entries(fs: FileSystem, number: int, jobs: Sequence[NewEntry]) -> Written:
    """Write a pack. Storage thread; raises OSError, and then nothing of the pack is left."""
    files: dict[int, PackFile] = {}
    damaged: list[tuple[PackedSegment, CorruptStorage]] = []
    sources: list[Source] = []
    for job in jobs:
        try:
            source = _source(fs, files, job, job.packed)
        except CorruptStorage as error:
            damaged += [
                (each, error) for each in job.packed if error.records in (None, (each.first_seq, each.last_seq))
            ]
            # The hot segment is packed without the damaged one.
            source = _source(fs, files, job, [])
        if source is not None:
            sources.append(source)
    if not sources:
        return Written(0, [], damaged)
    entries = [
        Entry(each.job.topic_id, each.job.partition, each.first_seq, each.last_seq, each.body) for each in sources
    ]
    places = write_pack(fs, number, entries)
    infos = [
        PackedInfo(
            each.first_seq,
            each.last_seq,
            each.first_ts,
            each.last_ts,
            each.size,
            each.tagged,
            number,
            place.offset,
            place.length,
            place.checksum,
        )
        for each, place in zip(sources, places, strict=True)
    ]
    written = list(zip([each.job for each in sources], infos, strict=True))
    return Written(pack_size(fs, number), written, damaged)


def _source(fs: FileSystem, files: dict[int, PackFile], job: NewEntry, packed: list[PackedSegment]) -> Source | None:
    """None when the job has nothing but a damaged entry to copy. Raises CorruptStorage."""
    pages: list[Page] = []
    for segment in packed:
        info = segment.info
        file = files.get(info.pack)
        if file is None:
            file = files[info.pack] = PackFile(fs, info.pack)
        if not job.pages:
            body = file.body(job.topic_id, job.partition, info)
            return Source(job, info.first_seq, info.last_seq, info.first_ts, info.last_ts, info.size, info.tagged, body)
        pages += file.pages(job.topic_id, job.partition, info)
    pages += job.pages
    if not pages:
        return None
    if packed:
        pages = _folded(pages)
    first, last = pages[0], pages[-1]
    size = sum([page.size for page in pages])
    tagged = any([page.tags is not None for page in pages])
    return Source(job, first.first_seq, last.last_seq, first.first_ts, last.last_ts, size, tagged, encode_pages(pages))


def _folded(pages: list[Page]) -> list[Page]:
    """The same records in pages of the usual size."""
    segment = HotSegment(pages[0].first_seq)
    for page in pages:
        segment.append(page)
    segment.close()
    return segment.pages


def mergeable(partition: Partition, index: int, limits: PackLimits) -> list[PackedSegment]:
    """The packed segments right before the hot one at `index` that are to be merged with it, in order; maybe none."""
    hot = partition.segments[index]
    assert isinstance(hot, HotSegment)
    neighbours: list[PackedSegment] = []
    next_seq = hot.pages[0].first_seq
    for segment in reversed(partition.segments[:index]):
        if not isinstance(segment, PackedSegment) or segment.last_seq + 1 != next_seq or segment.is_damaged:
            break
        neighbours.append(segment)
        next_seq = segment.first_seq
    count = merge_count([each.info.size for each in neighbours], hot.held_bytes, limits)
    return neighbours[:count][::-1]
