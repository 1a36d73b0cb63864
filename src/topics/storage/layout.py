"""The files of a data directory that must exist: directories, and the log files that continue a snapshot."""

from topics.model.errors import CorruptStorage
from topics.storage.fs import FileSystem
from topics.storage.log.wal import LOG, WalReader, directory, file_path
from topics.storage.log.wal import ROOT as WAL
from topics.storage.segments.segment_format import ROOT as SEGMENTS
from topics.storage.segments.segment_format import segment_bases
from topics.storage.snapshots.snapshot import ROOT as SNAPSHOTS
from topics.storage.snapshots.snapshot_format import HeaderImage


def check_complete(fs: FileSystem, logs: list[WalReader]) -> None:
    """Raise CorruptStorage when the log does not begin with its first file although there is no snapshot.

    Without it a server would take what is left for all there is, and remove the segments as left over.
    """
    for log in logs:
        if log.files and log.files[0] > 1:
            raise CorruptStorage(file_path(log.number, 1), 0, "log file is missing, and there is no snapshot")
    if not any([log.files for log in logs]) and segment_bases(fs):
        raise CorruptStorage(SNAPSHOTS, 0, "there are segments, but no snapshot and no log")


def check_first_files(header: HeaderImage, logs: list[WalReader]) -> None:
    """Raise CorruptStorage when the file that continues the snapshot is missing in a shard."""
    by_number = {log.number: log for log in logs}
    for shard in header.shards:
        number = header.cut[shard]
        if shard not in by_number or not by_number[shard].has_file(number):
            raise CorruptStorage(file_path(shard, number), 0, "log file is missing")


def make_directories(fs: FileSystem) -> None:
    """The directories exist and their names survive a power cut, so that files in them can be found again.

    Synced even when they are there: a server that was killed right here may have made and not synced them.
    """
    for path in (WAL, SEGMENTS, SNAPSHOTS, directory(LOG)):
        if not fs.exists(path):
            fs.make_directory(path)
    fs.sync_directory("")
    fs.sync_directory(WAL)
