"""10,000 idle connections: memory per connection is bounded and other clients are not slowed."""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.http.wire import Server, get, serving, until
from topics.server.http.connection.state import State

CLIENTS = 10_000

CROWD = """
import socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
for client in clients[::2]:
    client.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    client.recv(4096)
print("there", flush=True)
sys.stdin.read()
"""


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@serving()
async def test_idle_connection_keeps_no_parser(server: Server) -> None:
    clients = [await server.connect() for _ in range(50)]
    for client in clients:
        await client.ask(get("/"))
    assert all(connection.state is State.IDLE for connection in server.listener.connections)
    assert all(not connection.in_message for connection in server.listener.connections)
    assert len(server.listener.spare_assemblers) <= 50


@pytest.fixture
def many_files() -> object:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < CLIENTS + 1000:
        pytest.skip(f"a process may open only {before[1]} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], CLIENTS + 1000), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
@serving()
async def test_ten_thousand_idle_connections_cost_less_than_4_kib_each(server: Server) -> None:
    before = resident_bytes()
    crowd = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CROWD,
        str(server.address[1]),
        str(CLIENTS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert crowd.stdin is not None
    assert crowd.stdout is not None
    try:
        assert await crowd.stdout.readline() == b"there\n"
        await until(lambda: len(server.listener.connections) == CLIENTS)
        # The recorder keeps what it saw; that is not the connections' cost.
        server.app.requests.clear()
        assert resident_bytes() - before < CLIENTS * 4096
        assert (await server.ask(get("/"))).status == 200
        server.pass_time(76)
        await until(lambda: not server.listener.connections)
    finally:
        crowd.stdin.close()
        await crowd.wait()
