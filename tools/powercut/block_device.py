"""Images, loop devices and mounts. Needs root."""

import contextlib
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tools.powercut.fuse_disk import ENTRY, FLUSH_ENTRY, WRITE_ENTRY

IMAGE_BYTES = 160 << 20
SECTOR_BYTES = 512
MOUNT_SECONDS = 20.0


def missing_requirement() -> str | None:
    """What this machine lacks for block-level cuts; None if it has everything."""
    if os.geteuid() != 0:
        return "root"
    for path in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(path):
            return path
    for command in ("mkfs.ext4", "losetup", "mount", "umount"):
        if shutil.which(command) is None:
            return command
    return None


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def make_image(path: Path) -> None:
    """A new ext4 filesystem with a journal, in a sparse file."""
    with open(path, "wb") as file:
        file.truncate(IMAGE_BYTES)
    run("mkfs.ext4", "-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(path))


@contextlib.contextmanager
def mounted(backing: Path, mountpoint: Path) -> Iterator[None]:
    """Mount the filesystem in a file through a loop device."""
    mountpoint.mkdir(exist_ok=True)
    device = run("losetup", "--find", "--show", str(backing))
    try:
        run("mount", "-t", "ext4", device, str(mountpoint))
        try:
            yield
        finally:
            run("umount", str(mountpoint))
    finally:
        run("losetup", "--detach", device)


class Recording:
    """A mounted filesystem whose block device records every write and flush."""

    def __init__(self, image: Path, directory: Path) -> None:
        self.image = image
        self.journal = directory / "journal"
        self.mountpoint = directory / "recorded"
        self._fuse = directory / "fuse"
        self._counter = directory / "counter"

    @contextlib.contextmanager
    def mounted(self) -> Iterator[None]:
        self._fuse.mkdir(exist_ok=True)
        self._counter.write_bytes(bytes(8))
        arguments = [str(self.image), str(self._fuse), str(self.journal), str(self._counter)]
        process = subprocess.Popen([sys.executable, "-m", "tools.powercut.fuse_disk", *arguments])
        try:
            deadline = time.monotonic() + MOUNT_SECONDS
            while not (self._fuse / "disk").exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise OSError("the recording disk did not start")
                time.sleep(0.01)
            try:
                with mounted(self._fuse / "disk", self.mountpoint):
                    yield
            finally:
                run("umount", str(self._fuse))
        finally:
            process.wait(MOUNT_SECONDS)

    def position(self) -> int:
        """Number of writes and flushes so far."""
        return int(struct.unpack("<Q", self._counter.read_bytes())[0])

    def flush_positions(self) -> list[int]:
        """The position of every flush."""
        found = []
        at = number = 0
        content = self.journal.read_bytes()
        while at < len(content):
            kind, size, _ = ENTRY.unpack_from(content, at)
            if kind == FLUSH_ENTRY:
                found.append(number)
            at += ENTRY.size + size
            number += 1
        return found


class CutImages:
    """Images of a recorded disk as power cuts leave it, for positions in ascending order.

    What was written before the last flush is there. Each later write is there, absent, or torn: some of its sectors.
    """

    def __init__(self, recording: Recording, durable: Path) -> None:
        self._journal = open(recording.journal, "rb")  # noqa: SIM115 - closed by close()
        self._durable = durable
        self._position = 0
        self._unflushed: list[tuple[int, bytes]] = []
        shutil.copyfile(recording.image, durable)

    def close(self) -> None:
        self._journal.close()

    def cut(self, position: int, path: Path, chance: random.Random) -> dict[str, int]:
        """Write the image of a cut after this many entries. Returns how many writes were kept, torn and dropped."""
        self._advance(position)
        run("cp", "--sparse=always", str(self._durable), str(path))
        counts = {"kept": 0, "torn": 0, "dropped": 0}
        share_kept = chance.choice((0.0, 0.3, 0.6, 0.8))
        with open(path, "r+b") as file:
            for offset, data in self._unflushed:
                fate = chance.random()
                if fate < share_kept:
                    _write(file.fileno(), offset, data)
                    counts["kept"] += 1
                elif fate < share_kept + 0.2 and len(data) > SECTOR_BYTES:
                    for at in range(0, len(data), SECTOR_BYTES):
                        if chance.random() < 0.5:
                            _write(file.fileno(), offset + at, data[at : at + SECTOR_BYTES])
                    counts["torn"] += 1
                else:
                    counts["dropped"] += 1
        return counts

    def _advance(self, position: int) -> None:
        with open(self._durable, "r+b") as file:
            while self._position < position:
                kind, size, offset = ENTRY.unpack(self._journal.read(ENTRY.size))
                if kind == WRITE_ENTRY:
                    self._unflushed.append((offset, self._journal.read(size)))
                elif kind == FLUSH_ENTRY:
                    for at, data in self._unflushed:
                        _write(file.fileno(), at, data)
                    self._unflushed.clear()
                self._position += 1


def _write(descriptor: int, offset: int, data: bytes) -> None:
    os.pwrite(descriptor, data, offset)
