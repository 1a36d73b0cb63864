"""Recovery: from what stands on the disk to the state, the same whenever it is done again.

    newest whole snapshot -> facts of every log shard from the snapshot's cut on, in the order of their lsn ->
    cut off torn tails -> remove files nobody names

The number of shards may have changed since: all that ever wrote are read. When the machine was restarted without a
clean stop, records written after the last sync may be missing although they were acknowledged on a disk or memory topic.
How many is bounded by the committer's margin, so that many seqs are skipped and told as lost, and none is used twice.

That follows from a new boot once, not from every start after it. So the first start of a boot puts a frame into every
shard before anything else, with these facts in it, shard 0 last; a shard whose newest frame is older than that of shard
0 of this boot has been dealt with.
"""

import heapq
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from topics.broker.checkpoint import StorageSettings
from topics.broker.image import (
    HeaderImage,
    SectionImage,
    decode_header,
    decode_section,
    named_segments,
    restore_section,
    restore_topic,
)
from topics.broker.sealed import SealedSegment, Shelf
from topics.broker.state import State
from topics.engine.cache import Cache
from topics.engine.segment import PAGE_RECORDS
from topics.model.errors import CorruptStorage
from topics.model.facts import RESTART, Appended, HeadMoved, Lost
from topics.model.page import Page, fold
from topics.storage.frame import APPEND, Frame, decode, decode_append
from topics.storage.fs import FileSystem
from topics.storage.segment import ROOT as SEGMENTS
from topics.storage.segment import remove_segment, segment_bases
from topics.storage.snapshot import ROOT as SNAPSHOTS
from topics.storage.snapshot import read_snapshot, remove_unfinished, snapshot_numbers, snapshot_path
from topics.storage.wal import ROOT as WAL
from topics.storage.wal import ShardLog, TornTail, directory, file_path, shard_numbers

Progress = Callable[[float], None]


class Recovered(Struct):
    """What recovery found, and what the server goes on from."""

    state: State
    next_lsn: int
    # The number of the snapshot that was read, 0 for none, and the number for the next one.
    snapshot: int
    next_snapshot: int
    cut: dict[int, int]
    # Per shard that ever wrote: the last lsn and the number for its next file.
    shards: dict[int, tuple[int, int]]
    wal_bytes: int
    frames: int
    torn: list[TornTail]
    bad_snapshots: list[str]
    # Nothing in the log says yet that the machine was restarted; a frame in every shard must.
    new_boot: bool
    # Facts that follow from how the server ended; to be committed before anything else.
    consequences: list[Lost | HeadMoved]
    # Segments that nobody reads any more but a kept snapshot still names.
    dropped_segments: list[str]

    @property
    def has_sealed(self) -> bool:
        """Whether records stand in sealed segments."""
        return next(_sealed(self.state), None) is not None


def recover(fs: FileSystem, settings: StorageSettings, progress: Progress = lambda _: None) -> Recovered:
    """Raises CorruptStorage when bytes that were once safe have changed. Repairs torn tails, nothing else."""
    _lay_out(fs, settings)
    remove_unfinished(fs)
    replayed = replay(fs, settings, progress)
    state, header, logs, frames = replayed.state, replayed.header, replayed.logs, replayed.frames
    number = replayed.snapshot
    for log in logs:
        log.repair()
        log.make_safe()
    new_boot = _is_new_boot(logs)
    clean = header.clean and not any([log.begun for log in logs])
    margin = max([settings.margin, *[log.margin for log in logs]]) if new_boot and not clean else 0
    consequences = _consequences(state, margin)
    dropped = _remove_left_overs(fs, state)
    _settle_leases(state)
    shards = {log.number: (log.last_lsn, log.next_file) for log in logs}
    return Recovered(
        state=state,
        next_lsn=max([header.next_lsn, *[log.last_lsn + 1 for log in logs]]),
        snapshot=number,
        next_snapshot=max([number, *snapshot_numbers(fs)]) + 1,
        cut=header.cut,
        shards=shards,
        wal_bytes=sum([log.bytes for log in logs]) if frames else 0,
        frames=frames,
        torn=[log.torn for log in logs if log.torn is not None],
        bad_snapshots=replayed.bad_snapshots,
        new_boot=new_boot,
        consequences=consequences,
        dropped_segments=dropped,
    )


class Replayed(Struct):
    """What the disk says, as it is."""

    state: State
    header: HeaderImage
    # The number of the snapshot, 0 for none.
    snapshot: int
    logs: list[ShardLog]
    frames: int
    bad_snapshots: list[str]


def replay(fs: FileSystem, settings: StorageSettings, progress: Progress = lambda _: None) -> Replayed:
    """The state that stands on the disk. Changes nothing there. Raises CorruptStorage."""
    bad: list[str] = []
    state, header, number = _load_snapshot(fs, settings, bad)
    logs = [ShardLog(fs, shard) for shard in shard_numbers(fs)]
    check_first_files(header, logs)
    state.replaying = True
    for source_id in state.routers.by_source:
        source = state.by_id.get(source_id)
        if source is not None:
            state.origins.keep(source)
    frames = _replay(state, logs, header, progress)
    state.replaying = False
    state.origins.clear()
    state.routers.settle()
    _check_segments(state)
    return Replayed(state, header, number, logs, frames, bad)


def check_first_files(header: HeaderImage, logs: list[ShardLog]) -> None:
    """Raises CorruptStorage when a shard has lost the file that the snapshot goes on with."""
    by_number = {log.number: log for log in logs}
    for shard in header.shards:
        number = header.cut[shard]
        if shard not in by_number or not by_number[shard].has_file(number):
            raise CorruptStorage(file_path(shard, number), 0, "log file is missing")


def _lay_out(fs: FileSystem, settings: StorageSettings) -> None:
    """The directories exist and their names survive a power cut, so that files in them can be found again.

    Synced even when they are there: a server that was killed right here may have made and not synced them.
    """
    for path in (WAL, SEGMENTS, SNAPSHOTS, *map(directory, range(settings.shards))):
        if not fs.exists(path):
            fs.make_directory(path)
    fs.sync_directory("")
    fs.sync_directory(WAL)


def _load_snapshot(fs: FileSystem, settings: StorageSettings, bad: list[str]) -> tuple[State, HeaderImage, int]:
    numbers = snapshot_numbers(fs)
    for number in numbers:
        state = State(Shelf(fs, settings.cache_bytes), Cache(settings.cache_bytes))
        try:
            sections = read_snapshot(fs, number)
        except CorruptStorage as error:
            bad.append(str(error))
            continue
        try:
            header = decode_header(sections[0])
            images = [decode_section(section) for section in sections[1:]]
        except (msgspec.MsgspecError, IndexError) as error:
            raise CorruptStorage(snapshot_path(number), 0, f"whole, but says nothing sensible: {error}") from error
        for image in images:
            if not isinstance(image, SectionImage):
                restore_topic(state, image)
        for image in images:
            if isinstance(image, SectionImage):
                restore_section(state, image)
        state.next_topic_id = max(state.next_topic_id, header.next_topic_id)
        state.versions.routes.reach(header.routes_version)
        state.versions.tables.reach(header.tables_version)
        state.versions.archives.reach(header.archives_version)
        return state, header, number
    if bad:
        raise CorruptStorage("snapshots", 0, "no snapshot is whole: " + "; ".join(bad))
    state = State(Shelf(fs, settings.cache_bytes), Cache(settings.cache_bytes))
    return state, HeaderImage({}, 1, 1, 0, False), 0


def _is_new_boot(logs: list[ShardLog]) -> bool:
    first = next((log.first_lsn_of_boot for log in logs if log.number == 0), None)
    return any(
        [
            log.files and not log.of_this_boot and (first is None or log.last_lsn >= first or log.number == 0)
            for log in logs
        ]
    )


def _replay(state: State, logs: list[ShardLog], header: HeaderImage, progress: Progress) -> int:
    streams = [log.frames(header.cut.get(log.number, 0), header.lsns.get(log.number, 0)) for log in logs]
    frames: Iterator[Frame] = streams[0] if len(streams) == 1 else heapq.merge(*streams, key=lambda frame: frame.lsn)
    count = 0
    gathered = Gathered(state)
    for frame in frames:
        count += 1
        try:
            if frame.kind == APPEND:
                gathered.add(decode_append(frame.body))
            else:
                gathered.apply_all()
                for fact in decode(frame):
                    state.apply(fact)
        except ValueError as error:
            path = next(log.path for log in logs if log.last_lsn == frame.lsn)
            raise CorruptStorage(
                path, frame.start, f"frame {frame.lsn} is whole but says nothing sensible: {error}"
            ) from error
        if not count & 0xFFFF:
            # Nobody knows the total before the end; what is known only ever rises towards it.
            progress(1 - 1 / (2 + count / 0x10000))
    gathered.apply_all()
    progress(1.0)
    return count


class Run:
    """Pages without a gap between them, and where the next one must begin."""

    __slots__ = ("next_seq", "pages", "room")

    def __init__(self, page: Page) -> None:
        self.pages = [page]
        self.next_seq = page.first_seq + page.count
        self.room = PAGE_RECORDS - page.count


class Gathered:
    """Plain appends that follow each other in a log, applied as one: 3.3 us a single record of replay instead of 6.

    The log holds them in the order of their seqs, so it makes no difference as long as everything else that is replayed
    waits until they are applied.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._runs: dict[tuple[int, int], Run] = {}

    def add(self, fact: Appended) -> None:
        page = fact.page
        key = (fact.topic_id, fact.partition)
        plain = fact.key is None and page.metas is None and page.nodes is None and page.tags is None
        run = self._runs.get(key)
        if run is not None:
            if plain and page.first_seq == run.next_seq and run.room > 0:
                run.pages.append(page)
                run.next_seq += page.count
                run.room -= page.count
                return
            self._apply(key)
        partition = self._state.partition(*key)
        # One that the snapshot already holds is left to `apply`, which knows what to do with it.
        if plain and partition is not None and page.first_seq > partition.head_seq:
            self._runs[key] = Run(page)
        else:
            self._state.apply(fact)

    def apply_all(self) -> None:
        for key in list(self._runs):
            self._apply(key)

    def _apply(self, key: tuple[int, int]) -> None:
        pages = self._runs.pop(key).pages
        self._state.apply(Appended(*key, pages[0] if len(pages) == 1 else fold(pages)))


def _consequences(state: State, margin: int) -> list[Lost | HeadMoved]:
    facts: list[Lost | HeadMoved] = []
    for topic in state.by_id.values():
        durability = topic.config.durability
        for partition in topic.partitions:
            head = partition.head_seq
            if durability == "ephemeral":
                if head and partition.evict_floor <= head + margin:
                    partition.apply_head(head + margin)
                    facts.append(HeadMoved(topic.id, partition.number, head + margin))
            elif margin and durability != "fsync" and head:
                # A log that is empty has handed out nothing: what comes first into a log is always synced.
                facts.append(Lost(topic.id, partition.number, head + 1, head + margin, RESTART))
    return facts


def _settle_leases(state: State) -> None:
    """Without durable leases every job is claimable again: nobody can know who still works on what."""
    for topic in state.by_id.values():
        for partition in topic.partitions:
            leases = partition.leases
            if leases is not None:
                if not topic.config.leases_durable:
                    leases.clear(keep_delays=True)
                leases.settle(partition.is_live)


def _check_segments(state: State) -> None:
    for segment in _sealed(state):
        if not segment.files_exist():
            raise CorruptStorage(segment.base + ".arrow", 0, "segment file is missing")


def _remove_left_overs(fs: FileSystem, state: State) -> list[str]:
    """Remove segments that were being written when the server ended, or dropped and not yet removed.

    One that a kept snapshot names stays: should the server end again before the next snapshot, recovery begins with it.
    Those are answered, to be removed later.
    """
    in_use = {segment.base for segment in _sealed(state)}
    for topic in state.by_id.values():
        for partition in topic.partitions:
            partition.dropped = []
    stray = segment_bases(fs) - in_use
    if not stray:
        return []
    named = _named_by_snapshots(fs)
    gone = stray - named
    for base in gone:
        remove_segment(fs, base)
    if gone:
        fs.sync_directory(SEGMENTS)
    return sorted(stray & named)


def _named_by_snapshots(fs: FileSystem) -> set[str]:
    named: set[str] = set()
    for number in snapshot_numbers(fs):
        try:
            _, *sections = read_snapshot(fs, number)
        except CorruptStorage:
            continue  # reported when it was tried; nothing can be recovered from it
        named |= named_segments([decode_section(section) for section in sections])
    return named


def _sealed(state: State) -> Iterator[SealedSegment]:
    for topic in state.by_id.values():
        for partition in topic.partitions:
            for segment in partition.segments:
                if isinstance(segment, SealedSegment):
                    yield segment
