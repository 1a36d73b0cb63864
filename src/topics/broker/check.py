"""Check: read a whole data directory as recovery would, and more of it, and say what was found. Changes nothing.

    snapshots   every section of every snapshot, not only of the newest
    log         every frame that any kept snapshot needs
    segments    every row, flag and tag of every segment that is named, and that they agree with each other
    state       what snapshot, log and segments make together: counts and sizes are those of the records

What it finds is of three kinds: damage, which a server refuses to start with or to serve; a torn tail, which a server
cuts off when it starts; and things worth knowing, such as left-over files.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from topics.broker.checkpoint import StorageSettings
from topics.broker.image import HeaderImage, TopicImage, decode_header, decode_section
from topics.broker.recovery import check_first_files, replay
from topics.broker.sealed import SealedSegment
from topics.broker.state import State
from topics.engine.partition import Partition
from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.page import SEPARATOR, column, page_times
from topics.storage.frame import decode
from topics.storage.fs import FileSystem
from topics.storage.segment import ROOT as SEGMENTS
from topics.storage.segment import SegmentFile, read_flags, segment_base, segment_bases
from topics.storage.snapshot import ROOT as SNAPSHOTS
from topics.storage.snapshot import read_snapshot, snapshot_numbers, snapshot_path
from topics.storage.wal import ShardLog, shard_numbers

Kind = Literal["damage", "torn", "note"]


class Finding(Struct, frozen=True):
    kind: Kind
    path: str
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.what}"


class Report:
    """What was looked at, and what was found."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.snapshots = 0
        self.frames = 0
        self.wal_files = 0
        self.wal_bytes = 0
        self.segments = 0
        self.topics = 0
        self.records = 0
        self.bytes = 0

    @property
    def status(self) -> int:
        """0: whole. 1: whole but for a torn tail. 2: damaged."""
        kinds = {finding.kind for finding in self.findings}
        return 2 if "damage" in kinds else 1 if "torn" in kinds else 0

    def damage(self, error: CorruptStorage) -> None:
        what = str(error).removeprefix(f"{error.path} at byte {error.offset}: ")
        finding = Finding("damage", error.path, error.offset, what)
        if finding not in self.findings:
            self.findings.append(finding)

    def lines(self) -> Iterator[str]:
        """The report in plain words."""
        yield f"{self.snapshots} snapshots"
        yield f"{self.wal_files} log files with {self.frames} frames in {self.wal_bytes} bytes"
        yield f"{self.segments} sealed segments"
        if self.status < 2:
            yield f"{self.topics} topics holding {self.records} records of {self.bytes} bytes"
        for kind, word in (("note", "note"), ("torn", "torn tail"), ("damage", "DAMAGED")):
            for finding in self.findings:
                if finding.kind == kind:
                    yield f"{word}: {finding}"
        yield _VERDICTS[self.status]


_VERDICTS = {
    0: "Everything is whole.",
    1: "Whole, but for writes that were under way when the server ended. A server cuts them off when it starts; nothing "
    "that was acknowledged as synced is lost.",
    2: "Damaged: bytes that were once safe have changed or are missing. Restore the named files from a copy.",
}


def check(fs: FileSystem) -> Report:
    """Verify everything under the root of `fs`. Nothing is raised but what a failing disk raises."""
    report = Report()
    headers, named = _check_snapshots(fs, report)
    _check_log(fs, report, headers)
    state = _check_state(fs, report)
    if state is not None:
        for topic in state.by_id.values():
            for partition in topic.partitions:
                named |= {each.base: each.info for each in partition.segments if isinstance(each, SealedSegment)}
    for base, info in sorted(named.items()):
        try:
            _check_segment(fs, base, info)
        except CorruptStorage as error:
            report.damage(error)
    report.segments = len(named)
    if state is not None and report.status < 2:
        _check_counts(state, report)
    _note_left_overs(fs, report, set(named))
    return report


def _check_snapshots(fs: FileSystem, report: Report) -> tuple[list[HeaderImage], dict[str, SegmentInfo]]:
    """The headers of those that are whole, newest first, and every segment that one of them names."""
    headers: list[HeaderImage] = []
    named: dict[str, SegmentInfo] = {}
    for number in snapshot_numbers(fs):
        report.snapshots += 1
        try:
            sections = read_snapshot(fs, number)
            header = decode_header(sections[0])
            images = [decode_section(section) for section in sections[1:]]
        except CorruptStorage as error:
            report.damage(error)
            continue
        except (msgspec.MsgspecError, IndexError) as error:
            report.damage(CorruptStorage(snapshot_path(number), 0, f"whole, but says nothing sensible: {error}"))
            continue
        headers.append(header)
        for image in images:
            if isinstance(image, TopicImage):
                for partition, each in enumerate(image.partitions):
                    named |= {segment_base(image.topic_id, partition, info.first_seq): info for info in each.sealed}
    return headers, named


def _check_log(fs: FileSystem, report: Report, headers: list[HeaderImage]) -> None:
    """Every frame from the oldest snapshot's cut on: should the newest snapshot be lost, all of them are needed."""
    header = headers[-1] if headers else HeaderImage({}, 1, 1, 0, False)
    logs = [ShardLog(fs, shard) for shard in shard_numbers(fs)]
    try:
        check_first_files(header, logs)
    except CorruptStorage as error:
        report.damage(error)
    for log in logs:
        shard = log.number
        report.wal_files += len(log.files)
        try:
            for frame in log.frames(header.cut.get(shard, 0), header.lsns.get(shard, 0)):
                report.frames += 1
                try:
                    decode(frame)
                except ValueError as error:
                    raise CorruptStorage(log.path, frame.start, f"whole, but says nothing sensible: {error}") from error
        except CorruptStorage as error:
            report.damage(error)
        report.wal_bytes += log.bytes
        if log.torn is not None:
            what = f"not whole from here on; {log.torn.dropped_bytes} bytes will be cut off"
            report.findings.append(Finding("torn", log.torn.path, log.torn.offset, what))


def _check_state(fs: FileSystem, report: Report) -> State | None:
    try:
        state = replay(fs, StorageSettings()).state
    except CorruptStorage as error:
        report.damage(error)
        return None
    report.topics = len(state.topics)
    report.records = state.totals.records
    report.bytes = state.totals.bytes
    return state


def _check_segment(fs: FileSystem, base: str, info: SegmentInfo) -> None:
    """Raises CorruptStorage at the first thing that is not as it should be."""
    read_flags(fs, base, info)
    file = SegmentFile(fs, base, info)
    file.verify()
    path = base + ".arrow"
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
    listed = file.tags()
    # Tags of records that were deleted before the segment was sealed need not be listed.
    if any([seqs != [seq for seq in tagged.get(tag, []) if seq in set(seqs)] for tag, seqs in listed]):
        raise CorruptStorage(base + ".tags", 0, "tag index does not agree with the records")


def _check_counts(state: State, report: Report) -> None:
    for topic in state.by_id.values():
        for partition in topic.partitions:
            if (partition.count, partition.bytes) != _measured(partition):
                what = f"topic {topic.name}, partition {partition.number}: count or bytes is not that of its records"
                report.damage(CorruptStorage(SEGMENTS, 0, what))


def _measured(partition: Partition) -> tuple[int, int]:
    measures = [segment.measure(segment.last_seq + 1) for segment in partition.segments]
    return sum([count for count, _ in measures]), sum([size for _, size in measures])


def _note_left_overs(fs: FileSystem, report: Report, named: set[str]) -> None:
    for base in sorted(segment_bases(fs) - named):
        report.findings.append(Finding("note", base, 0, "left over; a server removes it when it starts"))
    for name in fs.list(SNAPSHOTS):
        if name.endswith(".tmp"):
            report.findings.append(Finding("note", f"{SNAPSHOTS}/{name}", 0, "an unfinished snapshot; it is not used"))
