"""Milliseconds as JSON numbers, for the `performance` of responses."""

_THOUSANDTHS = [b".%03d" % us for us in range(1000)]
# Whole microseconds as milliseconds; most writes take less than these. Formatting a number takes 0.2 us.
MILLISECONDS = [whole + part for whole in (b"0", b"1", b"2", b"3", b"4") for part in _THOUSANDTHS]
MAX_TABLE_US = len(MILLISECONDS)


def milliseconds(seconds: float) -> bytes:
    us = int(seconds * 1_000_000)
    return MILLISECONDS[us] if us < MAX_TABLE_US else b"%d.%03d" % divmod(us, 1000)


def commit_timing(wal_ms: float, sync_ms: float) -> bytes:
    """The part of `performance` that all writes of a frame share."""
    wal = milliseconds(wal_ms / 1000)
    if not sync_ms:
        return b'"wal_append_ms":%b,"fsync_ms":0.000' % wal
    return b'"wal_append_ms":%b,"fsync_ms":%.3f' % (wal, sync_ms)
