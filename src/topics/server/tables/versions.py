"""Long polls on a version: a reader of routes, tables or archives waits until something has changed.

    ?version=7&wait_ms=20000    answer when the version is another one than this, or when the time is over

A version rises with every change and is never used twice: readers with the same version have the same data.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from topics.broker.core import Version
from topics.broker.long_poll import LongPoll
from topics.server.limits import wait_ms
from topics.server.operations import Call
from topics.server.responses import send_error


def answer_version(call: Call[Any, Any], version: Version, answer: Callable[[], None]) -> None:
    """Call `answer` once, for a query with the fields of VersionQuery: now, or when the version is not the given one any
    more, or when the time is over.
    """
    waits_ms = wait_ms(call.query.wait_ms, call.broker.limits)
    if call.query.version != version.now or not waits_ms:
        answer()
        return
    poll = LongPoll(call.broker, answer, partial(send_error, call.request))
    poll.watch_version(version)
    poll.wait(waits_ms)
    call.request.on_disconnect(poll.end)
