"""What the protocol asks of the layer above it."""

from typing import Protocol

from .head import RequestHead
from .refusal import Refusal
from .request import Request


class Application(Protocol):
    """Answers requests. Everything is called on the event loop and must not wait there.

    An application may also have these, looked up once when the listener is made:

        def admit(self, head: RequestHead) -> Refusal | None
        def error_body(self, request: Request, error: Exception) -> bytes
        slow_seconds: float
        def slow(self, request: Request, status: int, body: bytes) -> None

    See `Admitting`, `Explaining` and `Observing`.
    """

    def handle(self, request: Request) -> None:
        """Answer `request`, now or later, with exactly one of `respond`, `stream` and `upgrade`.

        The next request of the same connection comes only after that. An exception becomes 500 `internal`.
        """


class Admitting(Protocol):
    def admit(self, head: RequestHead) -> Refusal | None:
        """A chance to refuse before a large body is read.

        Asked only about bodies over 64 KiB, chunked ones and those whose sender waits for 100 Continue. Whatever is
        checked here must be checked in `handle` too.
        """


class Explaining(Protocol):
    def error_body(self, request: Request, error: Exception) -> bytes:
        """The body of the 500 for an exception that `handle` let out; also the place to log it."""


class Observing(Protocol):
    slow_seconds: float

    def slow(self, request: Request, status: int, body: bytes) -> None:
        """A request is over that took at least `slow_seconds`. Called before its answer is sent."""
