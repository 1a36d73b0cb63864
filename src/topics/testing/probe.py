"""A probe beside a server: asks for its health all the time and notes how long the answers took.

    with LoopProbe(server.port, server.pid) as probe:
        ...                       # what must not hold up the event loop
    assert probe.worst_ms < 50

A gap is what the server kept the probe waiting for. On a machine that others use, answers are also late because the
server or the probe did not get a processor. So the time that either was ready to run and did not is subtracted, and a gap
counts at most for the processor time that the server used meanwhile. With `blocked` it counts in full: a loop that is
blocked in a system call, such as a slow sync, uses no processor time. Linux only.
"""

import multiprocessing
import socket
import time
from multiprocessing.connection import Connection

_REQUEST = b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
# Between two questions, so that the probe does not take a processor for itself.
_PAUSE_SECONDS = 0.0005


class LoopProbe:
    """Asks the server on this port, whose process has this id, from a process of its own."""

    def __init__(self, port: int, pid: int, *, blocked: bool = False) -> None:
        self.worst_ms = 0.0
        self._blocked = blocked
        self._port = port
        self._pid = pid

    def __enter__(self) -> "LoopProbe":
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_ask, args=(self._port, self._pid, self._blocked, other), daemon=True)
        self._process.start()
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(None)
        self.worst_ms = self._pipe.recv()
        self._process.join()


def _ask(port: int, pid: int, blocked: bool, pipe: Connection) -> None:
    worst = 0.0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pipe.send(None)
        while not pipe.poll():
            waited, used, started = _waited(pid), _processor_seconds(pid), time.perf_counter()
            connection.sendall(_REQUEST)
            answer = b""
            while b"\r\n\r\n" not in answer:
                part = connection.recv(4096)
                if not part:
                    raise ConnectionError("the server has closed the connection of the probe")
                answer += part
            took = time.perf_counter() - started - (_waited(pid) - waited)
            worst = max(worst, took if blocked else min(took, _processor_seconds(pid) - used))
            time.sleep(_PAUSE_SECONDS)
    pipe.send(worst * 1000)


def _processor_seconds(pid: int) -> float:
    """What all threads of the process have used so far. The number is how Linux names another process's clock."""
    return time.clock_gettime((~pid << 3) | 2)


def _waited(pid: int) -> float:
    """How long this thread and the main thread of the server were ready to run and did not get a processor, in seconds."""
    nanoseconds = 0
    for path in ("/proc/thread-self/schedstat", f"/proc/{pid}/schedstat"):
        with open(path, "rb") as file:
            nanoseconds += int(file.read().split()[1])
    return nanoseconds / 1e9
