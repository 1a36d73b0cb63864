"""SELECT over tables given as rows, by an embedded engine in a process of its own.

The engine is DuckDB, in memory, configured to touch no file, no network, no extension and none of its own settings. That
does not bound what a query may cost: one call of `repeat` allocates gigabytes past the engine's own limit. So it runs in
a child process whose address space the operating system bounds, and which is killed when a query takes too long. The
child is started by the first SELECT and kept; it ends with its parent, because its input does.

    request  := length u32 | MessagePack of Request        reply := length u32 | MessagePack of Reply

`SelectProcess.run` blocks: it is called on a thread, one query at a time. Several of them make a pool.
"""

import os
import select
import subprocess
import sys
import threading
from time import monotonic

import msgspec
from msgspec import Struct

from topics.model.errors import InvalidRequest, Unavailable
from topics.sql.statements import Value

START_SECONDS = 30.0
QUERY_SECONDS = 5.0
MEMORY_MB = 256
# Address space of the child: what the interpreter and the engine map before the first query is part of it.
ADDRESS_SPACE_MB = 1536
MAX_ROWS = 10_000
MAX_REPLY_BYTES = 16 << 20
READ_BYTES = WRITE_BYTES = 1 << 16


class Column(Struct, frozen=True):
    name: str
    # A type of the engine.
    type: str


class Table(Struct):
    """Rows as tuples in the order of the columns."""

    name: str
    columns: list[Column]
    rows: list[tuple[Value, ...]]


class Request(Struct):
    text: str
    params: list[Value]
    tables: list[Table]
    memory_mb: int = MEMORY_MB
    max_rows: int = MAX_ROWS


class Reply(Struct):
    columns: list[str] = []
    rows: list[list[object]] = []
    error: str | None = None


class SelectProcess:
    """One worker process. Not running until it is needed; replaced when it has died or was killed."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._guard = threading.Lock()
        # Held while a query uses the pipes: closed while in use, their descriptors could become those of other files.
        self._in_use = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id of the worker, while there is one."""
        child = self._child
        return None if child is None else child.pid

    def run(self, request: Request, seconds: float = QUERY_SECONDS) -> Reply:
        """The rows. Blocks.

        Raises InvalidRequest when the query is wrong or meets a limit, Unavailable when no worker can be started. After
        any failure the worker is killed, because its pipe may still contain a reply, and the next query gets a new one.
        """
        body = _encode(request)
        with self._in_use:
            reply = self._ask(body, seconds)
        if reply.error is not None:
            raise InvalidRequest(reply.error)
        return reply

    def close(self) -> None:
        """Refuse further queries. One that runs fails."""
        with self._guard:
            self._closed = True
            if self._child is not None:
                self._child.kill()
        with self._in_use:
            self._kill()

    def _ask(self, body: bytes, seconds: float) -> Reply:
        child = self._running()
        try:
            deadline = monotonic() + seconds
            _write(child, len(body).to_bytes(4, "little") + body, deadline)
            return _decode_reply(_read(child, deadline))
        except TimeoutError:
            self._kill()
            raise InvalidRequest(f"the query took longer than {seconds:g} seconds and was stopped") from None
        except (OSError, EOFError, msgspec.MsgspecError):
            self._kill()
            raise InvalidRequest("the query needs more memory than it may use and was stopped") from None
        except BaseException:
            self._kill()
            raise

    def _running(self) -> "subprocess.Popen[bytes]":
        """The worker, ready for a query. Raises Unavailable."""
        child = self._child
        if child is not None and child.poll() is not None:
            # It ended between two queries: the next one gets a new worker.
            self._kill()
        try:
            with self._guard:
                if self._closed:
                    raise Unavailable("the server is shutting down", code="shutting_down")
                if self._child is not None:
                    return self._child
                child = self._child = _start()
            # An empty message means that the engine is loaded: loading does not count as time of the query.
            _read(child, monotonic() + START_SECONDS)
        except (OSError, EOFError) as error:
            self._kill()
            raise Unavailable(
                f"the worker for queries cannot be started: {str(error) or type(error).__name__}"
            ) from None
        except BaseException:
            self._kill()
            raise
        return child

    def _kill(self) -> None:
        with self._guard:
            child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()


_encode = msgspec.msgpack.Encoder().encode
_decode_reply = msgspec.msgpack.Decoder(Reply).decode


def _start() -> "subprocess.Popen[bytes]":
    child = subprocess.Popen(
        [sys.executable, "-m", "topics.sql.worker", str(ADDRESS_SPACE_MB)],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # The worker gets neither the secrets of the server nor signals that are sent to the server.
        env={name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")},
        start_new_session=True,
    )
    for pipe in (child.stdin, child.stdout):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
    return child


def _wait(descriptor: int, event: int, deadline: float) -> None:
    """Wait until the pipe is ready. Raises TimeoutError.

    With `poll`: `select` refuses descriptors from 1,024 on, which a server with many connections has.
    """
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
        raise TimeoutError


def _write(child: "subprocess.Popen[bytes]", message: bytes, deadline: float) -> None:
    """Raises TimeoutError, or OSError when the child has died."""
    assert child.stdin is not None
    descriptor = child.stdin.fileno()
    rest = memoryview(message)
    while rest:
        _wait(descriptor, select.POLLOUT, deadline)
        rest = rest[os.write(descriptor, rest[:WRITE_BYTES]) :]


def _read(child: "subprocess.Popen[bytes]", deadline: float) -> bytes:
    """One message of the child. Raises TimeoutError, or EOFError when it has died."""
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    received = bytearray()
    wanted = 4
    while len(received) < wanted:
        _wait(descriptor, select.POLLIN, deadline)
        piece = os.read(descriptor, READ_BYTES)
        if not piece:
            raise EOFError("it ended")
        received += piece
        if wanted == 4 and len(received) >= 4:
            wanted = 4 + int.from_bytes(received[:4], "little")
            if wanted > MAX_REPLY_BYTES * 2:
                raise EOFError("its answer is too large")
    return bytes(received[4:wanted])


__all__ = ["Column", "Reply", "Request", "SelectProcess", "Table"]
