"""The reserve: disk space that is kept for deletes and for the snapshot that makes them free space.

    reserve := bytes to be covered in decimal digits, 20 bytes | newline | zeros

On a full disk nothing can be freed without writing first: a delete is a frame in the log, and the files it frees are removed
only after a snapshot. So the data directory holds a preallocated file. It is cut to its first block when the log finds no
space, and allocated again when there is enough.

The snapshot also finds the space of files that are removed before it is written (see `kept.py`). The reserve is smaller by
as much: together they cover `wanted_bytes` for the log and the whole snapshot. The first block of a released reserve stays;
it says how much was covered, so that the next start demands as much before it accepts other writes.
"""

import errno
import threading

from topics.model.errors import CorruptStorage
from topics.storage.damaged_files import remove_file
from topics.storage.fs import File, FileSystem
from topics.storage.reading import reading

PATH = "reserve"
# Less is not worth holding.
MIN_BYTES = 64 << 10
# What is left of a released reserve.
_BLOCK_BYTES = 4096
_SIZE_DIGITS = 20


class Reserve:
    """Holds `wanted_bytes` of the disk and what the next snapshot needs; nothing if `wanted_bytes` is 0. Any thread."""

    def __init__(self, fs: FileSystem, wanted_bytes: int) -> None:
        self.wanted_bytes = wanted_bytes
        self.held_bytes = 0
        # Whether as much is covered as should be.
        self.is_held = not wanted_bytes
        self._fs = fs
        self._lock = threading.Lock()
        # The most that was ever covered. A small disk may never have had room for everything. After a release, less than it
        # had before is not enough: the next deletes need it.
        self._min_bytes = self._covered_bytes = min(MIN_BYTES, wanted_bytes)
        if fs.exists(PATH):
            try:
                size, covered = self._read()
            except CorruptStorage:
                remove_file(fs, PATH)
                return
            self.held_bytes = size if size > _BLOCK_BYTES else 0
            self._covered_bytes = max(self._covered_bytes, int(covered) if covered.isdigit() else 0)

    def hold(self, snapshot_bytes: int = 0, removable_bytes: int = 0) -> bool:
        """Reserve `wanted_bytes` and what a snapshot of this size takes beyond `removable_bytes`, or what the disk has of it.

        Returns `is_held`: as much is covered as is needed now, or at least as much as ever was. Raises OSError.
        """
        with self._lock:
            if not self.wanted_bytes:
                if self._fs.exists(PATH):
                    self._fs.remove(PATH)
                self.held_bytes = 0
                return True
            needed_bytes = self.wanted_bytes + snapshot_bytes
            removable_bytes = min(removable_bytes, snapshot_bytes)
            least_bytes = max(min(self._covered_bytes, needed_bytes) - removable_bytes, self._min_bytes)
            size = needed_bytes - removable_bytes
            if self.held_bytes > size:
                self._resize(size)
            while self.held_bytes < size:
                try:
                    self._resize(size)
                except OSError as error:
                    if not is_full(error):
                        raise
                    if size <= least_bytes:
                        break
                    size = max(size // 2, least_bytes, self.held_bytes)
            self.is_held = self.held_bytes >= least_bytes
            if self.is_held and self.held_bytes + removable_bytes > self._covered_bytes:
                self._covered_bytes = self.held_bytes + removable_bytes
                self._resize(self.held_bytes)
            return self.is_held

    def release(self) -> None:
        """Return it to the disk. Raises OSError."""
        with self._lock:
            if self.held_bytes:
                file = self._fs.open(PATH)
                try:
                    file.truncate(min(_BLOCK_BYTES, self.held_bytes))
                    self.held_bytes = 0
                    self.is_held = False
                    # File systems may keep the space until then.
                    file.sync_data()
                finally:
                    file.close()

    def _read(self) -> tuple[int, bytes]:
        """The size of the file, and how much it says was covered."""
        with reading(PATH):
            file = self._fs.open(PATH)
            try:
                return file.size(), file.read_at(0, _SIZE_DIGITS)
            finally:
                file.close()

    def _resize(self, size: int) -> None:
        """The file has this size, durably, or the one it had."""
        created = not self._fs.exists(PATH)
        file = self._fs.open(PATH, create=created)
        before = file.size()
        try:
            self._write(file, size)
            file.sync_data()
            if created:
                self._fs.sync_directory("")
        except OSError:
            # Part of the space may have been allocated.
            if created:
                file.close()
                self._fs.remove(PATH)
            else:
                file.truncate(before)
            raise
        finally:
            file.close()
        self.held_bytes = size

    def _write(self, file: File, size: int) -> None:
        if size < file.size():
            file.truncate(size)
        else:
            file.allocate(size)
        file.write_at(0, [b"%0*d\n" % (_SIZE_DIGITS, self._covered_bytes)])


def is_full(error: BaseException) -> bool:
    """Whether the disk, or the user's part of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
