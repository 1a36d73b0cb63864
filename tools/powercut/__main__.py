"""`make powercut`: block-level power cuts and bit rot; writes docs/data/powercut.json and docs/RELIABILITY.md."""

import argparse
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tools.powercut.bit_rot import run_bit_rot
from tools.powercut.block_device import missing_requirement
from tools.powercut.cuts import run_cuts
from tools.reliability import write_page

ROOT = Path(__file__).resolve().parent.parent.parent
SUMMARY = ROOT / "docs" / "data" / "powercut.json"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=200, help="number of power cuts; each is checked for every class")
    parser.add_argument("--rot", type=int, default=40, help="number of damages to each kind of file")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="repeats the choices of a run")
    parser.add_argument("--summary", type=Path, default=SUMMARY, help="where the result is written, as JSON")
    parser.add_argument("--no-documents", action="store_true", help="print the result and write nothing")
    arguments = parser.parse_args(argv)
    missing = missing_requirement()
    if missing is not None:
        print(f"powercut: block-level cuts need {missing}; `make crash` cuts a simulated disk instead", file=sys.stderr)
        return 2

    def progress(text: str) -> None:
        print(text, flush=True)

    summary = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "power_cuts": run_cuts(arguments.cuts, arguments.seed, progress),
        "bit_rot": run_bit_rot(arguments.rot, arguments.seed, progress),
    }
    text = json.dumps(summary, indent=1) + "\n"
    if arguments.no_documents:
        print(text)
    else:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(text, encoding="utf-8")
        write_page()
    broken = len(summary["power_cuts"]["broken"]) + len(summary["bit_rot"]["broken"])
    print(f"{broken} broken promises" if broken else "every promise was kept")
    return 1 if broken else 0


if __name__ == "__main__":
    # A terminated run ends the servers and mounts that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
