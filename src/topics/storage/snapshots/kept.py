"""The files that recovery may need: the two newest snapshots, and the log from the older one's cut on.

Those that only the older snapshot needs are spare: they protect against a damaged newest snapshot. On a full disk they are
removed before the next snapshot is written, which takes their place.
"""

from msgspec import Struct

from topics.model.storage_settings import StorageSettings
from topics.storage.fs import FileSystem
from topics.storage.log.wal import file_numbers, file_path, remove_files_below
from topics.storage.snapshots.snapshot import remove_snapshots_but, snapshot_numbers, snapshot_path, snapshot_size


def spare_bytes(fs: FileSystem, snapshot: int, cut: dict[int, int]) -> int:
    """Size of the files that the newest snapshot, with this number and cut, does not need."""
    paths = [snapshot_path(number) for number in snapshot_numbers(fs) if number != snapshot]
    for shard, below in cut.items():
        paths += [file_path(shard, number) for number in file_numbers(fs, shard) if number < below]
    return sum([_size(fs, path) for path in paths])


def remove_spare(fs: FileSystem, snapshot: int, cut: dict[int, int]) -> None:
    """Remove the files that the newest snapshot, with this number and cut, does not need. Raises OSError."""
    remove_snapshots_but(fs, snapshot)
    remove_log_below(fs, cut)


def remove_log_below(fs: FileSystem, cut: dict[int, int]) -> None:
    for shard, below in cut.items():
        remove_files_below(fs, shard, below)


def _size(fs: FileSystem, path: str) -> int:
    file = fs.open(path)
    try:
        return file.size()
    finally:
        file.close()


class Need(Struct, frozen=True):
    """The largest size the next snapshot can have, and the bytes that are removed before it is written on a full disk."""

    snapshot_bytes: int = 0
    spare_bytes: int = 0


def need_of(fs: FileSystem, settings: StorageSettings, snapshot: int, cut: dict[int, int]) -> Need:
    """What the next snapshot needs on disk if this is the newest one. Raises OSError."""
    # A checkpoint begins when the log has grown by `checkpoint_bytes`, and writes wait while more than twice `hot_bytes` are hot.
    growth_bytes = min(settings.checkpoint_bytes, 2 * settings.hot_bytes)
    return Need(snapshot_size(fs, snapshot) + growth_bytes, spare_bytes(fs, snapshot, cut))
