"""`python -m bench [name ...]`: run the benchmarks and print their tables.

--quick            smaller loads and none of the long ones
--only=a,b         only these sections of a suite that has sections (spark)
--results=FILE     put the rows into the table of this file: new ones behind, known ones in their place
"""

import importlib
import platform
import sys
from pathlib import Path

from bench.tools import HEADER, Row

SUITES = ("core", "queues", "routers", "pressure", "live")


def run(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    options = dict(
        [argument[2:].split("=", 1) for argument in arguments if argument.startswith("--") and "=" in argument]
    )
    only = [name for name in options.get("only", "").split(",") if name]
    names = [name for name in arguments if not name.startswith("-")] or list(SUITES)
    missed = 0
    for name in names:
        suite = importlib.import_module(f"bench.{name}")
        print(f"\n## {name}\n\n{platform.python_implementation()} {platform.python_version()}\n\n{HEADER}", flush=True)
        for row in suite.main(quick, only) if only else suite.main(quick):
            print(row.line(), flush=True)
            missed += not row.met
            if "results" in options:
                keep(Path(options["results"]), row)
    print(f"\n{missed} targets missed" if missed else "\nall targets met")
    return 0


def keep(results: Path, row: Row) -> None:
    """Written row by row, so that a run that is cut short has not measured for nothing."""
    lines = results.read_text(encoding="utf-8").splitlines()
    known = [at for at, line in enumerate(lines) if line.startswith(f"| {row.what} |")]
    if known:
        lines[known[0]] = row.line()
    else:
        # Behind the last row of the first table.
        first = next(at for at, line in enumerate(lines) if line.startswith("|"))
        end = next((at for at, line in enumerate(lines) if at > first and not line.startswith("|")), len(lines))
        lines.insert(end, row.line())
    results.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
