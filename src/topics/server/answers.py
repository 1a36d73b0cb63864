"""Answers: how outcomes and errors look on the wire.

Every success is bare data with a `performance` object; every failure is the one error body. The status of each error
code stands in one table here.
"""

from math import ceil
from time import perf_counter
from typing import Any

import msgspec

from topics.model.errors import Throttled, TopicsError
from topics.server.http import Request

STATUS_OF = {
    "invalid_request": 400,
    "batch_too_large": 400,
    "record_too_large": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "topic_not_found": 404,
    "router_not_found": 404,
    "group_not_found": 404,
    "stage_not_found": 404,
    "producer_not_found": 404,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "topic_exists_incompatible": 409,
    "topic_not_empty": 409,
    "not_a_queue": 409,
    "partition_owned": 409,
    "router_cycle": 409,
    "router_exists_incompatible": 409,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "topic_full": 422,
    "throttled": 429,
    "internal": 500,
    "corrupt_storage": 500,
    "not_ready": 503,
    "shutting_down": 503,
    "read_only": 503,
    "storage_full": 503,
    "storage_error": 503,
}

encode = msgspec.json.Encoder().encode


def elapsed_ms(request: Request) -> float:
    return (perf_counter() - request.received_at) * 1000


def send(request: Request, status: int, fields: dict[str, Any], headers: bytes = b"", **performance: float) -> None:
    """Answer with these fields and a `performance` object behind them."""
    fields["performance"] = {"server_total_ms": round(elapsed_ms(request), 3), **performance}
    request.respond(status, encode(fields), headers)


def send_error(request: Request, error: TopicsError) -> None:
    status, body, headers = render_error(error, elapsed_ms(request))
    request.respond(status, body, headers)


def render_error(error: TopicsError, took_ms: float | None = None) -> tuple[int, bytes, bytes]:
    """The status, the body and the header lines of an error."""
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    detail = dict(error.detail) if error.detail else {}
    status = STATUS_OF[error.code]
    headers = b""
    if isinstance(error, Throttled):
        if "limit" not in detail:
            detail["retry_after_ms"] = error.retry_after_ms
        headers = b"Retry-After: %d\r\n" % max(1, ceil(error.retry_after_ms / 1000))
    elif status == 503:
        headers = b"Retry-After: 1\r\n"
    elif status == 401:
        headers = b"WWW-Authenticate: Bearer\r\n"
    elif status == 405:
        headers = b"Allow: %b\r\n" % detail["allowed"].encode()
    if detail:
        body["detail"] = detail
    fields: dict[str, Any] = {"error": body}
    if took_ms is not None:
        fields["performance"] = {"server_total_ms": round(took_ms, 3)}
    return status, encode(fields), headers
