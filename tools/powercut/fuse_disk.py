"""A disk that records its writes: a FUSE filesystem with one file, `disk`, that a loop device makes a block device.

    python -m tools.powercut.fuse_disk IMAGE MOUNTPOINT JOURNAL COUNTER

Serves the content of IMAGE without changing it. Every write and every flush becomes an entry of JOURNAL, in the order in
which they arrive; COUNTER (8 bytes, shared memory) has the number of entries. An entry is counted before its request is
answered: when a flush has returned, it is counted.

The kernel sends each write of the block device here at once (no write-back cache) and turns a flush of the block device
into FSYNC. The protocol is that of linux/fuse.h, version 7.31; only what one regular file needs is answered.
"""

import ctypes
import errno
import mmap
import os
import struct
import sys
from enum import IntEnum

ROOT_ID, FILE_ID = 1, 2
FILE_NAME = b"disk"
MAX_WRITE_BYTES = 1 << 20
BUFFER_BYTES = MAX_WRITE_BYTES + 4096
BLOCK_BYTES = 4096

WRITE_ENTRY, FLUSH_ENTRY = 1, 2
ENTRY = struct.Struct("<BxxxIQ")

_REQUEST = struct.Struct("<IIQQIIII")
_REPLY = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_WRITE = struct.Struct("<QQIIQII")
_READ = struct.Struct("<QQIIQII")


class Opcode(IntEnum):
    """The requests that are answered, or that have no answer."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


WITHOUT_REPLY = {Opcode.FORGET, Opcode.INTERRUPT, Opcode.BATCH_FORGET}
ASYNC_READ, BIG_WRITES, MAX_PAGES = 1, 1 << 5, 1 << 22


class RecordingDisk:
    """The content of the disk, and the journal of what was done to it."""

    def __init__(self, image: str, journal: str, counter: str) -> None:
        self.size = os.path.getsize(image)
        with open(image, "rb") as file:
            self._content = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
        self._journal = open(journal, "wb", buffering=0)  # noqa: SIM115 - open for the life of the process
        descriptor = os.open(counter, os.O_RDWR)
        self._counter = mmap.mmap(descriptor, 8)
        os.close(descriptor)
        self._entries = 0

    def close(self) -> None:
        self._journal.close()
        self._content.close()
        self._counter.close()

    def read(self, offset: int, size: int) -> bytes:
        return self._content[offset : min(self.size, offset + size)]

    def write(self, offset: int, data: bytes) -> None:
        self._content[offset : offset + len(data)] = data
        self._append(ENTRY.pack(WRITE_ENTRY, len(data), offset) + data)

    def flush(self) -> None:
        self._append(ENTRY.pack(FLUSH_ENTRY, 0, 0))

    def _append(self, entry: bytes) -> None:
        self._journal.write(entry)
        self._entries += 1
        self._counter[:8] = struct.pack("<Q", self._entries)


class FuseServer:
    """Answers the kernel's requests, one after the other, until the filesystem is unmounted."""

    def __init__(self, device: int, disk: RecordingDisk) -> None:
        self._device = device
        self._disk = disk

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, BUFFER_BYTES)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                raise
            _, opcode, unique, node, *_ = _REQUEST.unpack_from(request)
            if opcode in WITHOUT_REPLY:
                continue
            try:
                body = self._answer(opcode, node, request[_REQUEST.size :])
                status = 0
            except OSError as error:
                body, status = b"", -(error.errno or errno.EIO)
            os.write(self._device, _REPLY.pack(_REPLY.size + len(body), status, unique) + body)

    def _answer(self, opcode: int, node: int, body: bytes) -> bytes:
        match opcode:
            case Opcode.INIT:
                flags = ASYNC_READ | BIG_WRITES | MAX_PAGES
                head = struct.pack("<IIIIHHIIHH", 7, 31, 1 << 17, flags, 12, 9, MAX_WRITE_BYTES, 1, 256, 0)
                return head + bytes(64 - len(head))
            case Opcode.LOOKUP:
                if node != ROOT_ID or body.rstrip(b"\0") != FILE_NAME:
                    raise OSError(errno.ENOENT, "no such file")
                return struct.pack("<QQQQII", FILE_ID, 0, 3600, 3600, 0, 0) + self._attributes(FILE_ID)
            case Opcode.GETATTR | Opcode.SETATTR:
                return struct.pack("<QII", 3600, 0, 0) + self._attributes(node)
            case Opcode.OPEN | Opcode.OPENDIR:
                return struct.pack("<QII", 1, 0, 0)
            case Opcode.READ:
                _, offset, size, *_ = _READ.unpack_from(body)
                return self._disk.read(offset, size)
            case Opcode.WRITE:
                _, offset, size, *_ = _WRITE.unpack_from(body)
                self._disk.write(offset, body[_WRITE.size : _WRITE.size + size])
                return struct.pack("<II", size, 0)
            case Opcode.FSYNC:
                self._disk.flush()
                return b""
            case Opcode.STATFS:
                return struct.pack("<QQQQQIIII24x", 0, 0, 0, 1, 1, BLOCK_BYTES, 255, BLOCK_BYTES, 0)
            case Opcode.RELEASE | Opcode.FLUSH | Opcode.READDIR | Opcode.RELEASEDIR | Opcode.ACCESS | Opcode.DESTROY:
                return b""
        raise OSError(errno.ENOSYS, f"opcode {opcode}")

    def _attributes(self, node: int) -> bytes:
        is_file = node == FILE_ID
        size = self._disk.size if is_file else 0
        mode = 0o100600 if is_file else 0o040700
        blocks = size // 512
        return _ATTRIBUTES.pack(node, size, blocks, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, BLOCK_BYTES, 0)


def main(image: str, mountpoint: str, journal: str, counter: str) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,max_read={MAX_WRITE_BYTES}"
    if libc.mount(b"recording-disk", mountpoint.encode(), b"fuse", 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {mountpoint}: {os.strerror(number)}")
    FuseServer(device, RecordingDisk(image, journal, counter)).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
