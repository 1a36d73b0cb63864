"""The file system interface: the only way storage reaches the disk.

Every disk operation is a method here, so `testing.FakeDisk` can replace the disk, distinguish written from synced bytes,
and cut the power between any two calls. Paths are relative to the
root the file system was opened at, with `/` between names; nothing outside the root can be named.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

Bytes = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Offsets are explicit; there is no cursor."""

    path: str

    def write_at(self, offset: int, parts: Sequence[Bytes]) -> None:
        """Write all parts consecutively from `offset`. Every reader of this process sees them on return.

        Not durable until `sync_data` returns. On OSError any prefix of the bytes may have been written.
        """

    def read_at(self, offset: int, length: int) -> bytes:
        """Return `length` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def allocate(self, length: int) -> None:
        """Extend the file to at least `length` bytes of reserved disk blocks; new bytes read as zeros."""

    def truncate(self, length: int) -> None:
        """Set the length of the file. Durable after `sync_data`."""

    def sync_data(self) -> None:
        """Make everything written to this file before the call survive a power cut (fdatasync).

        An OSError is final: bytes written since the last successful sync may be lost although they can still be read.
        """

    def map(self) -> memoryview:
        """Return a read-only view of the whole current file, paged in on demand. The caller releases it."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Mark(Struct, frozen=True):
    """The first and the last written lsn of a lineage of the log."""

    lineage: int
    first_lsn: int
    lsn: int


class Marker(Protocol):
    """A few bytes per data directory that survive a killed process, but neither a reboot nor the restore of a disk."""

    def read(self) -> Mark | None:
        """Return the mark of the last process of this boot, None if there is none."""

    def begin(self, mark: Mark) -> None:
        """Replace the mark. Raises OSError if no marker can be stored; `advance` does nothing then."""

    def advance(self, lsn: int) -> None:
        """Record that the log is written up to `lsn`. Cheaper than a system call."""


class FileSystem(Protocol):
    """A directory tree. Creations, renames and removals survive a power cut only after `sync_directory`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open an existing file, or with `create` a new empty one (FileExistsError if the name exists)."""

    def rename(self, source: str, target: str) -> None:
        """Atomic for readers; replaces `target`."""

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents. No error if they exist."""

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty if it does not exist."""

    def exists(self, path: str) -> bool: ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in `path` survive a power cut."""

    def lock(self, path: str) -> Lock:
        """Hold the advisory lock file `path` (created if missing) until released or the process ends.

        Raises BlockingIOError when another process holds it.
        """

    def boot_id(self) -> str:
        """Return an id of this boot of the machine. A new id means that written but unsynced bytes may be lost."""

    def marker(self) -> Marker: ...

    def free_bytes(self) -> int:
        """Return the free bytes of the disk that holds the root."""


def names_in(path: str) -> tuple[str, ...]:
    """Split a path into names; none for the root (`""` or `"."`).

    All implementations parse paths with this. Raises ValueError for a path that could lead out of the root.
    """
    if path.startswith("/") or "\0" in path:
        raise ValueError(f"not a path below the root: {path!r}")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise ValueError(f"not a path below the root: {path!r}")
    return names
