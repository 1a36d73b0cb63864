"""The one seam between storage and the disk.

Everything storage does to a disk is a method here, so that `testing.FakeDisk` can stand in for the disk, keep
what was written apart from what was synced, and cut the power between any two calls. Paths are relative to the
root the file system was opened at, with `/` between names; nothing outside the root can be named.
"""

from collections.abc import Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Offsets are explicit: there is no cursor to get wrong."""

    path: str

    def write_at(self, offset: int, parts: Sequence[Bytes]) -> None:
        """All parts stand in the file, one behind the other from `offset`, for every reader of this process.

        Not durable until `sync_data` returns. On OSError any prefix of the bytes may have been written.
        """

    def read_at(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def allocate(self, length: int) -> None:
        """The file is at least `length` long, new bytes read as zeros, and its blocks are reserved on the disk."""

    def truncate(self, length: int) -> None:
        """The file is exactly `length` long. Durable after `sync_data`."""

    def sync_data(self) -> None:
        """All that was written to this file before the call survives a power cut (fdatasync).

        An OSError is final: what was written since the last good sync may be lost although it can still be read.
        """

    def map(self) -> memoryview:
        """A read-only view of the whole file as it is now, paged in on demand. The caller releases it."""

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    """A directory tree. Creations, renames and removals survive a power cut only after `sync_directory`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """An existing file, or with `create` a new empty one (FileExistsError if the name is taken)."""

    def rename(self, source: str, target: str) -> None:
        """Atomic for readers; replaces `target`."""

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def make_directory(self, path: str) -> None:
        """The directory and its parents exist. No error if they do already."""

    def list(self, path: str) -> list[str]:
        """Sorted names in a directory; empty if the directory does not exist."""

    def exists(self, path: str) -> bool: ...

    def sync_directory(self, path: str) -> None:
        """After this, creations, renames and removals in `path` survive a power cut."""

    def lock(self, path: str) -> Lock:
        """Hold the advisory lock file `path` (created if missing) until released or the process ends.

        Raises BlockingIOError when another process holds it.
        """

    def boot_id(self) -> str:
        """Changes whenever the machine has restarted, that is, whenever written but unsynced bytes may be gone."""

    def free_bytes(self) -> int:
        """Room left on the disk under the root."""


def names_in(path: str) -> tuple[str, ...]:
    """The names along a path of the seam, none for the root (`""` or `"."`).

    Every implementation reads paths with this. Raises ValueError for a path that could lead out of the root.
    """
    if path.startswith("/") or "\0" in path:
        raise ValueError(f"not a path below the root: {path!r}")
    names = tuple(name for name in path.split("/") if name not in ("", "."))
    if ".." in names:
        raise ValueError(f"not a path below the root: {path!r}")
    return names
