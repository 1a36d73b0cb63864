"""A data directory on a real disk: held by one process at a time."""

from topics.broker.checkpoint import StorageSettings
from topics.broker.recovery import Progress, Recovered, recover
from topics.storage.columns import load_libraries
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
        """All that the directory holds. Where that includes sealed segments, whatever reads them is loaded too.

        Here, because nobody waits yet: the first read would stop the loop for 150 ms, and loading beside the loop would for up
        to 50. A server without such segments does without, and saves 45 MB.
        """
        recovered = recover(self.fs, settings, progress)
        if recovered.has_sealed:
            load_libraries()
        return recovered

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
