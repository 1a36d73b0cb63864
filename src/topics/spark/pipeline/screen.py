"""The output of a pipeline: a table that is redrawn in place on a terminal, elsewhere a line for each job that has changed."""

import os
import unicodedata
from typing import TextIO

from topics.client.values import JobStatus

# How often the table is redrawn, and how often lines are printed where there is no terminal.
REDRAW_S = 1.0
PRINT_S = 10.0


class Screen:
    """Writes to one terminal or file."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._drawn = 0
        self._last: dict[str, tuple[object, ...]] = {}
        self.every_s = REDRAW_S if self._terminal else PRINT_S

    def line(self, text: str) -> None:
        self._erase()
        print(f"topics: {text}", file=self._out, flush=True)

    def show(self, statuses: list[JobStatus]) -> None:
        if self._terminal:
            self._erase()
            lines = fitted([shown(status) for status in statuses], self._size())
            self._out.write("".join([f"{line}\n" for line in lines]))
            self._drawn = len(lines)
            self._out.flush()
            return
        for status in statuses:
            now = (status.state, status.error, status.last_batch, status.lag)
            if self._last.get(status.name) != now:
                self._last[status.name] = now
                self.line(shown(status))

    def keep(self) -> None:
        """Do not erase what is shown now."""
        self._drawn = 0

    def _size(self) -> tuple[int, int]:
        """Columns and lines of the terminal, which can change at any time."""
        try:
            columns, lines = os.get_terminal_size(self._out.fileno())
        except OSError:
            columns = lines = 0
        # 0 when the terminal does not know its size.
        return columns or 80, lines or 24

    def _erase(self) -> None:
        if self._drawn:
            # From the first column: the terminal may have shown a ^C at the beginning of the line.
            self._out.write(f"\r\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


def fitted(lines: list[str], size: tuple[int, int]) -> list[str]:
    """As much of them as the terminal can show without scrolling or wrapping: otherwise they could not be erased again."""
    columns, rows = size
    max_lines = max(1, rows - 1)
    if len(lines) > max_lines:
        lines = [
            *lines[: max_lines - 1],
            f"... and {len(lines) - max_lines + 1} more: topics pipeline status shows all",
        ]
    return [_cut(line, columns - 1) for line in lines]


def _cut(text: str, columns: int) -> str:
    """The beginning of the text, at most `columns` wide, without characters that move the cursor."""
    cut, wide = "", 0
    for sign in text:
        if not sign.isprintable():
            sign = "?"
        wide += 0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        if wide > columns:
            break
        cut += sign
    return cut


def shown(status: JobStatus) -> str:
    lag = "?" if status.lag is None else f"{status.lag:,}"
    batch = "-" if status.last_batch is None else f"{status.last_batch} in {status.batch_ms or 0:.0f} ms"
    text = f"{status.name}: {status.state}, {status.rows:,} rows, {status.rows_per_s:,.0f}/s, lag {lag}, batch {batch}"
    if status.restarts:
        text += f", {status.restarts} restarts"
    troubles = status.notes.get("troubles")
    if troubles:
        text += f", {troubles} {'route' if troubles == 1 else 'routes'} in trouble"
    return f"{text}: {status.error}" if status.error else text
