"""Run the Spark benchmarks: `python -m bench spark`.

--quick            one round with smaller loads
--only=A,B         only these sections
--before=DIR       also measure the routing job of the checkout in DIR, in turns with the present one
--results=FILE     put the rows into the table of this file; a known row is replaced
"""

import platform
import statistics
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.report import code_state

HEADER = "| what | median | lowest to highest | target | met | measured |\n|---|---|---|---|---|---|"


@dataclass
class Row:
    """One figure, measured in several rounds. `target` is a lower bound, or an upper one with `at_most`."""

    what: str
    unit: str
    values: list[float] = field(repr=False)
    target: float | None = None
    at_most: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.median <= self.target if self.at_most else self.median >= self.target

    def line(self, measured: str) -> str:
        target = "" if self.target is None else f"{'≤' if self.at_most else '≥'} {_text(self.target)}"
        spread = f"{_text(min(self.values))} to {_text(max(self.values))} ({len(self.values)})"
        met = {None: "", True: "yes", False: "NO"}[self.met]
        return f"| {self.what} | {_text(self.median)} {self.unit} | {spread} | {target} | {met} | {measured} |"


def _text(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def run_rows(arguments: list[str]) -> int:
    from bench import spark

    quick = "--quick" in arguments
    options = dict(
        [argument[2:].split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument]
    )
    unknown = set(options) - {"only", "before", "results"}
    if unknown:
        sys.exit(f"unknown option --{min(unknown)}\n\n{__doc__}")
    only = [name for name in options.get("only", "").split(",") if name]
    missed = 0
    measured = f"{code_state()}, {datetime.now(UTC):%Y-%m-%d}"
    print(f"{platform.python_implementation()} {platform.python_version()}\n\n{HEADER}", flush=True)
    for row in spark.main(quick, only, options.get("before")):
        print(row.line(measured), flush=True)
        missed += row.met is False
        if "results" in options and not quick:
            store(Path(options["results"]), row, measured)
    print(f"\n{missed} targets missed" if missed else "\nall targets met")
    return 0


def store(results: Path, row: Row, measured: str) -> None:
    """Write each row at once, so that an interrupted run keeps what it has measured."""
    lines = results.read_text(encoding="utf-8").splitlines()
    known = [at for at, line in enumerate(lines) if line.startswith(f"| {row.what} |")]
    if known:
        lines[known[0]] = row.line(measured)
    else:
        first = next(at for at, line in enumerate(lines) if line.startswith("|"))
        end = next((at for at, line in enumerate(lines) if at > first and not line.startswith("|")), len(lines))
        lines.insert(end, row.line(measured))
    results.write_text("\n".join(lines) + "\n", encoding="utf-8")
