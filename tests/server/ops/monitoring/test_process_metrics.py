"""Figures of the operating system about the process."""

import mmap
import os
import threading
from pathlib import Path

from topics.server.ops.monitoring import process_metrics


def test_open_descriptors_grow_with_an_open_file() -> None:
    before = process_metrics.open_descriptors()
    with open(os.devnull):
        assert process_metrics.open_descriptors() == before + 1


def test_threads_grow_with_a_running_thread() -> None:
    before = process_metrics.threads()
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert process_metrics.threads() == before + 1
    finally:
        end.set()
        thread.join()


def test_resident_bytes_grow_with_touched_memory() -> None:
    before = process_metrics.resident_bytes()
    # A mapping of its own: the allocator could answer with pages that are resident already.
    with mmap.mmap(-1, 64 << 20) as block:
        block.write(b"x" * len(block))
        assert process_metrics.resident_bytes() > before + (32 << 20)


def test_disk_figures_of_a_missing_directory_are_zero(tmp_path: Path) -> None:
    assert 0 < process_metrics.free_bytes(str(tmp_path)) <= process_metrics.size_bytes(str(tmp_path))
    assert process_metrics.free_bytes(str(tmp_path / "missing")) == 0
