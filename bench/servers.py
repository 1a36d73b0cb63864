"""The servers that are measured: ours, others of the same API, Redis, NATS, and a bare echo server.

Each is a process with its own data directory, started here and ended here.
"""

import contextlib
import http.client
import json
import os
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

JSON = {"content-type": "application/json"}
START_SECONDS = 60.0
# Of this process and every server: ten thousand watchers of each contender.
MAX_DESCRIPTORS = 65_536
OUR_COMMAND = (sys.executable, "-m", "topics.cli.main", "serve")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def need(*commands: str) -> None:
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        sys.exit(f"the benchmark needs {', '.join(missing)}: run it as `make bench`, which installs them")


class ServerProcess:
    """A process on a port of 127.0.0.1 with a directory that is removed at the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = tempfile.mkdtemp(prefix=f"topics-bench-{name}-")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        raise_descriptor_limit()
        with open(os.path.join(self.directory, "log"), "ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def check_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            log = Path(self.directory, "log").read_text(errors="replace")
            raise AssertionError(f"{self.name} ended with status {self._process.returncode}: {log[-2000:]}")

    def cpu_seconds(self) -> float:
        """Processor time used so far, in user mode and in the kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(120)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class TopicsServer(ServerProcess):
    """A server of the /v0 API: ours by default, or another one that takes TOPICS_PORT and TOPICS_DATA_DIR."""

    def __init__(self, name: str = "topics", command: Sequence[str] = OUR_COMMAND, **environment: str) -> None:
        super().__init__(name)
        self._command = command
        self._environment = environment

    def start(self) -> float:
        """Start it and return the seconds until it was ready."""
        environment = os.environ | {
            "TOPICS_DATA_DIR": os.path.join(self.directory, "data"),
            "TOPICS_PORT": str(self.port),
            # Ten thousand watchers are one of the workloads.
            "TOPICS_MAX_SSE_CONNECTIONS": "0",
            "TOPICS_MAX_WATCH_SESSIONS": "0",
            **self._environment,
        }
        started = time.perf_counter()
        self.launch(self._command, environment)
        while not self._is_ready():
            self.check_running()
            if time.perf_counter() - started > START_SECONDS:
                raise AssertionError(f"{self.name} is not ready after {START_SECONDS:g} s")
            time.sleep(0.002)
        return time.perf_counter() - started

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        with self.connected() as connection:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, JSON if body is not None else {})
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"{}")

    def must(self, method: str, path: str, body: object = None) -> dict[str, object]:
        status, answer = self.call(method, path, body)
        assert status in (200, 201), f"{self.name}: {method} {path}: {status} {answer}"
        return answer

    @contextlib.contextmanager
    def connected(self) -> Iterator[http.client.HTTPConnection]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            yield connection

    def fill(self, topic: str, body: str, batches: int) -> None:
        """Append the same batch again and again, over one connection."""
        with self.connected() as connection:
            for _ in range(batches):
                connection.request("POST", f"/v0/topics/{topic}?return_seqs=false", body, JSON)
                response = connection.getresponse()
                response.read()
                assert response.status in (200, 201), response.status

    def _is_ready(self) -> bool:
        try:
            return self.call("GET", "/v0/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


@contextlib.contextmanager
def topics_server(**environment: str) -> Iterator[TopicsServer]:
    """Our server with these TOPICS_* variables."""
    server = TopicsServer(**environment)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextlib.contextmanager
def v0_server(name: str, command: str, **environment: str) -> Iterator[TopicsServer]:
    """Another server of the same API, started with this command line."""
    server = TopicsServer(name, shlex.split(command), **environment)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextlib.contextmanager
def echo_server() -> Iterator[ServerProcess]:
    """Our HTTP stack with a constant answer: the upper bound for a request of ours."""
    server = ServerProcess("echo")
    try:
        server.launch([sys.executable, str(Path(__file__).with_name("echo.py")), str(server.port)])
        wait_for_port(server)
        yield server
    finally:
        server.remove()


@contextlib.contextmanager
def redis_server(appendfsync: str) -> Iterator[ServerProcess]:
    """Redis with an append-only file: `everysec`, `always` or `no`."""
    server = ServerProcess("redis")
    command = ["redis-server", "--port", str(server.port), "--dir", server.directory, "--save", ""]
    command += ["--maxclients", "20000"]
    try:
        server.launch([*command, "--appendonly", "yes", "--appendfsync", appendfsync])
        wait_for_port(server)
        yield server
    finally:
        server.remove()


@contextlib.contextmanager
def nats_server() -> Iterator[ServerProcess]:
    """NATS with JetStream on disk. It writes to the page cache and syncs every two minutes."""
    server = ServerProcess("nats")
    try:
        server.launch(["nats-server", "-a", "127.0.0.1", "-p", str(server.port), "-js", "-sd", server.directory])
        wait_for_port(server)
        yield server
    finally:
        server.remove()


def raise_descriptor_limit() -> None:
    """Allow MAX_DESCRIPTORS to this process and the servers it starts, or as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= MAX_DESCRIPTORS:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, max(hard, MAX_DESCRIPTORS)))
    except (ValueError, OSError):
        # Only root may raise the hard limit.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(server: ServerProcess) -> None:
    deadline = time.perf_counter() + START_SECONDS
    while time.perf_counter() < deadline:
        server.check_running()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(f"{server.name} does not listen on port {server.port}")
