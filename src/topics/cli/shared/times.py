"""Times, durations, sizes and counts as people write them.

    time       -1h   now   2026-11-01   2026-11-01T12:30   2026-11-01T12:30:00+01:00   1793520000000
    duration   500   500ms   30s   5m   1h30m   7d
    size       1048576   64KB   1.5MB   2GiB

A time without a zone is UTC, as in SQL and in the client. A plain number is milliseconds since 1970, or milliseconds, or
bytes.
"""

import re
import time

from topics.model.errors import InvalidRequest

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
# As on disks: a KB is 1000 bytes, a KiB is 1024.
UNITS_BYTES = {"": 1, "b": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4} | {
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)
# Arguments that are times or negative numbers, and no options.
NEGATIVE_VALUE = re.compile(r"^-(?:\d+|\d*\.\d+|(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+)$")


def parse_time(text: str) -> int:
    """Milliseconds since 1970. Raises ValueError that names the forms."""
    # Here, because it loads the whole client: every command imports this module, also `serve`.
    from topics.client.times import parse_time_ms

    word = text.strip()
    if word == "now":
        return time.time_ns() // 1_000_000
    if word.isdigit():
        return int(word)
    try:
        return parse_time_ms(word)
    except InvalidRequest:
        raise ValueError(
            f"{text!r} is not a time; write -1h, 2026-11-01, 2026-11-01T12:30, or milliseconds since 1970"
        ) from None


def parse_duration(text: str) -> int:
    """Milliseconds. Raises ValueError that names the forms."""
    word = text.strip().lower()
    if word.isdigit():
        return int(word)
    if not _DURATION.fullmatch(word):
        raise ValueError(f"{text!r} is not a duration; write 500ms, 30s, 5m, 1h, 7d, or a number of milliseconds")
    return int(sum([float(number) * UNITS_MS[unit] for number, unit in _PARTS.findall(word)]))


def parse_size(text: str) -> int:
    """Bytes. Raises ValueError that names the forms."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write 64KB, 1.5MB, 2GiB, or a number of bytes")
    return int(float(match[1]) * UNITS_BYTES[(match[2] or "").lower()])


def parse_count(text: str) -> int:
    """A whole number of at least 0. Raises ValueError that says so."""
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def show_time(time_ms: int) -> str:
    """The time in UTC, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(time_ms / 1000))


def show_size(size_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
