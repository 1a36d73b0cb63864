"""The interface of an application that the HTTP layer serves."""

from typing import Protocol

from .messages.head import RequestHead
from .messages.refusal import Refusal
from .request import Request


class Application(Protocol):
    """Answers requests. All methods are called on the event loop and must not block it.

    An application may also have these, looked up once when the listener is created:

        def admit(self, head: RequestHead) -> Refusal | None
        def error_body(self, request: Request, error: Exception) -> bytes
        slow_seconds: float
        def slow(self, request: Request, status: int, body: bytes) -> None

    See `Admitting`, `Explaining` and `Observing`.
    """

    def handle(self, request: Request) -> None:
        """Answer `request`, now or later, with exactly one of `respond`, `stream` and `upgrade`.

        The next request of the same connection is handed over only after that. An exception becomes 500 `internal`.
        """


class Admitting(Protocol):
    def admit(self, head: RequestHead) -> Refusal | None:
        """Return a refusal, or None to read the body.

        Called only for bodies that are over 64 KiB, chunked, compressed, or whose client waits for 100 Continue. What is
        checked here must be checked in `handle` too.
        """


class Explaining(Protocol):
    def error_body(self, request: Request, error: Exception) -> bytes:
        """Return the body of the 500 for an exception raised by `handle`, and log the exception."""


class Observing(Protocol):
    slow_seconds: float

    def slow(self, request: Request, status: int, body: bytes) -> None:
        """Called before the response to a request that took at least `slow_seconds` is sent."""
