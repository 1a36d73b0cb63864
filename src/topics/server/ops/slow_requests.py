"""Slow requests: those that took longer than they should are logged with where their time went."""

import logging
from time import perf_counter
from typing import Any

import msgspec

from topics.server.http import Request
from topics.server.ops.logs import fields, request_fields

log = logging.getLogger("topics.server")


def log_slow(request: Request, status: int, body: bytes) -> None:
    """Log a request that took too long. Those that wait on purpose, such as long polls, are not slow."""
    if not request.waits:
        took_ms = round((perf_counter() - request.received_at) * 1000, 3)
        log.warning(
            "slow request",
            extra=fields(**request_fields(request), status=status, took_ms=took_ms, performance=performance_of(body)),
        )


def performance_of(body: bytes) -> dict[str, Any]:
    """The `performance` object at the end of an answer; empty when it has none."""
    _, mark, rest = body.rpartition(b'"performance":')
    if not mark or not rest.endswith(b"}}"):
        return {}
    try:
        found: dict[str, Any] = msgspec.json.decode(rest[:-1], type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return found
