"""The seam on a real disk: every method one or two system calls, nothing cached, nothing retried after an error.

Linux is meant. Three promises need more than the call of the same name:

- `fdatasync` also flushes the file's length, so that appended bytes can be found again; it leaves out only the
  times. It does not flush the name of a new file: that is what `sync_directory` is for.
- `pwritev` takes a bounded number of parts and may write fewer bytes than it was given, so a write goes on where
  the kernel stopped until all is written or an error says why not.
- The root's own name lies in a directory outside the seam, which nobody could sync through it. So
  `make_directory` syncs that one itself when it has to make the root.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import uuid
from collections.abc import Sequence

from topics.storage.fs import Bytes, names_in

# What Linux takes in one call; `os.sysconf("SC_IOV_MAX")` says the same.
IOV_MAX = 1024

# Readable by the group, so that a backup needs no superuser; never by everyone.
_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o750

# Stands for a closed descriptor: every call with it fails with EBADF, where a negative one is a ValueError to some.
_CLOSED = 0x7FFFFFFF

# How file systems say that they cannot reserve blocks.
_CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_ZEROS = bytes(1 << 20)


class OsFileSystem:
    """The tree under one directory of this machine."""

    def __init__(self, root: str) -> None:
        self._root = root

    @classmethod
    def at(cls, root: str | os.PathLike[str]) -> "OsFileSystem":
        """The tree under `root`. Touches nothing: a missing root is an empty tree until `make_directory`."""
        return cls(os.path.abspath(os.fspath(root)))

    def open(self, path: str, *, create: bool = False) -> "OsFile":
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return OsFile(path, os.open(self._below_root(path), flags, _FILE_MODE))

    def rename(self, source: str, target: str) -> None:
        os.replace(self._below_root(source), self._below_root(target))

    def remove(self, path: str) -> None:
        os.unlink(self._below_root(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(self._below_root(path))

    def make_directory(self, path: str) -> None:
        full = self._full(path)
        self._make_root()
        os.makedirs(full, _DIRECTORY_MODE, exist_ok=True)

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._full(path)))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))

    def sync_directory(self, path: str) -> None:
        _sync_directory(self._full(path))

    def lock(self, path: str) -> "OsLock":
        full = self._below_root(path)
        descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise BlockingIOError(error.errno, "lock is held", path) from error
            raise
        return OsLock(descriptor)

    def boot_id(self) -> str:
        return boot_id("/proc")

    def free_bytes(self) -> int:
        disk = os.statvfs(self._root)
        return disk.f_bavail * disk.f_frsize

    def _full(self, path: str) -> str:
        return "/".join((self._root, *names_in(path)))

    def _below_root(self, path: str) -> str:
        """As `_full`, for calls that the root itself must never be given to."""
        if not names_in(path):
            raise ValueError(f"names the root: {path!r}")
        return self._full(path)

    def _make_root(self) -> None:
        missing = []
        directory = self._root
        while not os.path.exists(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        if missing:
            os.makedirs(self._root, _DIRECTORY_MODE, exist_ok=True)
        for directory in missing:
            _sync_directory(os.path.dirname(directory))


class OsFile:
    """One open file. A closed one answers every call with OSError (EBADF)."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def write_at(self, offset: int, parts: Sequence[Bytes]) -> None:
        # Called once per turn of the event loop. Few parts written in one go is all that happens on a healthy disk,
        # so nothing is prepared for the other cases until one of them is there.
        if len(parts) == 1:
            part = parts[0]
            written = os.pwrite(self._descriptor, part, offset)
            if written == len(part):
                return
        elif len(parts) <= IOV_MAX:
            written = os.pwritev(self._descriptor, parts, offset)
            if written == sum(map(len, parts)):
                return
        else:
            written = 0
        self._write_rest(offset, parts, written)

    def read_at(self, offset: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, offset)
        if len(data) == length:
            return data
        # Short: the end of the file, or the kernel stopped early; only an empty read tells which.
        pieces = [data]
        while data and length > len(data):
            offset += len(data)
            length -= len(data)
            data = os.pread(self._descriptor, length, offset)
            pieces.append(data)
        return b"".join(pieces)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def allocate(self, length: int) -> None:
        if length < 0:
            raise ValueError(f"length {length} is negative")
        if length == 0:
            return
        try:
            os.posix_fallocate(self._descriptor, 0, length)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
            self._write_zeros(self.size(), length)

    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    def sync_data(self) -> None:
        os.fdatasync(self._descriptor)

    def map(self) -> memoryview:
        length = self.size()
        if length == 0:
            # The kernel maps no empty range.
            return memoryview(b"")
        # The view holds the only reference to the mapping: releasing the one unmaps the other. Until then the
        # mapping keeps a file descriptor of its own, so it outlives `close`.
        return memoryview(mmap.mmap(self._descriptor, length, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """Idempotent: the number of a closed descriptor may belong to another file already."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def _write_rest(self, offset: int, parts: Sequence[Bytes], written: int) -> None:
        """Write what is left of `parts` when their first `written` bytes stand in the file at `offset`."""
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        offset += written
        first = 0
        while True:
            while first < len(views) and written >= len(views[first]):
                written -= len(views[first])
                first += 1
            if first == len(views):
                return
            views[first] = views[first][written:]
            written = os.pwritev(self._descriptor, views[first : first + IOV_MAX], offset)
            if written == 0:
                raise OSError(errno.EIO, "the disk took no bytes and gave no reason", self.path)
            offset += written

    def _write_zeros(self, start: int, end: int) -> None:
        """Reserve blocks the slow way. Written upwards, so that an error leaves zeros and no hole."""
        for offset in range(start, end, len(_ZEROS)):
            self.write_at(offset, [memoryview(_ZEROS)[: end - offset]])


class OsLock:
    """A held flock: the kernel releases it when the process ends, however it ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Idempotent. The lock file stays: removing it would let two holders lock two files of one name."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)


def boot_id(proc: str) -> str:
    """What tells this boot from every other, read from the proc file system mounted at `proc`.

    Where nothing can be read, a new id each time: to suspect a restart that never was costs a little work, to
    miss one costs data.
    """
    with contextlib.suppress(OSError), open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    with contextlib.suppress(OSError), open(f"{proc}/stat", encoding="ascii") as file:
        for line in file:
            if line.startswith("btime "):
                return f"booted-at-{line.split()[1]}"
    return f"unknown-{uuid.uuid4()}"


def _sync_directory(full: str) -> None:
    descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
