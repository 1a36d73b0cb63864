"""The write-ahead log: preallocated files that hold frames, one after the other.

    wal/shard-00/<number>.wal := header | frame | frame | ... | zeros
    header := "TOPICWAL" | version u32 | shard u32 | number u64 | previous lsn u64 | synced u64 |
              boot id, 36 bytes of text | margin u32 | lineage u64 | checksum u64 over the header so far

`previous lsn` is the lsn of the last frame before this file, so that a file which lost its tail is noticed when the next one
is read; `synced` means what it means in a frame. `margin` is how many records the server that wrote the file allowed to be
readable without being synced. `lineage` is a random number: a start that can prove that nothing is missing in the log
continues its lineage, any other begins a new one (see `broker/durability/recovery.py`). A server never continues a file that another
process began: each start begins a new one.

Files of version 1 have no lineage: their checksum follows the margin, then zeros up to 96 bytes.

Earlier versions could spread the log over several directories, `shard-00` to `shard-NN`: each frame is in one of them, lsns
rise over all of them, and `previous lsn` and `synced` refer to the file's own shard. They are read and never written; the
server writes to `shard-00` only.

Where a shard ends when it is read:
  zeros, or the end of the file    the usual end: preallocated space that was not used
  anything else                    a frame is broken, or frames are missing before a later file

The second may be a torn tail: writes after the last sync reach the disk in any order, so whole frames may even follow the
broken one. Later frames distinguish it from corruption: one whose `synced` is above the last good lsn proves that
something durable is gone, and the server stops with file and offset. Without such a proof the shard ends before the broken
frame; what follows is cut off and reported. Nothing that was acknowledged as synced is lost that way, and what remains is a
clean prefix.
"""

import contextlib
import threading
from collections.abc import Iterator
from struct import Struct as Layout

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from topics.model.errors import CorruptStorage
from topics.storage.damaged_files import remove_file
from topics.storage.fs import File, FileSystem, Marker
from topics.storage.log.frame import Frame, find_frames, read_frames
from topics.storage.reading import load, map_file, reading
from topics.storage.reserve import is_full

ROOT = "wal"
# The shard that is written.
LOG = 0
HEADER_BYTES = 96
VERSION = 2
_MAGIC = b"TOPICWAL"
_HEADER = Layout("<8sIIQQQ36sIQ")
_HEADER_1 = Layout("<8sIIQQQ36sI")
_VERSION = Layout("<8xI")
_CHECK = Layout("<Q")
_U32_MAX = 0xFFFFFFFF
# So much room behind the frames is filled with zeros at once. (1 MB is hardly better on average, and the sync that brings it out takes longer.)
_ZEROS = bytes(256 << 10)
# Where the disk has no space for a whole file, or while it is kept for deletes, files are this long.
SMALL_FILE_BYTES = 1 << 20
# Beyond the end of any file.
_NEVER = 1 << 62


class WalWriter:
    """Appends frames to the log. `write`, `rotate` and `zero_ahead` never run at the same time; `sync` may run beside them."""

    def __init__(
        self,
        fs: FileSystem,
        *,
        last_lsn: int,
        next_file: int,
        file_bytes: int,
        margin: int = 0,
        lineage: int = 0,
        marker: Marker | None = None,
    ) -> None:
        self.last_lsn = last_lsn
        # Everything up to here survives a power cut.
        self.synced_lsn = last_lsn
        # Set by a failed sync, permanently: what was written since may be lost although it can be read.
        self.failed = False
        self.file_number = next_file - 1
        self.bytes_written = 0
        self.rotations = 0
        # Where the next frame goes in the current file.
        self.offset = 0
        # Set while the disk is nearly full.
        self.small_files = False
        self._fs = fs
        self._file_bytes = file_bytes
        self._margin = margin
        self._lineage = lineage
        # Called with the last lsn after each write, before anything in it is acknowledged.
        self._advance_marker = _ignore if marker is None else marker.advance
        self._closed = False
        self._file: File | None = None
        self._capacity = 0
        # Up to where the space behind the frames has been filled with zeros, while that is wanted.
        self._zeroed = _NEVER
        self._filled = False
        self._spare: File | None = None
        self._spare_bytes = 0
        self._unsynced: list[File] = []
        # Held while the next file is made: in a thread ahead of time, or at once when it is needed sooner.
        self._preparing = threading.Lock()

    def write(self, frames: list[bytes], last_lsn: int) -> int:
        """Write all frames in order, or none. Return the bytes written.

        On OSError no byte of them remains and the caller may try again; if they cannot be removed, `failed` is set.
        """
        total = len(frames[0]) if len(frames) == 1 else sum(map(len, frames))
        offset = self.offset
        if offset + total > self._capacity:
            self.rotate(total)
            offset = self.offset
        assert self._file is not None
        try:
            self._file.write_at(offset, frames)
        except OSError:
            self._take_back()
            raise
        self.offset = end = offset + total
        self.bytes_written += total
        self.last_lsn = last_lsn
        self._advance_marker(last_lsn)
        if end > self._zeroed:
            self._fill()
        return total

    def zero_ahead(self, wanted: bool) -> bool:
        """Whether to fill room with zeros before frames get there: worth it while small writes are each followed by a sync.

        Room that is only reserved becomes part of the file when it is first written, and a sync must then wait for the file
        system's journal too. Where zeros were written before, it has only the data to write: 120 to 155 us instead of 200 to
        215 for 7 KB, on ext4. A file reads the same in either case. To be called before each sync:
        answers whether that one has zeros to write as well.
        """
        if not wanted:
            self._zeroed = _NEVER
        elif self._zeroed == _NEVER:
            self._zeroed = 0
        filled, self._filled = self._filled, False
        return filled

    def _fill(self) -> None:
        assert self._file is not None
        start = self.offset
        self._zeroed = min(start + len(_ZEROS), self._capacity)
        self._filled = True
        # Zeros that do not get there are zeros all the same.
        with contextlib.suppress(OSError):
            self._file.write_at(start, [_ZEROS[: self._zeroed - start]])

    def rotate(self, frame_bytes: int = 0) -> None:
        """Frames from now on go to a new file. Raises OSError, and the current file stays, when there is no room for one."""
        needed = HEADER_BYTES + frame_bytes
        # Held until the file counts: a thread that prepares the next one meanwhile must find this number taken.
        with self._preparing:
            if self._spare is None or self._spare_bytes < needed:
                self._prepare(needed)
            file, capacity = self._spare, self._spare_bytes
            self._spare = None
            assert file is not None
            header = Header(
                LOG,
                self.file_number + 1,
                self.last_lsn,
                self.synced_lsn,
                self._fs.boot_id(),
                self._margin,
                self._lineage,
            )
            try:
                file.write_at(0, [encode_header(header)])
            except OSError:
                file.close()
                self._fs.remove(file.path)
                raise
            self.file_number += 1
        if self._file is not None:
            self._unsynced.append(self._file)
            self.rotations += 1
        self._file = file
        self.offset, self._capacity = HEADER_BYTES, capacity
        if self._zeroed != _NEVER:
            self._zeroed = 0

    def prepare(self) -> None:
        """The next file exists, has its room on the disk, and its name survives a power cut. Any thread may call this."""
        with self._preparing:
            if not self._closed:
                self._prepare(0)

    def _prepare(self, needed: int) -> None:
        if self._spare is not None:
            if self._spare_bytes >= needed:
                return
            self._spare.close()
            self._spare = None
            self._fs.remove(file_path(LOG, self.file_number + 1))
        self._fs.make_directory(directory(LOG))
        path = file_path(LOG, self.file_number + 1)
        remove_file(self._fs, path)
        file = self._fs.open(path, create=True)
        try:
            size = self._allocate(file, needed)
            file.sync_data()
            self._fs.sync_directory(directory(LOG))
        except OSError:
            file.close()
            self._fs.remove(path)
            raise
        self._spare, self._spare_bytes = file, size

    def _allocate(self, file: File, needed: int) -> int:
        """Reserve the usual size, or on a full disk as little as will do. Returns the size. Raises OSError."""
        small_bytes = min(SMALL_FILE_BYTES, self._file_bytes)
        wanted = (small_bytes, 0) if self.small_files else (self._file_bytes, small_bytes)
        sizes = sorted({max(size, needed) for size in wanted})
        while True:
            size = sizes.pop()
            try:
                file.allocate(size)
                return size
            except OSError as error:
                if not sizes or not is_full(error):
                    raise
                # Part of it may be allocated.
                file.truncate(0)

    @property
    def has_spare(self) -> bool:
        return self._spare is not None

    @property
    def dirty(self) -> bool:
        return self.last_lsn > self.synced_lsn

    def sync(self) -> int:
        """All frames written before the call survive a power cut; answers the last lsn that is covered.

        An OSError is final: `failed` is set and no later sync reports success.
        """
        if self.failed:
            raise OSError("an earlier sync of the log failed")
        # Read in this order: a file that is retired in between is then found in the list.
        covered = self.last_lsn
        file = self._file
        retired = list(self._unsynced)
        try:
            for each in retired:
                each.sync_data()
            if file is not None:
                file.sync_data()
        except OSError:
            self.failed = True
            raise
        for each in retired:
            self._unsynced.remove(each)
            each.close()
        self.synced_lsn = max(self.synced_lsn, covered)
        return covered

    def close(self) -> None:
        """Release the space that was reserved and not used. REQUIRES: everything is synced."""
        for each in self._unsynced:
            each.close()
        self._unsynced = []
        with self._preparing:
            self._closed = True
            if self._spare is not None:
                self._spare.close()
                self._spare = None
                self._fs.remove(file_path(LOG, self.file_number + 1))
        if self._file is not None:
            if not self.failed:
                self._file.truncate(self.offset)
                self._file.sync_data()
            self._file.close()
            self._file = None

    def _take_back(self) -> None:
        """Remove the bytes of a failed write: they must not precede later frames, nor come back after a power cut."""
        assert self._file is not None
        try:
            self._file.truncate(self.offset)
            try:
                self._file.allocate(self._capacity)
            except OSError:
                # Without room to reserve, a shorter file will do: the next frames go to a new one.
                self._file.truncate(self.offset)
                self._capacity = self.offset
            self._file.sync_data()
        except OSError:
            self.failed = True


class TornTail(Struct):
    """Where a shard was cut because its end was not whole."""

    path: str
    offset: int
    dropped_bytes: int


class WalReader:
    """Reads one shard of the log: all whole frames in order, then how it ended."""

    def __init__(self, fs: FileSystem, number: int) -> None:
        self.number = number
        self.last_lsn = 0
        self.torn: TornTail | None = None
        # That of the newest file; 0 for none.
        self.lineage = 0
        # Whether there is room for frames behind the first file's header: then a server may have written some.
        self.begun = False
        self.margin = 0
        # The file that is being read.
        self.path = ""
        self.next_file = 1
        self.bytes = 0
        self.files = file_numbers(fs, number)
        self._from_file = 0
        self._fs = fs
        if self.files:
            self.next_file = self.files[-1] + 1

    def frames(self, from_file: int = 0, last_lsn: int = 0) -> Iterator[Frame]:
        """Whole frames of the files numbered `from_file` and above; `last_lsn` is that of the shard's last one before.

        Raises CorruptStorage when a frame that was safe is gone.
        """
        self.last_lsn = last_lsn
        self._from_file = from_file
        self.next_file = max(self.next_file, from_file)
        numbers = [number for number in self.files if number >= from_file]
        for index, number in enumerate(numbers):
            path = self.path = file_path(self.number, number)
            view = self._view(path)
            header = decode_header(view)
            self.begun = self.begun or index > 0 or len(view) > HEADER_BYTES or header is None
            if header is None and _rest_is_zero(view, 0):
                # Reserved and not begun, or its header was lost with everything behind it.
                continue
            if (
                header is None
                or (header.shard, header.number) != (self.number, number)
                or header.previous_lsn != self.last_lsn
            ):
                self._broken(numbers[index:], path, view, 0)
                return
            self.margin = max(self.margin, header.margin)
            self.lineage = header.lineage
            end = HEADER_BYTES
            for frame in read_frames(view, HEADER_BYTES):
                if frame.lsn <= self.last_lsn:
                    break
                self.last_lsn = frame.lsn
                end = frame.end
                yield frame
            self.bytes += end
            if not _rest_is_zero(view, end):
                self._broken(numbers[index:], path, view, end)
                return

    def has_file(self, number: int) -> bool:
        """Whether the file is there. One that was ever written to is at least as long as its header."""
        if number not in self.files:
            return False
        path = file_path(self.number, number)
        with reading(path):
            file = self._fs.open(path)
            try:
                return file.size() >= HEADER_BYTES
            finally:
                file.close()

    def make_safe(self) -> None:
        """What was read survives a power cut from here on, so that it may be built upon."""
        for number in [each for each in file_numbers(self._fs, self.number) if each >= self._from_file]:
            file = self._fs.open(file_path(self.number, number))
            try:
                file.sync_data()
            finally:
                file.close()

    def repair(self) -> None:
        """Cut off what `frames` found torn, so that later files can follow. Doing it twice does nothing more."""
        torn = self.torn
        if torn is None:
            return
        torn_number = int(torn.path.rsplit("/", 1)[1].removesuffix(".wal"))
        for number in self.files:
            if number > torn_number:
                remove_file(self._fs, file_path(self.number, number))
        file = self._fs.open(torn.path)
        try:
            if not torn.offset:
                # Emptied rather than removed when nothing of it is whole: a snapshot may name it.
                file.write_at(0, [bytes(HEADER_BYTES)])
            file.truncate(max(torn.offset, HEADER_BYTES))
            file.sync_data()
        finally:
            file.close()
        self._fs.sync_directory(directory(self.number))

    def _broken(self, numbers: list[int], path: str, view: memoryview, offset: int) -> None:
        dropped = 0
        for index, number in enumerate(numbers):
            rest, start = (view, offset) if index == 0 else (self._view(file_path(self.number, number)), 0)
            dropped += len(rest[start:].tobytes().rstrip(b"\0"))
            header = decode_header(rest)
            if header is not None and header.synced > self.last_lsn:
                raise CorruptStorage(path, offset, "a frame that was safely stored is broken or missing")
            for frame in find_frames(rest, start, self.last_lsn):
                if frame.synced > self.last_lsn:
                    raise CorruptStorage(path, offset, "a frame that was safely stored is broken or missing")
        self.torn = TornTail(path, offset, dropped)

    def _view(self, path: str) -> memoryview:
        view = map_file(self._fs, path)
        load(view, 0, len(view), path)
        return view


class Header(Struct):
    shard: int
    number: int
    previous_lsn: int
    synced: int
    boot_id: str
    margin: int
    lineage: int = 0


def encode_header(header: Header) -> bytes:
    head = _HEADER.pack(
        _MAGIC,
        VERSION,
        header.shard,
        header.number,
        header.previous_lsn,
        header.synced,
        header.boot_id.encode()[:36],
        min(header.margin, _U32_MAX),
        header.lineage,
    )
    return head + _CHECK.pack(xxh3_64_intdigest(head))


def decode_header(view: memoryview) -> Header | None:
    """None when these bytes are not a whole header."""
    if len(view) < HEADER_BYTES:
        return None
    layout = _HEADER_1 if _VERSION.unpack_from(view)[0] == 1 else _HEADER
    head = bytes(view[: layout.size])
    magic, version, shard, number, previous_lsn, synced, boot_id, margin, *rest = layout.unpack(head)
    whole = _CHECK.unpack_from(view, layout.size)[0] == xxh3_64_intdigest(head)
    if magic != _MAGIC or version not in (1, VERSION) or not whole:
        return None
    text = boot_id.rstrip(b"\0").decode(errors="replace")
    return Header(shard, number, previous_lsn, synced, text, margin, *rest)


def directory(shard: int) -> str:
    return f"{ROOT}/shard-{shard:02d}"


def file_path(shard: int, number: int) -> str:
    return f"{directory(shard)}/{number:012d}.wal"


def file_numbers(fs: FileSystem, shard: int) -> list[int]:
    names = fs.list(directory(shard))
    return sorted(int(name[:-4]) for name in names if name.endswith(".wal") and name[:-4].isdigit())


def remove_files_below(fs: FileSystem, shard: int, number: int) -> None:
    """Files of the shard with a smaller number are gone."""
    old = [each for each in file_numbers(fs, shard) if each < number]
    for each in old:
        remove_file(fs, file_path(shard, each))
    if old:
        fs.sync_directory(directory(shard))


def open_shards(fs: FileSystem) -> list[WalReader]:
    """The log, and every other shard that an earlier version left with files, in the order of their numbers."""
    names = fs.list(ROOT)
    numbers = {int(name[6:]) for name in names if name.startswith("shard-") and name[6:].isdigit()} - {LOG}
    others = [reader for number in sorted(numbers) if (reader := WalReader(fs, number)).files]
    return [WalReader(fs, LOG), *others]


def _ignore(_lsn: int) -> None:
    pass


def _rest_is_zero(view: memoryview, start: int) -> bool:
    zeros = bytes(1 << 20)
    for at in range(start, len(view), len(zeros)):
        chunk = view[at : at + len(zeros)].tobytes()
        if chunk != (zeros if len(chunk) == len(zeros) else bytes(len(chunk))):
            return False
    return True
