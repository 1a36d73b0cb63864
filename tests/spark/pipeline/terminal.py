"""A terminal for tests: a pair of devices as a window has them, and a screen that shows what was written."""

import fcntl
import os
import re
import struct
import termios
import threading
from typing import Any

_STEP = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|(.)", re.DOTALL)


class TerminalScreen:
    """What a terminal shows: the lines that scrolled away and those on the screen. Supports the few controls that we use."""

    def __init__(self, columns: int, rows: int) -> None:
        self._columns = columns
        self._rows = rows
        self.gone: list[str] = []
        self._lines: list[list[str]] = [[]]
        self.row = 0
        self.column = 0

    def show(self, text: str) -> None:
        for number, control, sign in _STEP.findall(text):
            if control == "A":
                self.row = max(0, self.row - int(number or 1))
            elif control == "J":
                self._lines[self.row] = self._lines[self.row][: self.column]
                del self._lines[self.row + 1 :]
            elif control == "m":
                continue  # colours and weights
            elif control:
                raise AssertionError(f"an unknown control: {number}{control}")
            elif sign == "\r":
                self.column = 0
            elif sign == "\n":
                self._down()
            elif sign.isprintable():
                self._put(sign)
            else:
                raise AssertionError(f"an unknown control: {sign!r}")

    def lines(self) -> list[str]:
        """Everything, from the top, without the empty end."""
        text = [*self.gone, *["".join(line).rstrip() for line in self._lines]]
        while text and not text[-1]:
            text.pop()
        return text

    def _put(self, sign: str) -> None:
        if self.column == self._columns:
            self.column = 0
            self._down()
        line = self._lines[self.row]
        line += [" "] * (self.column + 1 - len(line))
        line[self.column] = sign
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self._lines):
            self._lines.append([])
        if self.row == self._rows:
            self.gone.append("".join(self._lines.pop(0)).rstrip())
            self.row -= 1


class Terminal:
    """A window of that size. `device` is what a process gets as its terminal."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.columns = columns
        self.rows = rows
        self._master, self.device = os.openpty()
        fcntl.ioctl(self.device, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._before = termios.tcgetattr(self.device)
        self._written = b""
        # Read all the time: a full terminal blocks the writer.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def is_as_before(self) -> bool:
        """No mode was left behind: what is typed is seen, lines end where they should."""
        now: list[Any] = termios.tcgetattr(self.device)
        return now == self._before

    def written(self) -> str:
        return self._written.decode(errors="replace")

    def screen(self) -> TerminalScreen:
        screen = TerminalScreen(self.columns, self.rows)
        screen.show(self.written())
        return screen

    def close(self) -> None:
        """Everything that was written has been read."""
        os.close(self.device)
        self._reader.join(10)
        os.close(self._master)

    def _read(self) -> None:
        try:
            while part := os.read(self._master, 65536):
                self._written += part
        except OSError:
            # The last one who had it open has closed it.
            pass
