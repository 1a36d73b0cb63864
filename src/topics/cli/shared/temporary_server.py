"""A server in a process and a directory of its own, both gone at the end. For `topics demo` and `topics bench --local`."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topics.model.errors import Unavailable

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@contextmanager
def temporary_server(port: int = 0) -> Iterator[str]:
    """The URL of a server without data and without keys. Raises Unavailable with its log when it does not start."""
    directory = Path(tempfile.mkdtemp(prefix="topics-"))
    log = directory / "log"
    port_file = directory / "port"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    environment |= {
        "TOPICS_PORT": str(port),
        "TOPICS_PORT_FILE": str(port_file),
        "TOPICS_DATA_DIR": str(directory / "data"),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "topics.cli.main", "serve"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C on the terminal ends this process, which stops the server when it is ready to.
            start_new_session=True,
        )
    try:
        until = time.monotonic() + START_TIMEOUT_S
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > until:
                lines = log.read_text(errors="replace").strip().splitlines()
                raise Unavailable(
                    f"the server did not start: {lines[-1] if lines else 'no output'}", code="not_started"
                )
            time.sleep(0.02)
        yield f"http://{port_file.read_text().strip()}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)
