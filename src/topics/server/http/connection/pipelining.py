"""Pipelining: requests that are sent before earlier ones are answered. They are handled one at a time and in order.

    unparsed bytes -> Parsing -> waiting messages -> current request -> response -> `Connection.response_sent` -> proceed

`proceed` is the only place where input is parsed and requests that did not take the fast path are handed over. Above
the high-water mark of unsent output nothing is handed over, so a client that does not read its responses is not
served further.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from topics.server.http.messages.assembler import Message, body_limit
from topics.server.http.messages.body import INLINE_BYTES, Inflation
from topics.server.http.messages.head import NO_HEAD, RequestHead
from topics.server.http.messages.refusal import INTERNAL, OVERLOADED, Refusal, Refused, too_large
from topics.server.http.messages.response import CONTINUE
from topics.server.http.request import Request

from .parsing import Parsing
from .state import RECEIVING, Event

if TYPE_CHECKING:
    from topics.server.http.listener import Listener

    from .connection import Connection

logger = logging.getLogger(__name__)

# After this many parsing steps and requests of one connection the event loop serves the others.
MAX_STEPS_PER_TURN = 128
# Responses to pipelined requests that are written with one call.
MAX_RESPONSES_PER_WRITE = 16


class Pipeline:
    __slots__ = ("_connection", "_gathered", "_listener", "_proceeding", "_scheduled", "_waiting", "parsing")

    def __init__(self, connection: Connection, listener: Listener) -> None:
        self._connection = connection
        self._listener = listener
        self.parsing = Parsing(listener)
        self._waiting: deque[Message] = deque()
        self._gathered: list[bytes] | None = None
        """Responses that are written together with those to the requests behind them."""
        self._proceeding = False
        self._scheduled = False

    @property
    def has_input(self) -> bool:
        """Received input is not handed over yet: complete messages or unparsed bytes."""
        return bool(self._waiting) or self.parsing.unparsed_bytes > 0

    @property
    def has_waiting(self) -> bool:
        """Complete messages are not handed over yet."""
        return bool(self._waiting)

    def proceed(self) -> None:
        """Parse and hand over until a request is being handled, the client does not read, or no input is left.

        May be called at any time, also by a handler that this method has called.
        """
        if self._proceeding:
            return
        connection = self._connection
        if connection.closed:
            return
        self._proceeding = True
        self._scheduled = False
        steps_left = MAX_STEPS_PER_TURN
        try:
            while connection.state is RECEIVING and connection.writable:
                if self._waiting:
                    self._hand_over(*self._waiting.popleft())
                elif self.parsing.unparsed_bytes:
                    self._parse()
                elif connection.input_ended:
                    connection.finish()
                else:
                    if self.parsing.take_continue():
                        self.flush()
                        connection.write(CONTINUE)
                    break
                steps_left -= 1
                if not steps_left:
                    self._proceed_later()
                    break
        except Exception:
            # The caller has just answered another request and may have more to answer: it must not get this error.
            logger.exception("exception while parsing or handing over requests; the connection is aborted")
            connection.abort()
        finally:
            self._proceeding = False
        self._settle()

    def give_up(self, refusal: Refusal) -> None:
        """Stop waiting for the rest of the incomplete message, and refuse it."""
        self._waiting.append((NO_HEAD, None if self.parsing.is_refused else refusal))
        self.parsing.drop()
        self.proceed()

    def flush(self) -> None:
        gathered = self._gathered
        if gathered is not None:
            self._gathered = None
            self._connection.write_gathered(gathered)

    def dispose(self) -> None:
        """The connection is lost: release everything."""
        self._waiting.clear()
        self._gathered = None
        self.parsing.drop()

    def _parse(self) -> None:
        fast_path = self._connection.fast_path
        known = self.parsing.take_known(fast_path.memory) if fast_path is not None else None
        if known is not None:
            self._hand_over(*known)
            return
        messages = self.parsing.step(self._connection.learn_head)
        if len(messages) == 1:
            self._hand_over(*messages[0])
        else:
            self._waiting.extend(messages)

    def _hand_over(self, head: RequestHead, body: bytes | Refusal | None) -> None:
        connection = self._connection
        if body is None:
            # The client has its response already; the rest of its message cannot be parsed.
            connection.finish()
            return
        if self._gathered is None:
            if self._waiting or self.parsing.unparsed_bytes:
                self._gathered = []
                connection.write = self._gathered.append
        elif len(self._gathered) >= MAX_RESPONSES_PER_WRITE:
            self.flush()
        connection.since = now = connection.clock()
        request = Request(connection, head, b"", now)
        connection.transition(Event.REQUEST)
        connection.current = request
        if not head.keep_alive:
            connection.close_after_response = True
        if isinstance(body, Refusal):
            connection.refuse(request, body)
            return
        request.body = body
        if head.coding and body:
            self._inflate(request)
            return
        pending = head.pending_requests
        if pending is None or not pending.add(request):
            connection.handle(request)

    def _inflate(self, request: Request) -> None:
        connection = self._connection
        limits = connection.limits
        limit = body_limit(request.head, limits)
        inflation = Inflation(request.body, limit, too_large(limit, limits.max_body_bytes))
        try:
            body = inflation.run(INLINE_BYTES)
        except Refused as refused:
            connection.refuse(request, refused.refusal or INTERNAL)
            return
        if body is not None:
            request.body = body
            connection.handle(request)
            return

        def handle_inflated(body: bytes) -> None:
            request.body = body
            connection.handle(request)

        compressed_bytes = len(request.body)
        if not self._listener.held.fits(compressed_bytes, limits.max_held_bytes):
            connection.refuse(request, OVERLOADED)
            return
        self._listener.held.total += compressed_bytes
        connection.run_in_thread(inflation.finish, handle_inflated, held_bytes=compressed_bytes)
        request.body = b""

    def _settle(self) -> None:
        """After a run of `proceed`: write the gathered responses, set the state, and stop or resume reading."""
        connection = self._connection
        if connection.is_ending:
            return
        self.flush()
        unparsed_bytes = self.parsing.unparsed_bytes
        if (
            self._waiting
            or unparsed_bytes
            or self.parsing.in_message
            or not connection.writable
            or connection.input_ended
        ):
            connection.transition(Event.PENDING)
        else:
            connection.transition(Event.NOTHING_PENDING)
        if unparsed_bytes > connection.limits.hold_bytes:
            connection.pause_reading()
        elif not connection.is_upgraded:
            connection.resume_reading()

    def _proceed_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._listener.loop.call_soon(self.proceed)
