"""A data directory on a real disk, locked by one process at a time."""

from topics.broker.durability.recovery import Progress, Recovered, recover
from topics.model.storage_settings import StorageSettings
from topics.storage import damaged_files
from topics.storage.fs import Lock
from topics.storage.log import wal
from topics.storage.os_fs import OsFileSystem
from topics.storage.os_marker import DEFAULT_DIRECTORY
from topics.storage.segments import segment_format
from topics.storage.segments.columns import load_libraries
from topics.storage.snapshots import snapshot

LOCK = "LOCK"
DIRECTORIES = (wal.ROOT, segment_format.ROOT, snapshot.ROOT, damaged_files.ROOT)


class DirectoryInUse(Exception):
    """Another server uses the directory. Stop it first, or use another directory."""


class DataDirectory:
    def __init__(self, path: str, runtime_directory: str = DEFAULT_DIRECTORY) -> None:
        self.path = path
        self.fs = OsFileSystem.at(path, runtime_directory)
        self._lock: Lock | None = None

    def open(self) -> None:
        """Create and lock the directory until `close`. Raises DirectoryInUse or OSError.

        Also removes the permissions of group and others from directories of earlier versions.
        """
        self.fs.make_directory("")
        try:
            self._lock = self.fs.lock(LOCK)
        except BlockingIOError:
            raise DirectoryInUse("another server is using it") from None
        for name in DIRECTORIES:
            if self.fs.exists(name):
                self.fs.make_directory(name)

    def recover(self, settings: StorageSettings, progress: Progress = lambda _: None) -> Recovered:
        """Recover the state. If there are sealed segments, also import the libraries that read them.

        Imported here, before requests are served: the first read would block the loop for 150 ms, an import in a thread for
        up to 50 ms. A server without sealed segments does not import them and saves 45 MB.
        """
        recovered = recover(self.fs, settings, progress)
        if recovered.has_sealed:
            load_libraries()
        return recovered

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
