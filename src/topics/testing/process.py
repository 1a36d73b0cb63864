"""A server in a process of its own, for what only a process can show: signals, kill -9, coming back on the same port."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from topics.testing.http import Api

# Reached only by a test that fails.
PATIENCE_SECONDS = 30.0


class ServerProcess:
    """`topics serve` on one data directory and, once it has one, always on the same port."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.port = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ServerProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it serves."""
        port_file = self.directory / "port"
        port_file.unlink(missing_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        environment |= {
            "TOPICS_DATA_DIR": str(self.directory / "data"),
            "TOPICS_PORT": str(self.port),
            "TOPICS_PORT_FILE": str(port_file),
            **self._settings,
        }
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "topics.cli.main", "serve"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not port_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self.directory / "log").read_text())
            time.sleep(0.005)
        self.port = int(port_file.read_text().rpartition(":")[2])
        with Api(self.url) as api:
            api.wait_until_ready(PATIENCE_SECONDS)

    def stop(self) -> int:
        """SIGTERM; answers the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is said."""
        assert self._process is not None
        self._process.kill()
        self._wait()

    def _wait(self) -> int:
        assert self._process is not None
        status = self._process.wait(PATIENCE_SECONDS)
        self._process = None
        return status
