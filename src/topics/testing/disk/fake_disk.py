"""A disk in memory that can lose power, fail a call or run full at any step.

It passes the same suite as `OsFileSystem` and promises no more than the seam does: what was written is kept apart
from what was synced (`tree.py`).

Every call that changes something is a step, counted from 0. With `cut_at=k` the k-th step does not happen, or if
it is a write any part of it happens: it raises `PowerCut`, and so does every call from then on. What ended the
process is said afterwards: `after_power_cut` is the disk that the next boot finds (`survival.py` says what may be
on it), `after_kill` the one that the next process finds when only the process died. Both are new disks, alive; the
old one stays as it was and can be asked again:

    for step in itertools.count():
        disk = FakeDisk(seed, cut_at=step)
        acked = write_until_power_goes(disk)
        assert acked <= recovered(disk.after_power_cut()), disk.trace
        if not disk.was_cut:
            break

A rename between two directories needs a sync of both; until then the file may be found under both names. A new
directory needs a sync of its parent like any other name, whatever was synced inside it.

A failed `sync_data` is final, as on Linux: the bytes count as clean from then on, so a later good `sync_data`
leaves them behind although they can still be read. A failed `sync_directory` leaves names as unsynced as they were.
"""

import copy
import errno
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from topics.storage.fs import Bytes, Mark, names_in
from topics.testing.disk.survival import InFlight, Survival, Survive, Torn
from topics.testing.disk.tree import DirectoryNode, FileNode, Grow, Tree, Truncate, Write, os_error


class PowerCut(BaseException):
    """The machine is off. Not an Exception, so that no handler in the code under test takes it for an error."""


@dataclass(frozen=True)
class ShortWrite:
    """A fault of `write_at`: the first `written` bytes reach the file, then the call fails with `error`."""

    written: int
    error: int = errno.ENOSPC


# What to do to a step: raise this error (or the OSError of this errno), or write less than asked.
Fault = OSError | int | ShortWrite


class Step(NamedTuple):
    """One line of the trace: `op` is the seam's method, `detail` its arguments and, if it did not end well, how."""

    step: int
    op: str
    path: str
    detail: str


class FakeDisk:
    """An in-memory `FileSystem`. Everything it leaves to chance follows from `seed`.

    `cut_at` and `fail_at` count steps; `fault(step, op, path)` may choose by name instead. All three may be changed
    while the disk is in use. `steps` is how many steps were begun, so `disk.cut_at = disk.steps` cuts the
    next one. Files whose path is in `unreadable` cannot be read (EIO). With `capacity_bytes` a file that would grow past it fails with ENOSPC; a write keeps what still
    fitted. A smaller `sector_bytes` makes more disorder out of few bytes.
    """

    def __init__(
        self,
        seed: int = 0,
        cut_at: int | None = None,
        fail_at: Mapping[int, Fault] | None = None,
        *,
        fault: Callable[[int, str, str], Fault | None] | None = None,
        capacity_bytes: int | None = None,
        sector_bytes: int = 512,
    ) -> None:
        self.seed = seed
        self.cut_at = cut_at
        self.fail_at = dict(fail_at or {})
        self.fault = fault
        self.capacity_bytes = capacity_bytes
        self.sector_bytes = sector_bytes

        self.unreadable: set[str] = set()
        # What the marker holds, and whether one can be kept.
        self.mark: Mark | None = None
        self.keeps_marker = True
        self.steps = 0
        self.was_cut = False
        self.trace: list[Step] = []

        self._guard = threading.RLock()
        self._boot = 1
        self._tree = Tree()
        self._locked: set[tuple[str, ...]] = set()
        self._in_flight: InFlight | None = None

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "FakeDisk":
        """A new empty disk; `path` is where a real one would be, and nothing is put there."""
        return cls()

    def __repr__(self) -> str:
        cut = "" if self.cut_at is None else f", cut_at={self.cut_at}"
        return f"<FakeDisk(seed={self.seed}{cut}) after {self.steps} steps{', power is out' * self.was_cut}>"

    def open(self, path: str, *, create: bool = False) -> "FakeFile":
        _refuse_root(path)
        with self._guard:
            if create:
                self._begin("open", path, "create")
                return FakeFile(self, path, self._tree.create(path))
            self._require_power()
            return FakeFile(self, path, self._tree.file(path))

    def rename(self, source: str, target: str) -> None:
        _refuse_root(source)
        _refuse_root(target)
        with self._guard:
            self._begin("rename", source, f"to {target}")
            self._tree.rename(source, target)

    def remove(self, path: str) -> None:
        _refuse_root(path)
        with self._guard:
            self._begin("remove", path)
            self._tree.remove(path)

    def remove_directory(self, path: str) -> None:
        _refuse_root(path)
        with self._guard:
            self._begin("remove_directory", path)
            self._tree.remove_directory(path)

    def make_directory(self, path: str) -> None:
        names_in(path)
        with self._guard:
            self._begin("make_directory", path)
            self._tree.make_directory(path)

    def list(self, path: str) -> list[str]:
        with self._guard:
            self._require_power()
            try:
                return sorted(self._tree.directory(path).names)
            except FileNotFoundError:
                return []

    def exists(self, path: str) -> bool:
        with self._guard:
            self._require_power()
            try:
                self._tree.node(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def sync_directory(self, path: str) -> None:
        names_in(path)
        with self._guard:
            self._begin("sync_directory", path)
            self._tree.sync_directory(path)

    def lock(self, path: str) -> "FakeLock":
        """Creating the lock file is a step; locking one that is there changes nothing and is none."""
        _refuse_root(path)
        with self._guard:
            if not self.exists(path):
                self._begin("lock", path, "create")
                self._tree.create(path)
            self._tree.file(path)
            names = names_in(path)
            if names in self._locked:
                raise BlockingIOError(errno.EAGAIN, "lock is held", path)
            self._locked.add(names)
            return FakeLock(self, names)

    def boot_id(self) -> str:
        with self._guard:
            self._require_power()
            return f"boot-{self._boot}"

    def marker(self) -> "FakeMarker":
        with self._guard:
            self._require_power()
            return FakeMarker(self)

    def free_bytes(self) -> int:
        with self._guard:
            self._require_power()
            return self._free_bytes()

    def after_power_cut(
        self,
        survive: Survive = "random",
        *,
        torn: Torn | None = None,
        torn_bytes: int | None = None,
        seed: int | None = None,
    ) -> "FakeDisk":
        """The disk as the next boot may find it: all that was synced, and of the rest what `survive` says.

            none     nothing else
            all      everything that was written, and the write in flight as far as it came
            random   anything that can be, by `seed` (the disk's own if not given)

        `torn` says how the write in flight ends and `torn_bytes` how much of it came before that; the seed chooses
        what is not given. On a disk that was not cut the power goes out between two calls.
        """
        with self._guard:
            disk = self._successor(self.seed if seed is None else seed)
            chance = self._chance(disk.seed, f"power cut, {survive}")
            in_flight = None
            if self._in_flight is not None:
                write = self._in_flight.torn(self.sector_bytes, chance, torn, torn_bytes)
                in_flight = (self._in_flight.file, write)
            disk._boot = self._boot + 1
            disk._tree = Survival(survive, self.sector_bytes, chance).of(self._tree, in_flight)
            return disk

    def after_kill(self, *, torn_bytes: int | None = None) -> "FakeDisk":
        """The disk as the next process finds it after a kill: all that was written, synced or not, and no locks.

        The step that `cut_at` stopped did not happen, or if it is a write its first `torn_bytes` did (by chance
        if not given). What was unsynced still is: a power cut may yet take it.
        """
        with self._guard:
            disk = self._successor(self.seed)
            disk.mark = self.mark
            disk._tree, in_flight = copy.deepcopy((self._tree, self._in_flight))
            if in_flight is not None:
                chance = self._chance(self.seed, "kill")
                in_flight.file.change(in_flight.torn(self.sector_bytes, chance, "prefix", torn_bytes))
            return disk

    def restored_from(self, copy: "FakeDisk") -> "FakeDisk":
        """The same machine, not restarted, after its disk was replaced by a copy of an earlier moment."""
        with self._guard:
            disk = copy.after_kill()
            disk.mark, disk._boot = self.mark, self._boot
            return disk

    def continue_from(self, disk: "FakeDisk") -> None:
        """Take over the files and the boot of another disk, which is not used any more."""
        self._boot, self.mark, self._tree = disk._boot, disk.mark, disk._tree

    def snapshot_tree(self) -> dict[str, bytes]:
        """What readers see: every file's content by its path, and nothing under `path/` for a directory.

        For messages and comparisons; works with the power out.
        """
        with self._guard:
            tree = {}
            for path, node in self._tree.walk():
                if isinstance(node, DirectoryNode):
                    tree[f"{path}/"] = b""
                else:
                    tree[path] = node.current.read(0, node.current.length)
            return tree

    def _begin(self, op: str, path: str, detail: str = "", in_flight: InFlight | None = None) -> ShortWrite | None:
        """Count a step, and end it here if the power goes out or a fault says so."""
        self._require_power()
        step = self.steps
        self.steps += 1
        if self.cut_at is not None and step >= self.cut_at:
            self.was_cut = True
            self._in_flight = in_flight
            self._note(step, op, path, detail, "power cut")
            raise PowerCut(f"at step {step}: {op} {path}")
        fault = self.fail_at.get(step)
        if fault is None and self.fault is not None:
            fault = self.fault(step, op, path)
        if isinstance(fault, int):
            fault = os_error(fault, path)
        self._note(step, op, path, detail, "" if fault is None else str(fault))
        if isinstance(fault, OSError):
            raise fault
        assert fault is None or op == "write_at", f"step {step} is no write that could be short: {op} {path}"
        return fault

    def _note(self, step: int, op: str, path: str, detail: str, ended: str) -> None:
        self.trace.append(Step(step, op, path, " -> ".join(part for part in (detail, ended) if part)))

    def _require_power(self) -> None:
        if self.was_cut:
            raise PowerCut(f"the power has been out since step {self.steps - 1}")

    def _free_bytes(self) -> int:
        capacity = 1 << 50 if self.capacity_bytes is None else self.capacity_bytes
        return max(capacity - sum(file.current.length for file in self._tree.files()), 0)

    def _successor(self, seed: int) -> "FakeDisk":
        """The same hardware, with no step behind it and no fault ahead."""
        disk = FakeDisk(seed, capacity_bytes=self.capacity_bytes, sector_bytes=self.sector_bytes)
        disk._boot = self._boot
        disk.keeps_marker = self.keeps_marker
        return disk

    def _chance(self, seed: int, purpose: str) -> random.Random:
        return random.Random(f"{seed}, boot {self._boot}, step {self.steps}, {purpose}")


class FakeFile:
    """One open file of a `FakeDisk`. It stays readable and writable when its name is removed."""

    def __init__(self, disk: FakeDisk, path: str, node: FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._closed = False

    def write_at(self, offset: int, parts: Sequence[Bytes]) -> None:
        data = b"".join(parts)
        with self._disk._guard:
            self._require_open()
            in_flight = InFlight(self._node, offset, data)
            short = self._disk._begin("write_at", self.path, f"{len(data)} bytes at {offset}", in_flight)
            if offset < 0:
                raise os_error(errno.EINVAL, self.path)
            lacking = self._room_lacking(offset + len(data))
            if short is None and lacking > 0:
                short = ShortWrite(max(len(data) - lacking, 0))
            self._node.change(Write(offset, data if short is None else data[: short.written]))
            if short is not None:
                raise os_error(short.error, self.path)

    def read_at(self, offset: int, length: int) -> bytes:
        with self._disk._guard:
            self._require_open()
            if offset < 0 or length < 0:
                raise os_error(errno.EINVAL, self.path)
            self._require_readable()
            return self._node.current.read(offset, length)

    def size(self) -> int:
        with self._disk._guard:
            self._require_open()
            return self._node.current.length

    def allocate(self, length: int) -> None:
        if length < 0:
            raise ValueError(f"length {length} is negative")
        with self._disk._guard:
            self._require_open()
            self._disk._begin("allocate", self.path, f"{length} bytes")
            if self._room_lacking(length) > 0:
                raise os_error(errno.ENOSPC, self.path)
            self._node.change(Grow(length))

    def truncate(self, length: int) -> None:
        with self._disk._guard:
            self._require_open()
            self._disk._begin("truncate", self.path, f"to {length} bytes")
            if length < 0:
                raise os_error(errno.EINVAL, self.path)
            self._node.change(Truncate(length))

    def sync_data(self) -> None:
        with self._disk._guard:
            self._require_open()
            try:
                self._disk._begin("sync_data", self.path)
            except OSError:
                self._node.fail_sync()
                raise
            self._node.sync()

    def map(self) -> memoryview:
        """A snapshot: unlike a real mapping it does not show what is written later."""
        with self._disk._guard:
            self._require_open()
            self._require_readable()
            return memoryview(self._node.current.read(0, self._node.current.length))

    def close(self) -> None:
        """Idempotent, and quiet when the power is out, so that a test can tidy up behind a cut."""
        self._closed = True

    def _require_open(self) -> None:
        self._disk._require_power()
        if self._closed:
            raise os_error(errno.EBADF, self.path)

    def _require_readable(self) -> None:
        if self.path in self._disk.unreadable:
            raise os_error(errno.EIO, self.path)

    def _room_lacking(self, length: int) -> int:
        """How many bytes too few the disk has for this file to be `length` long; not positive if it has enough."""
        growth = length - self._node.current.length
        if self._disk.capacity_bytes is None or growth <= 0:
            return 0
        return growth - self._disk._free_bytes()


class FakeMarker:
    """The marker of a `FakeDisk`. Writing it is no step: it is no part of the disk."""

    def __init__(self, disk: FakeDisk) -> None:
        self._disk = disk
        self._begun = False

    def read(self) -> Mark | None:
        return self._disk.mark

    def begin(self, mark: Mark) -> None:
        if not self._disk.keeps_marker:
            raise os_error(errno.EACCES, "marker")
        self._begun = True
        self._disk.mark = mark

    def advance(self, lsn: int) -> None:
        mark = self._disk.mark
        if self._begun and mark is not None:
            self._disk.mark = Mark(mark.lineage, mark.first_lsn, lsn)


class FakeLock:
    """A held lock of a `FakeDisk`; `after_power_cut` and `after_kill` are disks without it."""

    def __init__(self, disk: FakeDisk, names: tuple[str, ...]) -> None:
        self._disk = disk
        self._names = names
        self._held = True

    def release(self) -> None:
        """Idempotent, and quiet when the power is out."""
        with self._disk._guard:
            if self._held:
                self._disk._locked.discard(self._names)
            self._held = False


def _refuse_root(path: str) -> None:
    if not names_in(path):
        raise ValueError(f"names the root: {path!r}")
