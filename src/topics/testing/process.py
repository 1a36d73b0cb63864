"""A server in a process of its own, for what only a process can show: signals, kill -9, coming back on the same port."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Reached only by a test that fails.
PATIENCE_SECONDS = 60.0


class ServerEnded(AssertionError):
    """The process ended, or never came to serve. Its log is the message."""


class ServerProcess:
    """`topics serve` on one data directory and, once it has one, always on the same port.

    As a context manager it is started, and killed at the end if it still runs. `settings` are TOPICS_* variables;
    nothing else of that kind is taken from the environment. `program` are the arguments of Python.
    """

    program: tuple[str, ...] = ("-m", "topics.cli.main", "serve")

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.port = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ServerProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def data_dir(self) -> Path:
        return self.directory / "data"

    @property
    def logs(self) -> str:
        """What all runs of this server have said."""
        return (self.directory / "log").read_text(encoding="utf-8")

    def start(self, *, ready: bool = True, **settings: str) -> None:
        """Return when it serves or, with `ready` False, when it listens: then it may still replay its log.

        `settings` are for this run alone.

        Raises ServerEnded when the process ends before that.
        """
        assert self._process is None, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        port_file = self.directory / "port"
        port_file.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        environment |= {
            "TOPICS_DATA_DIR": str(self.data_dir),
            "TOPICS_PORT": str(self.port),
            "TOPICS_PORT_FILE": str(port_file),
            **self._settings,
            **settings,
        }
        with open(self.directory / "log", "ab") as log:
            logged = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, *self.program],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (port := self._port_in(port_file) if ready else self._port_in_log(logged)) is None:
            self._wait_a_little(deadline)
        self.port = port

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request on a connection of its own: status and decoded body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stop(self) -> int:
        """SIGTERM; answers the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is said. Nothing happens when it does not run."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def wait(self) -> int:
        """The exit status, when it has ended."""
        assert self._process is not None
        status = self._process.wait(PATIENCE_SECONDS)
        self._process = None
        return status

    def _port_in(self, port_file: Path) -> int | None:
        return int(port_file.read_text().rpartition(":")[2]) if port_file.exists() else None

    def _port_in_log(self, start: int) -> int | None:
        """The port that this run says it listens on, in what it has logged from `start` on."""
        with open(self.directory / "log", "rb") as log:
            log.seek(start)
            found = re.search(rb"listening on http://\S+:(\d+)\b", log.read())
        return int(found[1]) if found else None

    def _wait_a_little(self, deadline: float) -> None:
        assert self._process is not None
        if self._process.poll() is not None or time.monotonic() > deadline:
            raise ServerEnded(f"exit status {self._process.returncode}\n{self.logs}")
        time.sleep(0.005)
