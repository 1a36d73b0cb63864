"""What clients may make one listener hold, and for how long. Each limit states the outcome of reaching it."""

import time
from collections.abc import Callable

from msgspec import Struct

MEBIBYTE = 1 << 20


class HttpLimits(Struct, frozen=True, kw_only=True):
    """Times are in seconds. All but `part_timeout` are checked by one sweep over the connections, not by timers."""

    max_connections: int = 16_384
    """Further connections get 503 `overloaded` and are closed. Lowered to fit the process's limit of open files."""
    backlog: int = 2048
    """The number of connections that the kernel queues before it rejects clients."""

    max_target_bytes: int = 16 << 10
    """A longer request target gets 414 `uri_too_long`."""
    max_headers: int = 100
    max_head_bytes: int = 64 << 10
    """More header lines or bytes get 431 `headers_too_large`."""

    max_body_bytes: int = 64 * MEBIBYTE
    """A larger body, as sent or after inflating, gets 413 `payload_too_large`."""
    max_held_bytes: int = 512 * MEBIBYTE
    """Incomplete bodies of all connections together; the one that exceeds it gets 503 `overloaded`.

    Incomplete WebSocket messages count too; the one that exceeds it closes its socket with 1013."""
    hold_bytes: int = 64 << 10
    """The input of one connection that waits behind an unanswered request; above it, reading stops."""

    keep_alive_timeout: float = 75.0
    """A connection without a request for this long is closed."""
    head_timeout: float = 10.0
    """A head that is not complete this long after its first byte gets 408 `request_timeout`."""
    body_timeout: float = 20.0
    """A body of which nothing arrives for this long gets 408 `request_timeout`."""
    min_body_rate: int = 1024
    """Bytes per second that a body must average after `body_timeout`; a slower one gets 408 as well."""
    write_timeout: float = 60.0
    """A client that reads none of its unsent output for this long is disconnected."""

    max_unsent_bytes: int = 512 * MEBIBYTE
    """Unsent output of all connections that have more than `write_high_bytes` of it.

    Above it, clients are disconnected, the one with the largest unsent bytes × stalled seconds first."""

    peer_timeout: float = 60.0
    """A client whose machine acknowledges nothing for this long is disconnected, also if there is nothing to send."""

    linger_timeout: float = 5.0
    linger_bytes: int = 128 * MEBIBYTE
    """How long and how much input is read and dropped after a refusal, so that the client can read the response."""

    part_timeout: float = 0.25
    """During shutdown, a request that is not complete after this long gets 503 `shutting_down`; a refused client is
    disconnected after this long. Has a timer, because a sweep could come too late."""

    write_high_bytes: int = 64 << 10
    write_low_bytes: int = 16 << 10
    """Above the first, no further request of the connection is handed over; below the second, they are again."""

    sweep_interval: float = 1.0
    clock: Callable[[], float] = time.perf_counter
    """A monotonic clock."""
