"""Progress bars for work that takes longer than a second; nothing without a terminal."""

import sys
import time
from types import TracebackType
from typing import Any

DELAY_S = 1.0


class Progress:
    """A bar on standard error, shown from the second second on. `total` may be None when it is not known."""

    def __init__(self, label: str, total: int | None = None, unit: str = "records") -> None:
        self._label = label
        self._total = total
        self._unit = unit
        self._done = 0
        self._starts_at = time.monotonic() + DELAY_S
        self._enabled = sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        self._done += count
        if not self._enabled:
            return
        if self._bar is None:
            if time.monotonic() < self._starts_at:
                return
            self._start()
        self._bar.update(self._task, completed=self._done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(self._unit),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task(self._label, total=self._total)
        self._bar.start()
