"""A place: the directory or bucket that a table lies in, and how its data files are written and read.

Local directories are written directly, and a file is synced before anybody is told of it: after a power cut the Delta log
must not name a file that is not there. Every other location goes through delta-rs, which knows how to reach it and takes
its credentials from the environment.
"""

import os
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs


def local_path(uri: str) -> str | None:
    """The directory of a local URI; None for any other."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return unquote(parts.path)
    return uri if "://" not in uri else None


class Place:
    """Paths are relative to the table, `/` between."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._local = local_path(uri)

    def create(self, path: str) -> Any:
        """An open, empty file to write to; `keep` or `remove` it after closing."""
        if self._local is None:
            return self.filesystem().open_output_stream(path)
        whole = os.path.join(self._local, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        return pa.OSFile(whole, "wb")

    def keep(self, path: str) -> int:
        """From here on a closed file survives a power cut. Its size in bytes."""
        if self._local is None:
            return int(self.filesystem().get_file_info(path).size)
        whole = os.path.join(self._local, path)
        _sync(whole)
        _sync(os.path.dirname(whole))
        return os.path.getsize(whole)

    def remove(self, path: str) -> None:
        """Tidiness only: a file that nobody named is removed by the next vacuum anyway."""
        try:
            if self._local is None:
                self.filesystem().delete_file(path)
            else:
                os.unlink(os.path.join(self._local, path))
        except (OSError, NotImplementedError):
            pass

    def filesystem(self) -> Any:
        """For pyarrow, with the table as its root."""
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
