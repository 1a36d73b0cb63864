"""The probe sees a loop that computes and, when asked, one that is blocked in a system call."""

import subprocess
import sys

import pytest

from topics.testing.probe import LoopProbe

# Answers every request, and stalls for 0.3 s at the tenth of a connection.
SERVER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
for number in range(10**9):
    if not connection.recv(4096):
        break
    if number == 10:
        if sys.argv[1] == "blocked":
            time.sleep(0.3)
        else:
            until = time.process_time() + 0.3
            while time.process_time() < until:
                pass
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    if number == 20:
        print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("stall", "blocked", "seen"),
    [("computing", False, True), ("computing", True, True), ("blocked", True, True), ("blocked", False, False)],
)
def test_a_stalled_loop_is_seen(stall: str, blocked: bool, seen: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER, stall], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with LoopProbe(port, server.pid, blocked=blocked) as probe:
            assert server.stdout.readline() == "done\n"
    assert (probe.worst_ms > 200) == seen
