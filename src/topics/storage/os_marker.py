"""The marker of a data directory on a real machine: a small file in memory, beside the disk.

    <runtime directory>/topics-<user>-<device>-<inode>-<generation> :=
        "TOPICMRK" | boot id, 36 bytes of text | 0 u32 | lineage u64 | first lsn u64 | last lsn u64 |
        length u32 | path of the data directory | zeros up to 4096 bytes

The runtime directory is a tmpfs, `/dev/shm` by default. So the file outlives a killed process, does not outlive the machine,
and is no part of a copy of the volume that holds the data directory. That is what makes it a proof (see `broker/durability/recovery.py`).
The name identifies the data directory itself: a volume that is restored has the same, a directory that is created again has
another one, even if it gets the inode of one that was removed.

The file is mapped: an update costs no system call. Files of other users are never opened: anyone may create files there.
Markers of directories that are gone are removed when a server starts.
"""

import contextlib
import fcntl
import mmap
import os
import stat
from struct import Struct as Layout

from topics.storage.fs import Mark

DEFAULT_DIRECTORY = "/dev/shm"
_MAGIC = b"TOPICMRK"
_LAYOUT = Layout("<8s36s4xQQQI")
_LSN = Layout("<Q")
_LSN_OFFSET = _LAYOUT.size - 4 - _LSN.size
_FILE_BYTES = 4096
# FS_IOC_GETVERSION: a number that tells inodes apart which had the same number one after the other.
_GET_GENERATION = 0x80087601


class OsMarker:
    """Belongs to the process that holds the directory's lock."""

    def __init__(self, runtime_directory: str, root: str, boot_id: str) -> None:
        self._runtime_directory = runtime_directory
        self._root = root
        self._boot_id = boot_id.encode()[:36].ljust(36, b"\0")
        self._map: mmap.mmap | None = None

    def read(self) -> Mark | None:
        try:
            descriptor = _open(f"{self._runtime_directory}/{_name(self._root)}", os.O_RDONLY)
        except OSError:
            return None
        try:
            data = os.pread(descriptor, _LAYOUT.size, 0)
        finally:
            os.close(descriptor)
        if len(data) < _LAYOUT.size:
            return None
        magic, boot_id, lineage, first_lsn, lsn, _ = _LAYOUT.unpack(data)
        if magic != _MAGIC or boot_id != self._boot_id:
            return None
        return Mark(lineage, first_lsn, lsn)

    def begin(self, mark: Mark) -> None:
        self._remove_others()
        root = os.fsencode(self._root)[: _FILE_BYTES - _LAYOUT.size]
        head = _LAYOUT.pack(_MAGIC, self._boot_id, mark.lineage, mark.first_lsn, mark.lsn, len(root))
        descriptor = _open(f"{self._runtime_directory}/{_name(self._root)}", os.O_RDWR | os.O_CREAT)
        try:
            # Written whole: a mapped page without memory behind it would kill the process.
            os.pwrite(descriptor, (head + root).ljust(_FILE_BYTES, b"\0"), 0)
            self._map = mmap.mmap(descriptor, _FILE_BYTES)
        finally:
            os.close(descriptor)

    def advance(self, lsn: int) -> None:
        if self._map is not None:
            _LSN.pack_into(self._map, _LSN_OFFSET, lsn)

    def _remove_others(self) -> None:
        """Remove markers of this user whose data directories are gone."""
        prefix = f"topics-{os.geteuid()}-"
        for name in os.listdir(self._runtime_directory):
            if name.startswith(prefix):
                path = f"{self._runtime_directory}/{name}"
                with contextlib.suppress(OSError):
                    if not _has_directory(path, name):
                        os.unlink(path)


def _has_directory(path: str, name: str) -> bool:
    """Whether the directory that the marker names is still that directory."""
    descriptor = _open(path, os.O_RDONLY)
    try:
        data = os.pread(descriptor, _FILE_BYTES, 0)
    finally:
        os.close(descriptor)
    if len(data) < _LAYOUT.size or data[:8] != _MAGIC:
        # Another server may be creating it right now.
        return True
    length = _LAYOUT.unpack_from(data)[-1]
    try:
        return _name(os.fsdecode(data[_LAYOUT.size : _LAYOUT.size + length])) == name
    except FileNotFoundError:
        return False


def _name(root: str) -> str:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        generation = b""
        with contextlib.suppress(OSError):
            generation = fcntl.ioctl(descriptor, _GET_GENERATION, bytes(8))
    finally:
        os.close(descriptor)
    number = int.from_bytes(generation[:4], "little")
    return f"topics-{os.geteuid()}-{status.st_dev:x}-{status.st_ino:x}-{number:x}"


def _open(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        os.close(descriptor)
        raise PermissionError(f"{path} is not a file of this user")
    return descriptor
