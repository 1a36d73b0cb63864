"""The storage thread: segments, packs, snapshots and removals, one after the other, beside the loop.

`StorageContext` is what the objects that give it work have in common.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from topics.broker.log.committer import Committer
from topics.broker.log.disk_space import DiskSpace
from topics.broker.state import State
from topics.model.storage_settings import StorageSettings
from topics.runtime.health import Health
from topics.runtime.interface import Runtime
from topics.storage.fs import FileSystem

Done = Callable[[Any, BaseException | None], None]


class StorageThread:
    def __init__(self, runtime: Runtime, committer: Committer, space: DiskSpace) -> None:
        self._runtime = runtime
        self._committer = committer
        self._space = space

    def run(self, work: Callable[[], Any], done: Done) -> None:
        """Run the work. Meanwhile syncs of the log run in their own thread: they wait for the same disk."""
        committer = self._committer
        committer.disk_busy += 1

        def over(result: Any, error: BaseException | None) -> None:
            committer.disk_busy -= 1
            done(result, error)

        self._runtime.run_in_thread("storage", work, over)

    def write(self, work: Callable[[], Any], done: Done) -> None:
        """As `run`, for records that leave memory. Fails with ENOSPC if space is low by then."""

        def checked() -> Any:
            self._space.check_growth()
            return work()

        self.run(checked, done)


class StorageContext(Struct, frozen=True):
    """What sealing, packing, checkpoints and the removal of files work with."""

    fs: FileSystem
    runtime: Runtime
    state: State
    committer: Committer
    settings: StorageSettings
    health: Health
    space: DiskSpace
    storage: StorageThread
