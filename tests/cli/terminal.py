"""Run `topics` as a user does: in a real terminal (a pty), and in a pipe."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence

TOPICS = [sys.executable, "-m", "topics.cli.main"]
ROWS, COLUMNS = 50, 160
# Reached only by a test that fails.
PATIENCE_S = 60.0
_CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>78])")


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of this process without TOPICS_* variables; a plain terminal of a known size."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    # The prompt would otherwise wait for this terminal to report the position of its cursor.
    return {**kept, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **more}


def in_pipe(
    arguments: Sequence[str], environment: Mapping[str, str], stdin: str = "", *, patience_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOPICS, *arguments],
        env=dict(environment),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=patience_s,
        check=False,
    )


class Terminal:
    """A process in a pty of its own. Use it as a context: the process is killed at the end if it still runs."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, patience_s: float = PATIENCE_S
    ) -> None:
        self._patience_s = patience_s
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            [*TOPICS, *arguments],
            env=dict(environment),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._output = b""
        # Where in the text the next expectation begins.
        self._expected = 0

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """What the terminal was sent so far, without control sequences."""
        return _CONTROL.sub("", self._output.decode(errors="replace")).replace("\r\n", "\n")

    @property
    def raw(self) -> str:
        """What the terminal was sent so far, as it is."""
        return self._output.decode(errors="replace")

    def expect(self, text: str) -> None:
        """Read until the text is on the terminal, behind what was expected before."""
        until = time.monotonic() + self._patience_s
        while (at := self.text.find(text, self._expected)) < 0:
            assert self._read(until), f"{text!r} did not appear in:\n{self.text}"
        self._expected = at + len(text)

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self) -> int:
        """Read to the end and return the exit code."""
        until = time.monotonic() + self._patience_s
        while self._read(until):
            pass
        return self._process.wait(self._patience_s)

    def _read(self, until: float) -> bool:
        """Read once; False at the end of the output."""
        left = until - time.monotonic()
        assert left > 0, f"waited too long; the terminal has:\n{self.text}"
        if not select.select([self._master], [], [], left)[0]:
            return True
        try:
            piece = os.read(self._master, 65536)
        except OSError:
            # Linux reports EIO when the last process has closed the terminal.
            return False
        self._output += piece
        return bool(piece)


def in_terminal(
    arguments: Sequence[str], environment: Mapping[str, str], keys: str = "", *, patience_s: float = PATIENCE_S
) -> tuple[int, str]:
    """The exit code and what was shown. `keys` are typed at once."""
    with Terminal(arguments, environment, patience_s=patience_s) as terminal:
        if keys:
            terminal.send(keys)
        return terminal.wait(), terminal.text
