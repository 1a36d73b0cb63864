"""`python -m bench [name ...]`: run the benchmarks and print their tables; `--quick` leaves out the long ones."""

import importlib
import platform
import sys

from bench.tools import HEADER

SUITES = ("core", "queues", "routers", "pressure", "live")


def run(arguments: list[str]) -> int:
    quick = "--quick" in arguments
    names = [name for name in arguments if not name.startswith("-")] or list(SUITES)
    missed = 0
    for name in names:
        suite = importlib.import_module(f"bench.{name}")
        print(f"\n## {name}\n\n{platform.python_implementation()} {platform.python_version()}\n\n{HEADER}", flush=True)
        for row in suite.main(quick):
            print(row.line(), flush=True)
            missed += not row.met
    print(f"\n{missed} targets missed" if missed else "\nall targets met")
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
