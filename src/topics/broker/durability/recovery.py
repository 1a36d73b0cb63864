"""Recovery: rebuild the state from the files. Repeating it gives the same state.

    newest whole snapshot -> facts of the log from the snapshot's cut on, in the order of their lsn ->
    cut off torn tails -> remove files that nothing names

Earlier versions could write several shards of the log; all of them are read, merged by lsn.

Whether records may be missing that were acknowledged on a disk or memory topic is decided by how the last run ended. The
marker (see `storage/fs.py`) says how far that run wrote, if the machine was not restarted since:

    clean      the last snapshot was taken by a stop, and there is no marker of its lineage: nothing is missing
    complete   the log goes as far as the marker says, in the same lineage: nothing is missing
    behind     the log is of the marker's lineage and ends before it: the disk was restored from an earlier copy, or files
               are gone. Records of every class are missing
    unknown    anything else: a power cut, another machine, a marker that could not be kept. Records that were not synced
               may be missing

After the last two, as many seqs as may have been assigned are skipped and reported as lost, so none is assigned twice; the
committer's margin bounds how many are assigned without a sync. The start writes that in one frame of a new lineage, and
syncs it before anything is served, so it is reported once.
"""

import contextlib
import heapq
import secrets
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from topics.broker.durability.snapshot_image import restore_section, restore_topic
from topics.broker.log.apply import apply
from topics.broker.state import State
from topics.engine.cache import Cache
from topics.engine.partitions.segment import PAGE_RECORDS, Segment
from topics.engine.topics.packing import PackUse
from topics.model.errors import CorruptStorage
from topics.model.facts import RESTART, Appended, HeadMoved, Lost
from topics.model.records.page import Page, fold
from topics.model.storage_settings import StorageSettings
from topics.segments.packed_segments import PackedSegment
from topics.segments.sealed_segments import SealedSegment
from topics.segments.segment_cache import Damage, SegmentCache
from topics.storage.fs import FileSystem, Mark
from topics.storage.layout import check_complete, check_first_files, make_directories
from topics.storage.log.frame import APPEND, Frame, decode, decode_append, encode_facts
from topics.storage.log.wal import LOG, TornTail, WalReader, WalWriter, open_shards
from topics.storage.reserve import Reserve, is_full
from topics.storage.segments.pack import entry_bytes, pack_base, pack_size
from topics.storage.segments.segment_format import ROOT as SEGMENTS
from topics.storage.segments.segment_format import move_segment_to_damaged, remove_segment, segment_bases
from topics.storage.snapshots.kept import need_of, remove_spare
from topics.storage.snapshots.snapshot import (
    read_first_section,
    read_snapshot,
    remove_unfinished,
    snapshot_numbers,
    snapshot_path,
)
from topics.storage.snapshots.snapshot_format import (
    HeaderImage,
    SectionImage,
    decode_header,
    decode_section,
    named_segments,
)

Progress = Callable[[float], None]
SomeSegment = TypeVar("SomeSegment", bound=Segment)


Ending = Literal["new", "clean", "complete", "behind", "unknown"]


class Recovered(Struct):
    """The state, and what the server continues with."""

    state: State
    # Continues the log. Already failed when the facts that this start decided could not be written and synced.
    wal: WalWriter
    wal_error: OSError | None
    ending: Ending
    # Why the next start will not be able to distinguish a kill from a power cut.
    marker_error: OSError | None
    reserve: Reserve
    next_lsn: int
    # The number of the snapshot that was read, 0 for none, and the number for the next one.
    snapshot: int
    next_snapshot: int
    cut: dict[int, int]
    # Per shard that has files: the last lsn and the number for its next file.
    shards: dict[int, tuple[int, int]]
    wal_bytes: int
    frames: int
    torn: list[TornTail]
    bad_snapshots: list[CorruptStorage]
    # Facts that follow from how the server ended: applied, and durable unless `wal_error` says otherwise.
    restart_facts: list[Lost | HeadMoved]
    # Segments that are not in use any more but that a kept snapshot still names.
    dropped_segments: list[str]
    contents: "Contents"

    @property
    def damage(self) -> list[Damage]:
        """Damaged files of sealed segments. Their records cannot be read; everything else is served."""
        return [damage for each in self.state.segment_cache.damage.values() for damage in each]

    @property
    def has_sealed(self) -> bool:
        """Whether records are in segments with files of their own."""
        return bool(self.contents.sealed)


def recover(fs: FileSystem, settings: StorageSettings, progress: Progress = lambda _: None) -> Recovered:
    """Rebuild the state and open the log. Everything that the state rests on is durable then.

    Cuts off torn tails, and writes the facts that follow from how the server ended. Raises CorruptStorage when bytes that
    were synced have changed.
    """
    make_directories(fs)
    remove_unfinished(fs)
    replayed = replay(fs, settings, progress)
    state, header, logs, frames = replayed.state, replayed.header, replayed.logs, replayed.frames
    number = replayed.snapshot
    for log in logs:
        log.repair()
        log.make_safe()
    marker = fs.marker()
    mark = marker.read()
    ending = _ending(replayed, mark)
    margin = 0
    if ending in ("behind", "unknown"):
        margin = max([settings.margin, *[log.margin for log in logs]])
    restart_facts = _restart_facts(state, margin, all_classes=ending == "behind")
    _apply_restart_facts(state, restart_facts)
    move_replaced_files(fs, state)
    # Counted again if the restart facts may have dropped segments.
    contents = _contents(fs, state) if restart_facts else replayed.contents
    dropped = _remove_unreferenced(fs, state, contents.bases())
    _finish_leases(state)
    shards = {log.number: (log.last_lsn, log.next_file) for log in logs}
    next_lsn = max([header.next_lsn, *[log.last_lsn + 1 for log in logs]])
    last_lsn, next_file = shards[LOG]
    if mark is None or ending != "complete":
        # A clean stop continues its lineage. The first frame of a new one reports what may be missing: a log that ends before
        # it has not reported that yet.
        lineage = (logs[0].lineage if ending == "clean" else 0) or secrets.randbits(64)
        first_lsn = next_lsn if restart_facts else last_lsn
        mark = Mark(lineage, first_lsn, first_lsn)
    marker_error = None
    try:
        marker.begin(mark)
    except OSError as error:
        marker_error = error
    wal = WalWriter(
        fs,
        last_lsn=last_lsn,
        next_file=next_file,
        file_bytes=settings.wal_file_bytes,
        margin=settings.margin,
        lineage=mark.lineage,
        marker=marker,
    )
    reserve = Reserve(fs, settings.reserve_bytes)
    wal_error = None
    if restart_facts:
        try:
            # One frame, so that a power cut leaves all of it or nothing. Synced before anything is acknowledged: otherwise a
            # second power cut could take it, and the next start would skip the same seqs although they are assigned.
            frame = encode_facts(next_lsn, wal.synced_lsn, [*restart_facts])
            try:
                wal.write([frame], next_lsn)
            except OSError as error:
                if not is_full(error):
                    raise
                # Without this frame no delete could be written either.
                reserve.release()
                remove_spare(fs, number, header.cut)
                wal.small_files = True
                wal.write([frame], next_lsn)
            wal.sync()
            next_lsn += 1
        except OSError as error:
            wal.failed = True
            wal_error = error
    with contextlib.suppress(OSError):
        # Reported by the broker, if it is not held.
        need = need_of(fs, settings, number, header.cut)
        reserve.hold(need.snapshot_bytes, need.spare_bytes)
    return Recovered(
        state=state,
        wal=wal,
        wal_error=wal_error,
        ending=ending,
        marker_error=marker_error,
        reserve=reserve,
        next_lsn=next_lsn,
        snapshot=number,
        next_snapshot=max([number, *snapshot_numbers(fs)]) + 1,
        cut=header.cut,
        shards=shards,
        wal_bytes=sum([log.bytes for log in logs]) if frames else 0,
        frames=frames,
        torn=[log.torn for log in logs if log.torn is not None],
        bad_snapshots=replayed.bad_snapshots,
        restart_facts=restart_facts,
        dropped_segments=dropped,
        contents=contents,
    )


class Contents(Struct):
    """Where the records of the state are: in segments with files of their own, in packs, in memory."""

    sealed: list[SealedSegment]
    packs: dict[int, PackUse]
    hot_bytes: int

    def bases(self) -> set[str]:
        """The segments and packs that are in use."""
        return {segment.base for segment in self.sealed}.union(map(pack_base, self.packs))


class Replayed(Struct):
    """What the disk says, as it is."""

    state: State
    header: HeaderImage
    # The number of the snapshot, 0 for none.
    snapshot: int
    logs: list[WalReader]
    frames: int
    bad_snapshots: list[CorruptStorage]
    contents: Contents


def replay(fs: FileSystem, settings: StorageSettings, progress: Progress = lambda _: None) -> Replayed:
    """Rebuild the state from the disk; read-only. Raises CorruptStorage."""
    bad: list[CorruptStorage] = []
    state, header, number = _load_snapshot(fs, settings, bad)
    logs = open_shards(fs)
    if not number:
        check_complete(fs, logs)
    check_first_files(header, logs)
    for source_id in state.routers.by_source:
        source = state.by_id.get(source_id)
        if source is not None:
            state.copy_sources.keep(source)
    frames = _replay(state, logs, header, progress)
    state.end_replay()
    contents = _contents(fs, state)
    _inspect(state, contents)
    return Replayed(state, header, number, logs, frames, bad, contents)


def _load_snapshot(
    fs: FileSystem, settings: StorageSettings, bad: list[CorruptStorage]
) -> tuple[State, HeaderImage, int]:
    numbers = snapshot_numbers(fs)
    for number in numbers:
        state = _new_state(fs, settings)
        try:
            sections = read_snapshot(fs, number)
        except CorruptStorage as error:
            bad.append(error)
            continue
        header = None
        beside_topics: list[SectionImage] = []
        try:
            # Each topic by itself: the images of all of them would take as much memory as the topics.
            for section in sections:
                if header is None:
                    header = decode_header(section)
                    continue
                image = decode_section(section)
                if isinstance(image, SectionImage):
                    beside_topics.append(image)
                else:
                    restore_topic(state, image)
        except msgspec.MsgspecError as error:
            raise CorruptStorage(
                snapshot_path(number), 0, f"its checksum is valid, but the content cannot be decoded: {error}"
            ) from error
        if header is None:
            raise CorruptStorage(snapshot_path(number), 0, "whole, but has no sections")
        for image in beside_topics:
            restore_section(state, image)
        state.next_topic_id = max(state.next_topic_id, header.next_topic_id)
        state.next_pack = header.next_pack
        state.versions.routes.reach(header.routes_version)
        state.versions.tables.reach(header.tables_version)
        state.versions.archives.reach(header.archives_version)
        return state, header, number
    if bad:
        raise CorruptStorage("snapshots", 0, "no snapshot is whole: " + "; ".join(map(str, bad)))
    state = _new_state(fs, settings)
    return state, HeaderImage({}, 1, 1, 0, False), 0


def _new_state(fs: FileSystem, settings: StorageSettings) -> State:
    state = State(SegmentCache(fs, settings.cache_bytes), Cache(settings.cache_bytes))
    state.replaying = True
    return state


def _ending(replayed: Replayed, mark: Mark | None) -> Ending:
    """How the last run ended."""
    logs = replayed.logs
    if not replayed.snapshot and not any([log.files for log in logs]):
        return "new"
    if mark is not None and mark.lineage == logs[0].lineage:
        if max([log.last_lsn for log in logs]) >= mark.lsn:
            return "complete"
        # With nothing behind its first frame the lineage never began: its start was interrupted.
        return "behind" if mark.lsn > mark.first_lsn else "unknown"
    clean = replayed.header.clean and not any([log.begun for log in logs])
    return "clean" if clean else "unknown"


def _replay(state: State, logs: list[WalReader], header: HeaderImage, progress: Progress) -> int:
    streams = [log.frames(header.cut.get(log.number, 0), header.lsns.get(log.number, 0)) for log in logs]
    frames: Iterator[Frame] = streams[0] if len(streams) == 1 else heapq.merge(*streams, key=lambda frame: frame.lsn)
    count = 0
    batch = ReplayBatch(state)
    for frame in frames:
        count += 1
        try:
            if frame.kind == APPEND:
                batch.add(decode_append(frame.body))
            else:
                batch.apply_all()
                for fact in decode(frame):
                    apply(state, fact)
        except ValueError as error:
            path = next(log.path for log in logs if log.last_lsn == frame.lsn)
            raise CorruptStorage(
                path, frame.start, f"frame {frame.lsn} has a valid checksum, but cannot be decoded: {error}"
            ) from error
        if not count & 0xFFFF:
            # The total is not known before the end; the value rises towards 1.
            progress(1 - 1 / (2 + count / 0x10000))
    batch.apply_all()
    progress(1.0)
    return count


class Run:
    """Pages without a gap between them, and where the next one must begin."""

    __slots__ = ("next_seq", "pages", "room")

    def __init__(self, page: Page) -> None:
        self.pages = [page]
        self.next_seq = page.first_seq + page.count
        self.room = PAGE_RECORDS - page.count


class ReplayBatch:
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
            apply(self._state, fact)

    def apply_all(self) -> None:
        for key in list(self._runs):
            self._apply(key)

    def _apply(self, key: tuple[int, int]) -> None:
        pages = self._runs.pop(key).pages
        apply(self._state, Appended(*key, pages[0] if len(pages) == 1 else fold(pages)))


def _restart_facts(state: State, margin: int, *, all_classes: bool) -> list[Lost | HeadMoved]:
    """The facts that follow when up to `margin` seqs of each partition may be missing; synced ones too if `all_classes`."""
    facts: list[Lost | HeadMoved] = []
    for topic, partition in state.all_partitions():
        durability, head = topic.config.durability, partition.head_seq
        if durability == "ephemeral":
            if head and partition.evict_floor <= head + margin:
                facts.append(HeadMoved(topic.id, partition.number, head + margin))
        elif margin and (all_classes or (durability != "fsync" and head)):
            # The first record of a partition is always synced, so an empty one has assigned no seq without a sync.
            facts.append(Lost(topic.id, partition.number, head + 1, head + margin, RESTART))
    return facts


def _apply_restart_facts(state: State, facts: list[Lost | HeadMoved]) -> None:
    """Apply them as the next recovery will, which finds them in the log."""
    state.replaying = True
    for fact in facts:
        apply(state, fact)
    state.replaying = False


def _finish_leases(state: State) -> None:
    """Without durable leases every job is claimable again: the log does not say which are leased."""
    for topic, partition in state.all_partitions():
        leases = partition.leases
        if leases is not None:
            if not topic.config.leases_durable:
                leases.clear(keep_delays=True)
            leases.finish_replay(partition.is_live)


def _contents(fs: FileSystem, state: State) -> Contents:
    packs: dict[int, PackUse] = {}
    for segment in _of_kind(state, PackedSegment):
        info = segment.info
        use = packs.get(info.pack)
        if use is None:
            use = packs[info.pack] = PackUse(pack_size(fs, info.pack))
        use.entries += 1
        use.live_bytes += entry_bytes(info.length)
    hot_bytes = sum([partition.hot_bytes for _, partition in state.all_partitions()])
    return Contents([*_of_kind(state, SealedSegment)], packs, hot_bytes)


def _inspect(state: State, contents: Contents) -> None:
    """Find damaged files of the segments and packs that are in use; see `SegmentCache.damage`."""
    segment_cache = state.segment_cache
    for segment in contents.sealed:
        segment.inspect()
    for number, use in contents.packs.items():
        try:
            segment_cache.pack(number)
        except CorruptStorage as error:
            segment_cache.pack_damaged(number, error, use.entries)
    if segment_cache.damage:
        in_use = contents.bases() | {each.damage_key for each in _of_kind(state, PackedSegment)}
        for key in set(segment_cache.damage) - in_use:
            segment_cache.forget_damage(key)


def move_replaced_files(fs: FileSystem, state: State) -> list[str]:
    """Move the files of segments that a repair has replaced to `damaged/`. Answers where they are.

    A pack stays as long as other entries of it are in use.
    """
    moved: list[str] = []
    if state.replaced_segments:
        in_use = {each.base for each in _of_kind(state, SealedSegment)}
        in_use |= {each.base for each in _of_kind(state, PackedSegment)}
        for base in sorted(state.replaced_segments - in_use):
            moved += move_segment_to_damaged(fs, base)
        state.replaced_segments &= in_use
    return moved


def _remove_unreferenced(fs: FileSystem, state: State, in_use: set[str]) -> list[str]:
    """Remove segments and packs that were being written when the server ended, or dropped and not yet removed.

    One that a kept snapshot names stays: should the server end again before the next snapshot, recovery begins with it.
    Those are answered, to be removed later.
    """
    for _, partition in state.all_partitions():
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
            header = decode_header(read_first_section(fs, number))
            if header.named is None:
                # Of version 1, which does not list them.
                images = [decode_section(section) for section in read_snapshot(fs, number)[1:]]
                header.named = [*named_segments(images)]
        except (CorruptStorage, msgspec.MsgspecError):
            continue  # reported when it was tried; nothing can be recovered from it
        named.update(header.named)
    return named


def _of_kind(state: State, kind: type[SomeSegment]) -> Iterator[SomeSegment]:
    for _, partition in state.all_partitions():
        for segment in partition.segments:
            if isinstance(segment, kind):
                yield segment
