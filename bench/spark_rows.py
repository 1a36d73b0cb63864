"""Run the Spark benchmarks: `python -m bench spark`.

--quick            smaller loads
--only=A,B         only these sections
--results=FILE     put the rows into the table of this file; a known row is replaced
"""

import platform
from pathlib import Path

from bench import spark
from bench.tools import HEADER, Row


def run_rows(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    options = dict(
        [argument[2:].split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument]
    )
    only = [name for name in options.get("only", "").split(",") if name]
    missed = 0
    print(f"{platform.python_implementation()} {platform.python_version()}\n\n{HEADER}", flush=True)
    for row in spark.main(quick, only) if only else spark.main(quick):
        print(row.line(), flush=True)
        missed += not row.met
        if "results" in options:
            _store(Path(options["results"]), row)
    print(f"\n{missed} targets missed" if missed else "\nall targets met")
    return 0


def _store(results: Path, row: Row) -> None:
    """Write each row at once, so that an interrupted run keeps what it has measured."""
    lines = results.read_text(encoding="utf-8").splitlines()
    known = [at for at, line in enumerate(lines) if line.startswith(f"| {row.what} |")]
    if known:
        lines[known[0]] = row.line()
    else:
        first = next(at for at, line in enumerate(lines) if line.startswith("|"))
        end = next((at for at, line in enumerate(lines) if at > first and not line.startswith("|")), len(lines))
        lines.insert(end, row.line())
    results.write_text("\n".join(lines) + "\n", encoding="utf-8")
