"""A listening port and its connections: accepting, deadlines, shutdown."""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .application import Application
from .connection.connection import Connection
from .limits import HttpLimits
from .messages.assembler import Assembler, HeldBytes
from .messages.head import RequestHead
from .messages.refusal import INTERNAL, Refusal
from .request import Request
from .unsent import Unsent

Result = TypeVar("Result")

# Open files that are not client connections: logs, segments, the listening sockets.
RESERVED_FILES = 512
# Refused connections that are still sending their 503. Further ones are aborted without a response.
MAX_REFUSED_CONNECTIONS = 256
MAX_SPARE_ASSEMBLERS = 64
THREADS = 2
# Aborted connections are gone one loop turn later.
ABORT_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Listener:
    """Serves one application on one port, from `start` to `stop`. Belongs to the loop that started it."""

    def __init__(self, app: Application, limits: HttpLimits | None = None) -> None:
        self.limits = limits if limits is not None else HttpLimits()
        self.handle = app.handle
        self.slow_seconds: float = getattr(app, "slow_seconds", math.inf)
        self.slow: Callable[[Request, int, bytes], None] = getattr(app, "slow", _ignore_slow)
        self.loop: asyncio.AbstractEventLoop
        self.connections: set[Connection] = set()
        self.held = HeldBytes()
        self.unsent = Unsent(self)
        self._app_admit = getattr(app, "admit", None)
        self._error_body = getattr(app, "error_body", None)
        self._capacity = self.limits.max_connections
        self.refused: set[Connection] = set()
        self._max_refused = MAX_REFUSED_CONNECTIONS
        self.spare_assemblers: list[Assembler] = []
        self.servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = False
        self._all_gone = asyncio.Event()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the bound address; port 0 picks a free port. Raises OSError if it cannot be bound.

        A host name with several addresses is served on each of them, on the same port.
        """
        self.loop = asyncio.get_running_loop()
        self._capacity, self._max_refused = connection_capacity(self.limits.max_connections)
        sockets = await self._bind(host, port)
        address = sockets[0].getsockname()[:2]
        try:
            for bound in sockets:
                server = await self.loop.create_server(
                    lambda: Connection(self), sock=bound, backlog=self.limits.backlog
                )
                self.servers.append(server)
        except OSError:
            for bound in sockets:
                bound.close()
            raise
        self._sweep_later()
        return address[0], address[1]

    async def stop(self, grace: float = 10.0) -> None:
        """Accept no more connections, let current requests finish within `grace` seconds, and close the rest.

        Idle connections are closed at once, others after the current response, which has `Connection: close`.
        Streams and duplexes get their `on_shutdown`. When this returns, no connection is left.
        """
        self._stopping = True
        for server in self.servers:
            server.close()
        for connection in tuple(self.connections):
            connection.drain()
        await self._wait_until_gone(grace)
        for connection in (*self.connections, *self.refused):
            connection.abort()
        await self._wait_until_gone(ABORT_SECONDS)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for assembler in self.spare_assemblers:
            assembler.dispose()
        self.spare_assemblers.clear()

    def sweep(self) -> None:
        """Apply the deadlines to every connection, once per `sweep_interval`: 1.5 ms for 10,000 idle ones."""
        now = self.limits.clock()
        for connection in tuple(self.connections):
            connection.sweep(now)
        for connection in tuple(self.refused):
            connection.sweep(now)
        self.unsent.check()

    # Called by connections.

    def opened(self, connection: Connection) -> bool:
        """Register the connection. If False, it must send 503 and close."""
        if len(self.connections) >= self._capacity:
            if len(self.refused) >= self._max_refused:
                connection.abort()
                return True
            self.refused.add(connection)
            return False
        self.connections.add(connection)
        self._all_gone.clear()
        if self._stopping:
            connection.drain()
        return True

    def lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.refused.discard(connection)
        self.unsent.remove(connection)
        if not self.connections:
            self._all_gone.set()

    def borrow_assembler(self) -> Assembler:
        if self.spare_assemblers:
            return self.spare_assemblers.pop()
        return Assembler(self.limits, self.held, None if self._app_admit is None else self._admit)

    def return_assembler(self, assembler: Assembler) -> None:
        """Only between two messages, when the assembler has no state."""
        if len(self.spare_assemblers) < MAX_SPARE_ASSEMBLERS:
            self.spare_assemblers.append(assembler)
        else:
            assembler.dispose()

    def run_in_thread(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="http-gzip")
        return self.loop.run_in_executor(self._threads, work)

    def explain(self, request: Request, error: Exception) -> bytes:
        """Return the body of a 500."""
        if self._error_body is not None:
            try:
                body: bytes = self._error_body(request, error)
            except Exception:
                logger.exception("error_body failed for %r; the client gets a plain 500", error)
            else:
                return body
        else:
            logger.error("exception in a request handler; the client gets 500", exc_info=error)
        return INTERNAL.body

    def _admit(self, head: RequestHead) -> Refusal | None:
        assert self._app_admit is not None
        try:
            refusal: Refusal | None = self._app_admit(head)
        except Exception:
            logger.exception("exception in admit; the client gets 500")
            return INTERNAL
        return refusal

    async def _bind(self, host: str, port: int) -> list[socket.socket]:
        found = await self.loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                bound = socket.socket(family, kind, protocol)
                sockets.append(bound)
                bound.setblocking(False)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                _detect_dead_peers(bound, self.limits.peer_timeout)
                if family == socket.AF_INET6:
                    # The IPv4 address, if there is one, has a socket of its own.
                    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                bound.bind((address[0], port, *address[2:]))
                port = bound.getsockname()[1]
        except OSError:
            for bound in sockets:
                bound.close()
            raise
        return sockets

    def _sweep_later(self) -> None:
        self._sweeper = self.loop.call_later(self.limits.sweep_interval, self._sweep_and_reschedule)

    def _sweep_and_reschedule(self) -> None:
        self._sweep_later()
        self.sweep()

    async def _wait_until_gone(self, seconds: float) -> None:
        if self.connections:
            try:
                async with asyncio.timeout(seconds):
                    await self._all_gone.wait()
            except TimeoutError:
                pass


def _detect_dead_peers(listening: socket.socket, seconds: float) -> None:
    """End connections whose machine has acknowledged nothing for `seconds`. On Linux, accepted sockets inherit this.

    Otherwise a worker whose machine lost power would get jobs until the kernel gives up, a quarter of an hour later.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
    if hasattr(socket, "TCP_KEEPIDLE"):
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(seconds / 2)))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(seconds / 6)))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def connection_capacity(max_connections: int) -> tuple[int, int]:
    """Return how many connections to serve and how many more to refuse with a 503, given the limit of open files.

    When the process is out of files, no connection can be accepted, not even to refuse it, and no file can be written.
    """
    max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if max_files == resource.RLIM_INFINITY:
        return max_connections, MAX_REFUSED_CONNECTIONS
    max_refused = min(MAX_REFUSED_CONNECTIONS, max_files // 8)
    reserved = min(RESERVED_FILES, max_files // 4)
    return min(max_connections, max_files - reserved - max_refused), max_refused


def _ignore_slow(_request: Request, _status: int, _body: bytes) -> None:
    pass
