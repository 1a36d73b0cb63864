"""Figures of the operating system about this process and its disk, with the names that Prometheus uses for them.

All are read from /proc when they are asked for; a system without it reports 0.
"""

import os
import resource
import time
from collections.abc import Callable

Gauges = dict[str, tuple[str, Callable[[], float]]]

_PAGE_BYTES = resource.getpagesize()


def process_gauges(data_dir: str) -> Gauges:
    """By name: the help text and a function that reads the figure."""
    return {
        "process_resident_memory_bytes": ("Memory of the process that is in RAM.", resident_bytes),
        "process_cpu_seconds_total": ("Processor time of the process.", time.process_time),
        "process_open_fds": ("Open file descriptors.", open_descriptors),
        "process_max_fds": ("The limit of open file descriptors.", max_descriptors),
        "process_threads": ("Threads of the process.", threads),
        "topics_disk_free_bytes": ("Free space where the data directory is.", lambda: free_bytes(data_dir)),
        "topics_disk_size_bytes": ("Size of the file system of the data directory.", lambda: size_bytes(data_dir)),
    }


def resident_bytes() -> int:
    fields = _read("/proc/self/statm").split()
    return int(fields[1]) * _PAGE_BYTES if len(fields) > 1 else 0


def open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def max_descriptors() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def threads() -> int:
    # The fields after the command name, which is in parentheses and may contain spaces; num_threads is field 20 of all.
    fields = _read("/proc/self/stat").rpartition(")")[2].split()
    return int(fields[17]) if len(fields) > 17 else 0


def free_bytes(path: str) -> int:
    """What this process may still write there."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def size_bytes(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
