"""The file system interface on Linux: each method is one or two system calls; no caching, no retry after an error.

Three guarantees need more than the system call of the same name:

- `fdatasync` also flushes the length of the file, so appended bytes are found again. It does not flush the name of a
  new file: `sync_directory` does.
- `pwritev` takes a limited number of parts and may write fewer bytes than given, so `write_at` continues until all bytes
  are written or an error is raised.
- The root itself is named in a directory outside of the interface. `make_directory` syncs that directory when it
  creates the root.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import uuid
from collections.abc import Sequence

from topics.storage.fs import Bytes, names_in
from topics.storage.os_marker import DEFAULT_DIRECTORY, OsMarker

# Parts per pwritev call on Linux, equal to `os.sysconf("SC_IOV_MAX")`.
IOV_MAX = 1024

# Only the user of the server may read payloads. A backup runs as that user or as root.
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

# Descriptor number of a closed file: every call fails with EBADF. Some calls raise ValueError for a negative number.
_CLOSED = 0x7FFFFFFF

# Errors of file systems that cannot reserve blocks.
_CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_ZEROS = bytes(1 << 20)


class OsFileSystem:
    """The directory tree below one root directory."""

    def __init__(self, root: str, runtime_directory: str = DEFAULT_DIRECTORY) -> None:
        self._root = root
        self._runtime_directory = runtime_directory

    @classmethod
    def at(cls, root: str | os.PathLike[str], runtime_directory: str = DEFAULT_DIRECTORY) -> "OsFileSystem":
        """Return the tree below `root`. Creates nothing: a missing root is an empty tree until `make_directory`."""
        return cls(os.path.abspath(os.fspath(root)), runtime_directory)

    def open(self, path: str, *, create: bool = False) -> "OsFile":
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return OsFile(path, os.open(self._below_root(path), flags, FILE_MODE))

    def rename(self, source: str, target: str) -> None:
        os.replace(self._below_root(source), self._below_root(target))

    def remove(self, path: str) -> None:
        os.unlink(self._below_root(path))

    def remove_directory(self, path: str) -> None:
        os.rmdir(self._below_root(path))

    def make_directory(self, path: str) -> None:
        """As in `FileSystem`. Directories below the root get mode 0700, existing ones too.

        An existing root keeps its mode: it may hold files of other users.
        """
        target = self._full(path)
        self._make_root()
        full = self._root
        for name in names_in(path):
            full = f"{full}/{name}"
            try:
                os.mkdir(full, DIRECTORY_MODE)
            except FileExistsError:
                if os.path.isdir(full):
                    _close_to_others(full)
                elif full == target:
                    raise

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
        descriptor = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
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

    def marker(self) -> OsMarker:
        return OsMarker(self._runtime_directory, self._root, self.boot_id())

    def free_bytes(self) -> int:
        disk = os.statvfs(self._root)
        return disk.f_bavail * disk.f_frsize

    def _full(self, path: str) -> str:
        return "/".join((self._root, *names_in(path)))

    def _below_root(self, path: str) -> str:
        """Like `_full`, but refuse the root itself."""
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
            # The mode is for the root alone; its missing parents get the usual one.
            os.makedirs(self._root, DIRECTORY_MODE, exist_ok=True)
        for directory in missing:
            _sync_directory(os.path.dirname(directory))


class OsFile:
    """One open file. A closed one answers every call with OSError (EBADF)."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def write_at(self, offset: int, parts: Sequence[Bytes]) -> None:
        # Called once per turn of the event loop. The common case is one complete write of few parts; the rest is in
        # `_write_rest`.
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
        # A short read is the end of the file or an early stop of the kernel; only an empty read means the end.
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
            # The kernel cannot map an empty range.
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
        """Write the rest of `parts` after their first `written` bytes were written at `offset`."""
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
                raise OSError(errno.EIO, "write returned 0 bytes without an error", self.path)
            offset += written

    def _write_zeros(self, start: int, end: int) -> None:
        """Reserve blocks by writing zeros, in ascending order so that an error leaves no hole."""
        for offset in range(start, end, len(_ZEROS)):
            self.write_at(offset, [memoryview(_ZEROS)[: end - offset]])


class OsLock:
    """A held flock. The kernel releases it when the process ends, also after a kill."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Idempotent. The lock file stays: removing it would let two holders lock two files of one name."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)


def boot_id(proc: str) -> str:
    """Return the id of this boot, read from the proc file system mounted at `proc`.

    If it cannot be read, return a new id each time: assuming a reboot that did not happen costs a little work, missing
    one costs data.
    """
    with contextlib.suppress(OSError), open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    with contextlib.suppress(OSError), open(f"{proc}/stat", encoding="ascii") as file:
        for line in file:
            if line.startswith("btime "):
                return f"booted-at-{line.split()[1]}"
    return f"unknown-{uuid.uuid4()}"


def _close_to_others(full: str) -> None:
    """Remove the permissions of group and others that an earlier version or a restored backup has left."""
    mode = stat.S_IMODE(os.stat(full).st_mode)
    if mode & 0o077:
        # A directory owned by another user was configured by the operator.
        with contextlib.suppress(PermissionError):
            os.chmod(full, mode & 0o700)


def _sync_directory(full: str) -> None:
    descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
