"""A data directory on a real disk: held by one process at a time."""

from topics.broker.checkpoint import StorageSettings
from topics.broker.recovery import Progress, Recovered, recover
from topics.storage.fs import Lock
from topics.storage.os_fs import OsFileSystem

LOCK = "LOCK"


class DirectoryInUse(Exception):
    """Another server holds the directory. Stop it first, or use another directory."""


class DataDirectory:
    def __init__(self, path: str) -> None:
        self.path = path
        self.fs = OsFileSystem.at(path)
        self._lock: Lock | None = None

    def open(self) -> None:
        """The directory exists and belongs to this process until `close`. Raises DirectoryInUse or OSError."""
        self.fs.make_directory("")
        try:
            self._lock = self.fs.lock(LOCK)
        except BlockingIOError:
            raise DirectoryInUse("another server is using it") from None

    def recover(self, settings: StorageSettings, progress: Progress = lambda _: None) -> Recovered:
        return recover(self.fs, settings, progress)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
