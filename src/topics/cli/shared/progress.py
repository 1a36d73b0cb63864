"""Progress bars for work that takes longer than a second; nothing without a terminal."""

import sys
import threading
from types import TracebackType
from typing import Any

DELAY_S = 1.0


class Progress:
    """A bar on standard error, shown by a timer: one slow step is enough. Several threads may advance it.

    total: Number of units when the work is done; None when it is not known.
    unit: What is counted; empty when nothing is, and the bar shows only the elapsed time.
    """

    def __init__(self, label: str, total: int | None = None, unit: str = "records") -> None:
        self._label = label
        self._total = total
        self._unit = unit
        self._done = 0
        self._lock = threading.Lock()
        self._timer = threading.Timer(DELAY_S, self._start) if sys.stderr.isatty() else None
        self._ended = False
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def advance(self, count: int = 1) -> None:
        with self._lock:
            self._done += count
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        counts = [MofNCompleteColumn(), TextColumn(self._unit)] if self._unit else []
        remaining = [] if self._total is None else [TimeRemainingColumn()]
        with self._lock:
            if self._ended:
                return
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                *counts,
                TimeElapsedColumn(),
                *remaining,
                console=Console(file=sys.stderr),
                transient=True,
                # Lines are printed above the bar. Output to a file or a pipe must still go there.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._task = self._bar.add_task(self._label, total=self._total, completed=self._done)
            self._bar.start()
