"""Rotation while another thread prepares the next file: the log never loses the file it writes to."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from topics.storage.fs import Bytes, File
from topics.storage.log import wal
from topics.storage.log.frame import encode_facts
from topics.storage.log.wal import WalReader, WalWriter, directory, file_numbers
from topics.storage.os_fs import OsFileSystem

FILE_BYTES = 4096


class FileThatTells:
    """Calls `before_write` whenever something is written to it."""

    def __init__(self, file: File, before_write: Callable[[], None]) -> None:
        self._file = file
        self._before_write = before_write
        self.path = file.path

    def write_at(self, offset: int, parts: Sequence[Bytes]) -> None:
        self._before_write()
        self._file.write_at(offset, parts)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class TellingFileSystem(OsFileSystem):
    before_write: Callable[[], None] = staticmethod(lambda: None)

    def open(self, path: str, *, create: bool = False) -> File:
        return FileThatTells(super().open(path, create=create), lambda: self.before_write())  # type: ignore[return-value]


def test_preparing_the_next_file_while_the_log_rotates_takes_nothing_away(tmp_path: Path) -> None:
    fs = TellingFileSystem.at(str(tmp_path))
    fs.make_directory(directory(0))
    wal = WalWriter(fs, last_lsn=0, next_file=1, file_bytes=FILE_BYTES)
    threads: list[threading.Thread] = []

    def prepare_aside() -> None:
        thread = threading.Thread(target=wal.prepare)
        thread.start()
        # As far as it gets before the header is written; if it must wait for the rotation, that is what it should do.
        thread.join(0.05)
        threads.append(thread)

    wal.write([encode_facts(1, 0, [])], 1)
    wal.prepare()
    fs.before_write = prepare_aside
    wal.rotate()
    fs.before_write = lambda: None
    for thread in threads:
        thread.join()
    assert threads, "the rotation wrote no header"
    wal.write([encode_facts(2, 1, [])], 2)
    wal.rotate()
    wal.write([encode_facts(3, 1, [])], 3)
    wal.sync()
    wal.close()

    assert file_numbers(fs, 0) == [1, 2, 3]
    log = WalReader(fs, 0)
    assert [frame.lsn for frame in log.frames()] == [1, 2, 3]
    assert log.torn is None


HEADER = wal.Header(3, 17, 99, 98, "boot", 1 << 20)


def test_a_log_header_decodes_and_every_cut_or_change_is_refused() -> None:
    whole = wal.encode_header(HEADER)
    assert len(whole) == wal.HEADER_BYTES
    assert wal.decode_header(memoryview(whole)) == HEADER
    for cut in range(len(whole)):
        assert wal.decode_header(memoryview(whole[:cut])) is None
    for bit in range(len(whole.rstrip(b"\0")) * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        assert wal.decode_header(memoryview(changed)) is None


@given(st.binary(max_size=120))
def test_garbage_is_not_a_log_header(garbage: bytes) -> None:
    assert wal.decode_header(memoryview(garbage)) is None
