"""Check: read a whole data directory as recovery would, and more of it, and say what was found. Changes nothing.

    snapshots   every section of every snapshot, not only of the newest
    log         every frame that any kept snapshot needs
    segments    every row, flag and tag of every segment that is named, and that they agree with each other
    packs       every entry that is named
    state       what snapshot, log and segments make together: counts and sizes are those of the records

What it finds is of four kinds: damage that stops a server from starting; damaged files of sealed segments, with which a
server starts and refuses to serve the records in them; a torn tail, which a server cuts off when it starts; and things
worth knowing, such as left-over files.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from topics.broker.durability.recovery import replay
from topics.broker.state import State
from topics.engine.partitions.partition import Partition
from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.storage_settings import StorageSettings
from topics.segments.packed_segments import PackedSegment
from topics.segments.sealed_segments import SealedSegment
from topics.segments.segment_cache import damage_of
from topics.storage.fs import FileSystem
from topics.storage.layout import check_first_files
from topics.storage.log.frame import decode
from topics.storage.log.wal import open_shards
from topics.storage.segments.pack import PackFile, pack_base
from topics.storage.segments.segment_format import ROOT as SEGMENTS
from topics.storage.segments.segment_format import segment_base, segment_bases
from topics.storage.segments.verify import PackedKey, entry_damage, segment_damage
from topics.storage.snapshots.snapshot import ROOT as SNAPSHOTS
from topics.storage.snapshots.snapshot import read_snapshot, snapshot_numbers, snapshot_path
from topics.storage.snapshots.snapshot_format import HeaderImage, TopicImage, decode_header, decode_section

Kind = Literal["damage", "degraded", "torn", "note"]


# Topic, partition, first seq and generation: what a segment's files are named after.
SegmentKey = tuple[int, int, int, int]


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
        # Whether a server would start here, perhaps without some of the records.
        self.starts = False
        self.packs = 0
        self.packed_segments = 0
        self.topics = 0
        self.records = 0
        self.bytes = 0

    @property
    def status(self) -> int:
        """0: whole. 1: whole but for a torn tail. 2: damaged."""
        kinds = {finding.kind for finding in self.findings}
        return 2 if kinds & {"damage", "degraded"} else 1 if "torn" in kinds else 0

    def damage(self, error: CorruptStorage) -> None:
        self.add("damage", error.path, error.offset, error.what)

    def add(self, kind: Kind, path: str, offset: int, what: str) -> None:
        finding = Finding(kind, path, offset, what)
        if finding not in self.findings:
            self.findings.append(finding)

    def lines(self) -> Iterator[str]:
        """The report in plain words."""
        yield f"{self.snapshots} snapshots"
        yield f"{self.wal_files} log files with {self.frames} frames in {self.wal_bytes} bytes"
        yield f"{self.segments} sealed segments, {self.packs} packs with {self.packed_segments} segments"
        if self.starts:
            yield f"{self.topics} topics holding {self.records} records of {self.bytes} bytes"
        for kind, word in (("note", "note"), ("torn", "torn tail"), ("degraded", "DAMAGED"), ("damage", "DAMAGED")):
            for finding in self.findings:
                if finding.kind == kind:
                    yield f"{word}: {finding}"
        yield self.verdict

    @property
    def verdict(self) -> str:
        if not self.starts:
            return (
                "Damaged: bytes that were once safe have changed or are missing, and a server refuses to start. Restore "
                "the named files from a copy."
            )
        if self.status == 2:
            return (
                "Damaged: bytes that were once safe have changed or are missing. A server starts and serves everything "
                "else. Restore the named files from a copy, or give up what is in them with `topics repair`."
            )
        if self.status == 1:
            return (
                "Whole, but for writes that were under way when the server ended. A server cuts them off when it starts; "
                "nothing that was acknowledged as synced is lost."
            )
        return "Everything is whole."


def check(fs: FileSystem) -> Report:
    """Verify everything under the root of `fs`. Nothing is raised but what a failing disk raises."""
    report = Report()
    headers, named, packed = _check_snapshots(fs, report)
    _check_log(fs, report, headers)
    state = _check_state(fs, report)
    in_use = _check_segments(fs, report, state) if state is not None else set()
    for (topic_id, partition, _, _), info in sorted(named.items()):
        base = segment_base(topic_id, partition, info.first_seq, info.generation)
        if base not in in_use:
            for error in segment_damage(fs, base, info):
                if state is None:
                    report.damage(error)
                else:
                    report.add("note", error.path, error.offset, f"{error.what}; only an older snapshot needs it")
    in_use |= {segment_base(*key) for key in named}
    report.segments = len(in_use)
    in_use |= _check_packs(fs, report, state, packed)
    if state is not None and report.status < 2:
        _check_counts(state, report)
    _note_left_overs(fs, report, in_use)
    return report


def _check_snapshots(
    fs: FileSystem, report: Report
) -> tuple[list[HeaderImage], dict[SegmentKey, SegmentInfo], set[PackedKey]]:
    """The headers of those that are whole, newest first, and every segment and packed segment that one of them names."""
    headers: list[HeaderImage] = []
    named: dict[SegmentKey, SegmentInfo] = {}
    packed: set[PackedKey] = set()
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
            report.damage(
                CorruptStorage(
                    snapshot_path(number), 0, f"its checksum is valid, but the content cannot be decoded: {error}"
                )
            )
            continue
        headers.append(header)
        for image in images:
            if isinstance(image, TopicImage):
                for partition, each in enumerate(image.partitions):
                    named |= {
                        (image.topic_id, partition, info.first_seq, info.generation): info for info in each.sealed
                    }
                    packed |= {(image.topic_id, partition, entry.info) for entry in each.packed}
    return headers, named, packed


def _check_log(fs: FileSystem, report: Report, headers: list[HeaderImage]) -> None:
    """Every frame from the oldest snapshot's cut on: should the newest snapshot be lost, all of them are needed."""
    header = headers[-1] if headers else HeaderImage({}, 1, 1, 0, False)
    logs = open_shards(fs)
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
                    raise CorruptStorage(
                        log.path, frame.start, f"its checksum is valid, but the content cannot be decoded: {error}"
                    ) from error
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
    report.starts = True
    report.topics = len(state.topics)
    report.records = state.totals.records
    report.bytes = state.totals.bytes
    return state


def _check_segments(fs: FileSystem, report: Report, state: State) -> set[str]:
    """Read all segments that are in use. Answers their names."""
    in_use = set()
    for topic in state.by_id.values():
        for partition in topic.partitions:
            for segment in partition.segments:
                if isinstance(segment, SealedSegment):
                    in_use.add(segment.base)
                    for error in segment_damage(fs, segment.base, segment.info):
                        damage = damage_of(topic.id, partition.number, segment.info, error)
                        where = f'topic "{topic.name}", partition {partition.number}'
                        report.add("degraded", damage.path, damage.offset, f"{damage.what}; {damage.outcome} ({where})")
    return in_use


def _check_packs(fs: FileSystem, report: Report, state: State | None, named: set[PackedKey]) -> set[str]:
    """Read every entry that is in use or named by a snapshot, each by itself. Answers the names of the packs."""
    in_use: dict[PackedKey, str] = {}
    if state is not None:
        for topic in state.by_id.values():
            for partition in topic.partitions:
                for segment in partition.segments:
                    if isinstance(segment, PackedSegment):
                        in_use[topic.id, partition.number, segment.info] = topic.name
    files: dict[int, PackFile | CorruptStorage] = {}
    for key in sorted(named | in_use.keys(), key=lambda each: (each[2].pack, each[2].offset)):
        error = entry_damage(fs, files, key)
        if error is None:
            continue
        _, number, info = key
        if key in in_use:
            records = f"records {info.first_seq} to {info.last_seq} cannot be read"
            where = f'topic "{in_use[key]}", partition {number}'
            report.add("degraded", error.path, error.offset, f"{error.what}; {records} ({where})")
        elif state is None:
            report.damage(error)
        else:
            report.add("note", error.path, error.offset, f"{error.what}; only an older snapshot needs it")
    report.packs = len(files)
    report.packed_segments = len(named | in_use.keys())
    return {pack_base(number) for number in files}


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
