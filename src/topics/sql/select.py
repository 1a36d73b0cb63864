"""SELECT over tables given as rows, by an embedded engine in a process of its own.

The engine is DuckDB, in memory, told to touch no file, no network, no extension and none of its own settings. That does
not bound what a query may cost: one call of `repeat` allocates gigabytes past the engine's own limit. So it runs in a
child process whose address space the operating system bounds, and which is killed when a query takes too long. The
child is started by the first SELECT and kept; it ends with its parent, because its input does.

    request  := length u32 | MessagePack of Request        reply := length u32 | MessagePack of Reply

`SelectProcess.run` blocks: it is called on a thread, one query at a time.
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
ROWS_MOST = 10_000
REPLY_BYTES_MOST = 16 << 20


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
    rows_most: int = ROWS_MOST


class Reply(Struct):
    columns: list[str] = []
    rows: list[list[object]] = []
    error: str | None = None


class SelectProcess:
    """The child. Not running until it is needed."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._guard = threading.Lock()

    def run(self, request: Request, seconds: float = QUERY_SECONDS) -> Reply:
        """The rows. Raises InvalidRequest when the query is wrong or meets a limit; the next one is not affected."""
        body = _encode(request)
        try:
            child = self._running()
            assert child.stdin is not None
            child.stdin.write(len(body).to_bytes(4, "little") + body)
            child.stdin.flush()
            reply = _decode_reply(_read(child, seconds))
        except TimeoutError:
            self._kill()
            raise InvalidRequest(f"the query took longer than {seconds:g} seconds and was stopped") from None
        except (OSError, EOFError, msgspec.MsgspecError):
            self._kill()
            raise InvalidRequest("the query needs more than it may use and was stopped") from None
        if reply.error is not None:
            raise InvalidRequest(reply.error)
        return reply

    def close(self) -> None:
        """No query after this; one that runs fails."""
        with self._guard:
            self._closed = True
        self._kill()

    def _running(self) -> "subprocess.Popen[bytes]":
        with self._guard:
            if self._closed:
                raise Unavailable("the server is shutting down", code="shutting_down")
            if self._child is None:
                self._child = subprocess.Popen(
                    [sys.executable, "-m", "topics.sql.worker", str(ADDRESS_SPACE_MB)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # What the server is told in secret is none of its business, nor are signals meant for the server.
                    env={name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")},
                    start_new_session=True,
                )
                child = self._child
            else:
                return self._child
        # It says that it is ready, so that loading the engine is not counted as the query's time.
        _read(child, START_SECONDS)
        return child

    def _kill(self) -> None:
        with self._guard:
            child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # what was still to be written to it has nobody to read it


_encode = msgspec.msgpack.Encoder().encode
_decode_reply = msgspec.msgpack.Decoder(Reply).decode


def _read(child: "subprocess.Popen[bytes]", seconds: float) -> bytes:
    """One message of the child. Raises TimeoutError, or EOFError when it has died."""
    assert child.stdout is not None
    deadline = monotonic() + seconds
    received = bytearray()
    wanted = 4
    while len(received) < wanted:
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, deadline - monotonic()))
        if not ready:
            raise TimeoutError
        piece = child.stdout.raw.read(1 << 16)  # type: ignore[attr-defined]
        if not piece:
            raise EOFError
        received += piece
        if wanted == 4 and len(received) >= 4:
            wanted = 4 + int.from_bytes(received[:4], "little")
            if wanted > REPLY_BYTES_MOST * 2:
                raise EOFError
    return bytes(received[4:wanted])


__all__ = ["Column", "Reply", "Request", "SelectProcess", "Table"]
