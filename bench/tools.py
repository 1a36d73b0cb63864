"""What the benchmarks share: servers and peers as processes, wrk and redis-benchmark as load, rows as results."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

PAYLOAD = "x" * 98
JSON = {"content-type": "application/json"}


@dataclass
class Row:
    """One measured claim: what, how much, against what, and whether the target was met."""

    what: str
    value: str
    against: str
    ratio: float
    target: str
    met: bool

    def line(self) -> str:
        return f"| {self.what} | {self.value} | {self.against} | {self.ratio:.2f} | {self.target} | {'yes' if self.met else 'NO'} |"


HEADER = "| what | measured | against | ratio | target | met |\n|---|---|---|---|---|---|"


def at_least(what: str, value: float, against: float, target: float, unit: str, peer: str) -> Row:
    ratio = value / against
    return Row(what, f"{value:,.0f} {unit}", f"{against:,.0f} {unit} ({peer})", ratio, f">= {target}", ratio >= target)


def at_most(what: str, value: float, bound: float, unit: str) -> Row:
    return Row(what, f"{value:,.2f} {unit}", f"{bound:,.2f} {unit}", value / bound, "<= 1", value <= bound)


def need(*commands: str) -> None:
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        sys.exit(f"the benchmark needs {', '.join(missing)}: run it as `make bench`, which installs them")


class TopicsServer:
    """`topics serve` on a directory of its own."""

    def __init__(self, **environment: str) -> None:
        self.directory = tempfile.mkdtemp(prefix="topics-bench-")
        self.port = 0
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Seconds until it was ready."""
        port_file = os.path.join(self.directory, "port")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(port_file)
        environment = os.environ | {
            "TOPICS_DATA_DIR": os.path.join(self.directory, "data"),
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": port_file,
            **self._environment,
        }
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "topics.cli.main", "serve"], env=environment, stderr=subprocess.DEVNULL
        )
        while not os.path.exists(port_file):
            time.sleep(0.002)
        self.port = int(Path(port_file).read_text().rsplit(":", 1)[1])
        while self.call("GET", "/v0/ready")[0] != 200:
            time.sleep(0.005)
        return time.perf_counter() - started

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body), JSON if body is not None else {}
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextlib.contextmanager
def topics_server(**environment: str) -> Iterator[TopicsServer]:
    server = TopicsServer(**environment)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@contextlib.contextmanager
def echo_server() -> Iterator[int]:
    """The floor: the same protocol stack answering a constant."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("echo.py")), str(port)], stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port(port)
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def redis_server(fsync: str) -> Iterator[int]:
    need("redis-server", "redis-benchmark")
    port = free_port()
    directory = tempfile.mkdtemp(prefix="topics-bench-redis-")
    process = subprocess.Popen(
        [
            "redis-server",
            "--port",
            str(port),
            "--dir",
            directory,
            "--appendonly",
            "yes",
            "--appendfsync",
            fsync,
            "--save",
            "",
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for_port(port)
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def redis_benchmark(port: int, clients: int, requests: int, *command: str, pipeline: int = 1) -> float:
    """Commands a second."""
    output = subprocess.run(
        [
            "redis-benchmark",
            "-p",
            str(port),
            "-c",
            str(clients),
            "-n",
            str(requests),
            "-P",
            str(pipeline),
            "-q",
            *command,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return float(re.findall(r"([\d.]+) requests per second", output)[-1])


def wrk(url: str, script: str, connections: int, seconds: int, *, may_refuse: bool = False) -> float:
    """Requests a second; fails when any answer was not a success, unless it may be."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        output = subprocess.run(
            ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", file.name, url],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    if "Non-2xx" in output and not may_refuse:
        raise AssertionError(f"the server refused requests of the benchmark: {output}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))  # type: ignore[union-attr]


def post_script(body: str) -> str:
    return f'wrk.method = "POST"\nwrk.body = [[{body}]]\nwrk.headers["Content-Type"] = "application/json"\n'


def append_body(records: int) -> str:
    return '{"records":[' + ",".join([f'{{"data":"{PAYLOAD}"}}'] * records) + "]}"


Measures = Sequence[Callable[[], float]]


def median_of(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The measures taken in turn, round after round, so that a noisy moment hits all of them alike.

    On a virtual machine the host may give the processors to somebody else meanwhile, and what shares locks over two of them suffers
    most. So twice as many rounds are taken, and those count that lost least.
    """
    return _median([_round(measures) for _ in range(rounds * 2)])


def median_of_processes(rounds: int, start: Callable[[], AbstractContextManager[Measures]]) -> list[float]:
    """The same, with processes of their own for every two rounds: the next one may be a fifth quicker or slower in all it does.

    What they do first does not count: a server that seals its first segment loads a library for it, 0.2 s once in its life.
    """
    taken: list[Round] = []
    for _ in range(rounds):
        with start() as measures:
            _round(measures)
            taken += [_round(measures) for _ in range(2)]
    return _median(taken)


# What the host kept of the processors meanwhile, and what was measured.
Round = tuple[float, list[float]]


def _round(measures: Measures) -> Round:
    before = stolen_ticks()
    values = [measure() for measure in measures]
    stolen, total = (after - earlier for after, earlier in zip(stolen_ticks(), before, strict=True))
    return stolen / total, values


def _median(taken: list[Round]) -> list[float]:
    quiet = sorted(taken)[: len(taken) // 2]
    print(f"the host kept {quiet[0][0]:.0%} to {quiet[-1][0]:.0%} of the processors", file=sys.stderr)
    return [statistics.median(values) for values in zip(*[values for _, values in quiet], strict=True)]


def stolen_ticks() -> tuple[int, int]:
    """Since the machine runs: what the host has kept of the processors, and all there was. Nothing where nobody counts it."""
    try:
        counts = [int(count) for count in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 1
    return counts[7], sum(counts)


def fill(server: TopicsServer, topic: str, records: int, batch: int = 5000) -> None:
    """Append so many records, as fast as one connection can."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    full = append_body(batch)
    done = 0
    while done < records:
        count = min(batch, records - done)
        connection.request(
            "POST", f"/v0/topics/{topic}?return_seqs=false", full if count == batch else append_body(count), JSON
        )
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (200, 201), answer.status
        done += count
    connection.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    deadline = time.perf_counter() + 20
    while time.perf_counter() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nothing listens on port {port}")
