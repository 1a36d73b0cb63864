"""Read every byte of a sealed segment or of an entry of a pack, and report what is damaged. Changes nothing."""

from topics.model.errors import CorruptStorage
from topics.model.facts import PackedInfo, SegmentInfo
from topics.model.records.page import SEPARATOR, column, page_times
from topics.storage.fs import FileSystem
from topics.storage.segments.pack import PackFile
from topics.storage.segments.segment_format import read_flags
from topics.storage.segments.segment_reader import SegmentFile

# An entry of a pack: its topic and partition, and what the log or a snapshot says about it.
PackedKey = tuple[int, int, PackedInfo]


def segment_damage(fs: FileSystem, base: str, info: SegmentInfo) -> list[CorruptStorage]:
    """Read every byte of a sealed segment. Answers an error for each damaged place, with its records if it is a batch."""
    found: list[CorruptStorage] = []
    try:
        read_flags(fs, base, info)
    except CorruptStorage as error:
        found.append(error)
    try:
        file = SegmentFile(fs, base, info)
    except CorruptStorage as error:
        return [*found, error]
    found += file.damage()
    try:
        listed = file.tags()
        if not found:
            _check_rows(file, listed)
    except CorruptStorage as error:
        found.append(error)
    return found


def _check_rows(file: SegmentFile, listed: list[tuple[bytes, list[int]]]) -> None:
    """The records are in order, are as many and as large as the log says, and agree with the tag index. Raises CorruptStorage."""
    info, path = file.info, file.base + ".arrow"
    tagged: dict[bytes, list[int]] = {}
    seq, last_ts, size = info.first_seq, info.first_ts, 0
    while seq <= info.last_seq:
        page = file.page(seq, 1024)
        times = page_times(page)
        if page.first_seq != seq or min(times) < last_ts or list(times) != sorted(times):
            raise CorruptStorage(path, 0, f"record {seq} is out of order")
        for each, tag in enumerate(column(page.tags, page.count), seq):
            if tag:
                tagged.setdefault(tag, []).append(each)
        if len(page.data.split(SEPARATOR)) != page.count:
            raise CorruptStorage(path, 0, f"record {seq}: data is not one text for each record")
        last_ts, size = times[-1], size + page.size
        seq = page.last_seq + 1
    if size != info.size or last_ts != info.last_ts:
        raise CorruptStorage(path, 0, "segment does not hold the records the log says it does")
    # Tags of records that were deleted before the segment was sealed need not be listed.
    if any([seqs != [seq for seq in tagged.get(tag, []) if seq in set(seqs)] for tag, seqs in listed]):
        raise CorruptStorage(file.base + ".tags", 0, "tag index does not agree with the records")


def entry_damage(fs: FileSystem, files: dict[int, PackFile | CorruptStorage], key: PackedKey) -> CorruptStorage | None:
    """Read every byte of an entry. `files` keeps the packs that were opened, or why one could not be."""
    topic_id, partition, info = key
    try:
        if info.pack not in files:
            try:
                files[info.pack] = PackFile(fs, info.pack)
            except CorruptStorage as error:
                files[info.pack] = error
        file = files[info.pack]
        if isinstance(file, CorruptStorage):
            return file
        _check_entry(file, topic_id, partition, info)
    except CorruptStorage as error:
        return error
    return None


def _check_entry(file: PackFile, topic_id: int, partition: int, info: PackedInfo) -> None:
    seq, last_ts, size = info.first_seq, info.first_ts, 0
    for page in file.pages(topic_id, partition, info):
        times = page_times(page)
        if page.first_seq != seq or times[0] < last_ts or list(times) != sorted(times):
            raise CorruptStorage(file.path, info.offset, f"record {seq} is out of order")
        if len(page.data.split(SEPARATOR)) != page.count:
            raise CorruptStorage(file.path, info.offset, f"record {seq}: data is not one text for each record")
        seq, last_ts, size = page.last_seq + 1, times[-1], size + page.size
    if (seq, last_ts, size) != (info.last_seq + 1, info.last_ts, info.size):
        raise CorruptStorage(file.path, info.offset, "entry does not hold the records the log says it does")
