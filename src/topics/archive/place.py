"""A place: the directory or bucket of a table, and how its data files are written and read.

Local directories are written directly. A file is synced before a commit names it: after a power cut the Delta log must not
name a file that does not exist. Every other location goes through delta-rs, which takes its credentials from the
environment.
"""

import os
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

DELTA_LOG = "_delta_log"


def local_path(uri: str) -> str | None:
    """Return the directory of a local URI; None for any other URI."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    return uri if "://" not in uri else None


class Place:
    """The files of one table. Paths are relative to the table and use `/`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._local = local_path(uri)

    def create(self, path: str) -> Any:
        """Open a new file for writing. After closing it the caller calls `finish` or `remove`."""
        if self._local is None:
            return self.filesystem().open_output_stream(path)
        whole = os.path.join(self._local, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        return pa.OSFile(whole, "wb")

    def finish(self, path: str) -> int:
        """Sync a closed file, so that it survives a power cut. Returns its size in bytes."""
        if self._local is None:
            return int(self.filesystem().get_file_info(path).size)
        whole = os.path.join(self._local, path)
        _sync(whole)
        _sync(os.path.dirname(whole))
        return os.path.getsize(whole)

    def remove(self, path: str) -> None:
        """Delete a file that no commit names. Failures are ignored: a left-over file costs space and is never read."""
        try:
            if self._local is None:
                self.filesystem().delete_file(path)
            else:
                os.unlink(os.path.join(self._local, path))
        except (OSError, NotImplementedError):
            pass

    def names(self) -> list[str]:
        """List the entries of the table's directory and of its Delta log. Empty when the directory does not exist."""
        filesystem = self.filesystem()
        found: list[str] = []
        for directory in ("", DELTA_LOG):
            selector = pafs.FileSelector(directory, allow_not_found=True, recursive=False)
            found += [info.path.strip("/") for info in filesystem.get_file_info(selector)]
        return found

    def filesystem(self) -> Any:
        """Return a pyarrow file system with the table as its root."""
        if self._local is not None:
            return pafs.SubTreeFileSystem(self._local, pafs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self._uri))


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
