"""Responses: encode results and errors as JSON.

Every success is bare data with a `performance` object; every failure is the one error body. The status of each error
code is in `topics.api.errors`.
"""

import logging
from collections.abc import Callable, Iterable
from math import ceil
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from topics.api.errors import STATUS_OF
from topics.model.errors import Throttled, TopicsError
from topics.server.http import Request, drop_together

log = logging.getLogger("topics.server")

T = TypeVar("T")

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


def reply_to(request: Request) -> Callable[[Callable[[T], None]], Callable[[T | TopicsError], None]]:
    """Make the function that answers a result a reply callback of the broker, which may also get an error.

    An error is answered as it is, also one that the function raises.
    """

    def decorate(answer: Callable[[T], None]) -> Callable[[T | TopicsError], None]:
        def reply(outcome: T | TopicsError) -> None:
            try:
                if isinstance(outcome, TopicsError):
                    raise outcome
                answer(outcome)
            except TopicsError as error:
                send_error(request, error)

        return reply

    return decorate


def refuse_together(requests: Iterable[Request], error: TopicsError) -> None:
    """Answer each request with the error; one that cannot be answered does not affect the others."""
    for request in requests:
        try:
            send_error(request, error)
        except Exception:  # noqa: BLE001 - logged there
            answer_failed(request)


def answer_failed(request: Request) -> None:
    """Log the exception raised while answering the request, and close its connection: its client must not wait."""
    log.exception("exception while answering a request; its connection is closed, the others are answered")
    drop_together([request])


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
