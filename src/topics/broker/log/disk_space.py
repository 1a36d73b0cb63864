"""What may be written on a full disk.

    normal    the reserve is held, every commit may be written
       |  ^
       |  |   the reserve could be allocated again: after a checkpoint, after files were removed, or by a timer
       v  |
    low       the log found no space for a delete, a checkpoint found none, or the reserve could not be made as large as the
              next snapshot needs. The reserve is released. Only commits that free space, and the checkpoints that remove
              files, are written; every other commit is refused with `storage_full`.

The reserve and the spare files (`storage/snapshots/kept.py`) cover the next snapshot, whose size is bounded: a checkpoint begins when
the log has grown by `checkpoint_bytes`, so the snapshot is larger than the last one by about that at most. While space is
low a checkpoint first removes the spare files and then the snapshot that it replaces. Everything that the new snapshot
holds was in the old one or in the log behind it, so afterwards there is at least as much space as before: a checkpoint
never uses up what the next one needs.

A server whose reserve cannot be allocated at its start begins low.
"""

import contextlib
import errno
from collections.abc import Callable

from topics.runtime.backoff import Backoff
from topics.runtime.health import Health
from topics.runtime.interface import Runtime
from topics.runtime.replies import ignore
from topics.storage.log.wal import WalWriter
from topics.storage.reserve import Reserve, is_full
from topics.storage.snapshots.kept import Need

# How long a server may refuse writes although there is space again.
MAX_RECHECK_MS = 5000

NOT_RESERVED = "cannot reserve the disk space that deletes and the next snapshot need"


class DiskSpace:
    def __init__(self, runtime: Runtime, wal: WalWriter, reserve: Reserve, health: Health) -> None:
        self.low = False
        # Called in a later turn when `low` is set, and again by a timer while a recheck finds it set.
        self.on_low: Callable[[], None] = ignore
        self._runtime = runtime
        self._wal = wal
        self._reserve = reserve
        self._health = health
        self._backoff = Backoff(runtime, lambda: self.on_low(), MAX_RECHECK_MS)
        self._checking = False
        self._measure: Callable[[], Need] = Need
        self._waiting: list[Callable[[], None]] = []
        health.declare("disk_space")

    def start(self, measure: Callable[[], Need]) -> None:
        """`measure` says what the next snapshot needs. It is called in the storage thread."""
        self._measure = measure
        if not self._reserve.is_held:
            self._set_low(NOT_RESERVED)

    def run_out(self, error: BaseException) -> bool:
        """Release the reserve because the disk is full. Returns whether that may help: not if it was released before."""
        if self.low or not self._reserve.wanted_bytes or not is_full(error):
            return False
        try:
            self._reserve.release()
        except OSError:
            return False
        self._set_low(f"the disk is full: {error}")
        return True

    def check_growth(self) -> None:
        """Raise ENOSPC while space is low, on behalf of what would take space without freeing any. Any thread."""
        if self.low:
            raise OSError(errno.ENOSPC, "disk space is low")

    def recheck(self, done: Callable[[], None] | None = None) -> None:
        """Make the reserve as large as it must be now, aside; `low` ends when that works. `done` is called in any case."""
        if done is not None:
            self._waiting.append(done)
        if self._checking:
            return
        self._checking = True
        self._backoff.stop()
        measure = self._measure

        def hold() -> bool:
            need = measure()
            return self._reserve.hold(need.snapshot_bytes, need.spare_bytes)

        self._runtime.run_in_thread("storage", hold, self._checked)

    def _checked(self, _: bool, error: BaseException | None) -> None:
        self._checking = False
        # Asked again: it may have been released meanwhile.
        if error is None and self._reserve.is_held:
            self.low = self._wal.small_files = False
            self._health.clear("disk_space")
            self._backoff.succeeded()
        elif self.low:
            self._backoff.failed()
        elif error is None:
            with contextlib.suppress(OSError):
                self._reserve.release()
            self._set_low(NOT_RESERVED)
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def _set_low(self, reason: str) -> None:
        self.low = self._wal.small_files = True
        self._health.fail("disk_space", f"{reason}; only deletes are accepted until there is space again")
        self._runtime.call_soon(self.on_low)
