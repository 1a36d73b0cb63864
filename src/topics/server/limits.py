"""Limits of what requests ask for: a value above a limit counts as the limit, and is not an error.

Every handler takes its counts, sizes and times from here; nothing else in the server reduces a value of a request. Values that
are refused when they are too large are declared in `topics.api`.
"""

from topics.model.config import MAX_LEASE_MS, MIN_LEASE_MS, clamp
from topics.model.limits import Limits
from topics.model.records.batch import MAX_DELAY_MS

DEFAULT_MESSAGES = 100
MIN_HEARTBEAT_MS = 1_000
MAX_HEARTBEAT_MS = 60_000


def at_most(wanted: int | None, limit: int, default: int = 0) -> int:
    """The value that counts: the default for None and 0, and never more than the limit."""
    value = wanted or default
    return value if value < limit else limit


def read_records(wanted: int | None, limits: Limits) -> int:
    """Records of one page of a read, or of one event of a live stream."""
    return at_most(wanted, limits.max_limit, limits.default_limit)


def read_bytes(wanted: int | None, limits: Limits) -> int:
    """Bytes of one page of a read, or of one event of a live stream."""
    return at_most(wanted, limits.answer_bytes_max, limits.answer_bytes)


def wait_ms(wanted: int, limits: Limits) -> int:
    """Duration of a long poll."""
    return at_most(wanted, limits.max_wait_ms)


def consumed_messages(wanted: int | None, limits: Limits) -> int:
    """Messages of one poll of a consumer group."""
    return at_most(wanted, limits.max_limit, DEFAULT_MESSAGES)


def claimed_jobs(wanted: int, limits: Limits) -> int:
    """Jobs of one claim; 0 leases none."""
    return at_most(wanted, limits.max_claim)


def streamed_jobs(wanted: int, limits: Limits) -> int:
    """Jobs that one worker stream has leased at a time."""
    return clamp(wanted, 1, limits.max_claim)


def lease_ms(wanted: int) -> int:
    return clamp(wanted, MIN_LEASE_MS, MAX_LEASE_MS)


def delay_ms(wanted: int) -> int:
    """Delay of a job that is returned to its queue."""
    return at_most(wanted, MAX_DELAY_MS)


def heartbeat_ms(wanted: int) -> int:
    return clamp(wanted, MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS)
