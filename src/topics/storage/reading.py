"""Read files that may be damaged: which errors mean damage, and how to access a mapped file safely.

A file that is missing, is not a regular file, or has unreadable bytes counts as damaged, like one with a wrong checksum:
CorruptStorage. Errors of this process, such as too many open files, do not concern the file and stay OSError: the same read
may succeed later.
"""

import errno
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

from topics.model.errors import CorruptStorage
from topics.storage.fs import FileSystem

_PROCESS_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
# Linux 5.14 and later. Missing from Python's mmap module, as EHWPOISON is from errno.
_MADV_POPULATE_READ = 22
_UNREADABLE = (errno.EFAULT, errno.EIO, 133)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn an OSError that means an unreadable file into CorruptStorage."""
    try:
        yield
    except OSError as error:
        if error.errno in _PROCESS_ERRORS:
            raise
        what = "file is missing" if error.errno == errno.ENOENT else f"cannot be read: {error.strerror or error}"
        raise CorruptStorage(path, 0, what) from error


def map_file(fs: FileSystem, path: str) -> memoryview:
    """Map the file, paged in on demand; call `load` before access. Raises CorruptStorage."""
    with reading(path):
        file = fs.open(path)
        try:
            return file.map()
        finally:
            file.close()


def load(view: memoryview, start: int, stop: int, path: str) -> None:
    """Read these bytes of a mapped file into memory. Raises CorruptStorage when the disk cannot deliver them.

    A mapped page that cannot be read ends the process with SIGBUS when it is touched. Populating the mapping first
    reports the error instead. Does nothing on kernels without MADV_POPULATE_READ.
    """
    mapped = view.obj
    if not isinstance(mapped, mmap.mmap):
        return
    aligned = start - start % mmap.PAGESIZE
    if stop <= aligned:
        return
    try:
        mapped.madvise(_MADV_POPULATE_READ, aligned, stop - aligned)
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise CorruptStorage(path, aligned, "the disk cannot read these bytes") from error
