"""Reply callbacks and other callbacks of requests: one that raises must not affect the others.

A reply gets the outcome of its request or a TopicsError. If it raises, the exception is logged and the reply is called once
more with an internal error, so that its client gets an answer and does not wait forever. (A request of the server refuses a
second answer; so the client gets exactly one.)
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from topics.model.errors import TopicsError

log = logging.getLogger("topics.broker")


def internal_error() -> TopicsError:
    return TopicsError("internal error; the server's log has the details")


def error_of(error: BaseException) -> TopicsError:
    """What the client gets: the error itself, or an internal error for an exception that no request should cause."""
    return error if isinstance(error, TopicsError) else internal_error()


def ignore(*_: object) -> None:
    """The callback of a caller that needs none."""


def send(reply: Callable[[Any], None], outcome: Any) -> None:
    """Call the reply. Never raises."""
    try:
        reply(outcome)
    except Exception:
        log.exception("exception in a reply callback; its client gets an internal error")
        if not isinstance(outcome, TopicsError):
            try:
                reply(internal_error())
            except Exception:
                log.debug("the reply callback raised again", exc_info=True)


def call(callback: Callable[..., object], *arguments: Any) -> None:
    """Call the callback, which answers several requests or none. Never raises."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("exception in a callback; others are still called")


def run_each(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call them all in order. Never raises."""
    for callback in callbacks:
        call(callback)


def retried(again: Callable[[], object], reply: Callable[[TopicsError], None]) -> Callable[[], None]:
    """A callback that runs a deferred request again and answers it with the error when it is refused."""

    def run() -> None:
        try:
            again()
        except TopicsError as error:
            send(reply, error)
        except Exception:
            log.exception("exception in a deferred request; its client gets an internal error")
            send(reply, internal_error())

    return run
