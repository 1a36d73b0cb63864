"""What a stranger may make one listener hold, and for how long. Each limit names the outcome of meeting it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Times are seconds. But for one they are not measured by timers of their own: one sweep looks at every connection."""

    max_connections: int = 16_384
    """More get 503 `overloaded` and are closed. Lowered to what the process may open in files."""
    backlog: int = 2048
    """How many connections the kernel keeps for us before it turns clients away."""

    max_target_bytes: int = 16 << 10
    """A longer request target gets 414 `uri_too_long`."""
    max_headers: int = 100
    max_head_bytes: int = 64 << 10
    """More header lines or bytes get 431 `headers_too_large`."""

    max_body_bytes: int = 64 * MEBIBYTE
    """A bigger body, as sent or once inflated, gets 413 `payload_too_large`."""
    max_held_bytes: int = 512 * MEBIBYTE
    """Bodies not yet complete, all connections together; the one that goes over gets 503 `overloaded`.

    Messages over a WebSocket count too; the one that goes over closes its socket with 1013."""
    hold_bytes: int = 64 << 10
    """Bytes that wait behind an unanswered request before we stop reading from that client."""

    keep_alive_timeout: float = 75.0
    """A connection that asks nothing for so long is closed."""
    head_timeout: float = 10.0
    """A head must be complete this long after its first byte, or it gets 408 `request_timeout`."""
    body_timeout: float = 20.0
    """A body must bring something this often, or it gets 408 `request_timeout`."""
    min_body_rate: int = 1024
    """Bytes a second a body must average once `body_timeout` has passed; slower gets 408 as well."""
    write_timeout: float = 60.0
    """A client that takes none of what we have for it for so long is cut off."""

    max_unsent_bytes: int = 512 * MEBIBYTE
    """Answers and streams not taken yet, all connections together, as far as one has more than `write_high_bytes`.

    Beyond that clients are cut off until it is kept: first who has taken nothing of most for longest."""

    peer_timeout: float = 60.0
    """A client whose machine does not even acknowledge for so long is gone, whether or not there is something to send."""

    linger_timeout: float = 5.0
    linger_bytes: int = 128 * MEBIBYTE
    """How long and how much we go on reading after a refusal, so that the client can read why."""

    part_timeout: float = 0.25
    """While stopping: a request not here whole after so long gets 503 `shutting_down`, and who was refused has so long to go.

    The one time that is not left to the sweep, which may come too late for it."""

    write_high_bytes: int = 64 << 10
    write_low_bytes: int = 16 << 10
    """Above the first nothing more is handed over for that client; below the second it goes on."""

    sweep_interval: float = 1.0
    clock: Callable[[], float] = time.perf_counter
    """Any clock that does not run backwards."""
