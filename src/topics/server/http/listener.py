"""A listening port and its connections: who may come in, who has stayed too long, and how it ends."""

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
from .assembler import Assembler, HeldBytes
from .head import RequestHead
from .limits import HttpLimits
from .protocol import Connection
from .refusal import INTERNAL, Refusal
from .request import Request
from .unsent import Unsent

Result = TypeVar("Result")

# Files that are not client connections: logs, segments, the listening sockets.
FILES_RESERVED = 512
# Clients turned away that are still being told so. More than these are cut off without a word.
TURNED_AWAY_MAX = 256
SPARE_ASSEMBLERS_MAX = 64
THREADS = 2
# Connections that were aborted are gone one turn of the loop later.
ABORT_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Listener:
    """Serves one application on one port, from `start` to `stop`. Belongs to the loop that started it."""

    def __init__(self, app: Application, limits: HttpLimits | None = None) -> None:
        self.limits = limits if limits is not None else HttpLimits()
        self.handle = app.handle
        self.slow_seconds: float = getattr(app, "slow_seconds", math.inf)
        self.slow: Callable[[Request, int, bytes], None] = getattr(app, "slow", _nobody_cares)
        self.loop: asyncio.AbstractEventLoop
        self.connections: set[Connection] = set()
        self.held = HeldBytes()
        self.unsent = Unsent(self)
        self._app_admit = getattr(app, "admit", None)
        self._error_body = getattr(app, "error_body", None)
        self._capacity = self.limits.max_connections
        self._turned_away: set[Connection] = set()
        self._turned_away_max = TURNED_AWAY_MAX
        self._spare_assemblers: list[Assembler] = []
        self._servers: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._stopping = False
        self._all_gone = asyncio.Event()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address that was bound; port 0 picks one. Raises OSError if it cannot be had.

        A host name with several addresses is served on each of them, on the same port.
        """
        self.loop = asyncio.get_running_loop()
        self._capacity, self._turned_away_max = _capacity(self.limits.max_connections)
        sockets = await self._bind(host, port)
        address = sockets[0].getsockname()[:2]
        try:
            for bound in sockets:
                server = await self.loop.create_server(
                    lambda: Connection(self), sock=bound, backlog=self.limits.backlog
                )
                self._servers.append(server)
        except OSError:
            for bound in sockets:
                bound.close()
            raise
        self._sweep_later()
        return address[0], address[1]

    async def stop(self, grace: float = 10.0) -> None:
        """Accept no more, let what was begun finish within `grace` seconds, and close the rest.

        Idle connections are closed at once, busy ones after the answer under way, which tells the client so.
        Streams and duplexes are told by their `on_shutdown`. Afterwards no connection is left.
        """
        self._stopping = True
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.drain()
        await self._wait_until_gone(grace)
        for connection in (*self.connections, *self._turned_away):
            connection.abort()
        await self._wait_until_gone(ABORT_SECONDS)
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for assembler in self._spare_assemblers:
            assembler.dispose()
        self._spare_assemblers.clear()

    def sweep(self) -> None:
        """Look at the clock for every connection: 1.5 ms for 10,000 idle ones, once a `sweep_interval`."""
        now = self.limits.clock()
        for connection in tuple(self.connections):
            connection.sweep(now)
        for connection in tuple(self._turned_away):
            connection.sweep(now)
        self.unsent.check()

    # What connections call.

    def opened(self, connection: Connection) -> bool:
        """Whether the connection may stay. If not, it should say so and go."""
        if len(self.connections) >= self._capacity:
            if len(self._turned_away) >= self._turned_away_max:
                connection.abort()
                return True
            self._turned_away.add(connection)
            return False
        self.connections.add(connection)
        self._all_gone.clear()
        if self._stopping:
            connection.drain()
        return True

    def lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._turned_away.discard(connection)
        self.unsent.remove(connection)
        if not self.connections:
            self._all_gone.set()

    def borrow_assembler(self) -> Assembler:
        if self._spare_assemblers:
            return self._spare_assemblers.pop()
        return Assembler(self.limits, self.held, None if self._app_admit is None else self._admit)

    def return_assembler(self, assembler: Assembler) -> None:
        """Only between two messages, when it has no state."""
        if len(self._spare_assemblers) < SPARE_ASSEMBLERS_MAX:
            self._spare_assemblers.append(assembler)
        else:
            assembler.dispose()

    def run_aside(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="http-gzip")
        return self.loop.run_in_executor(self._threads, work)

    def explain(self, request: Request, error: Exception) -> bytes:
        """The body of a 500."""
        if self._error_body is not None:
            try:
                body: bytes = self._error_body(request, error)
            except Exception:
                logger.exception("error_body failed while explaining %r", error)
            else:
                return body
        else:
            logger.error("unhandled error in a request", exc_info=error)
        return INTERNAL.body

    def _admit(self, head: RequestHead) -> Refusal | None:
        assert self._app_admit is not None
        try:
            refusal: Refusal | None = self._app_admit(head)
        except Exception:
            logger.exception("admit failed")
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
                _notice_the_gone(bound, self.limits.peer_timeout)
                if family == socket.AF_INET6:
                    # Its IPv4 counterpart, where there is one, is bound by itself.
                    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                bound.bind((address[0], port, *address[2:]))
                port = bound.getsockname()[1]
        except OSError:
            for bound in sockets:
                bound.close()
            raise
        return sockets

    def _sweep_later(self) -> None:
        self._sweeper = self.loop.call_later(self.limits.sweep_interval, self._sweep_and_again)

    def _sweep_and_again(self) -> None:
        self._sweep_later()
        self.sweep()

    async def _wait_until_gone(self, seconds: float) -> None:
        if self.connections:
            try:
                async with asyncio.timeout(seconds):
                    await self._all_gone.wait()
            except TimeoutError:
                pass


def _notice_the_gone(listening: socket.socket, seconds: float) -> None:
    """Connections end when the other machine has not answered for so long. What is accepted inherits this, on Linux.

    Otherwise a worker whose machine lost its power would be sent jobs until the kernel gives up, a quarter of an hour later.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
    if hasattr(socket, "TCP_KEEPIDLE"):
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(seconds / 2)))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(seconds / 6)))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def _capacity(connections_max: int) -> tuple[int, int]:
    """How many connections to serve, and how many more to turn away politely, with the files the process may open.

    Out of files, nobody can be accepted, not even to be turned away, and nothing can be written either.
    """
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files_max == resource.RLIM_INFINITY:
        return connections_max, TURNED_AWAY_MAX
    turned_away_max = min(TURNED_AWAY_MAX, files_max // 8)
    reserved = min(FILES_RESERVED, files_max // 4)
    return min(connections_max, files_max - reserved - turned_away_max), turned_away_max


def _nobody_cares(_request: Request, _status: int, _body: bytes) -> None:
    pass
