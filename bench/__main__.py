"""`python -m bench`: measure, and write bench/results.json, bench/RESULTS.md and the charts of the documents.

Results are kept by workload: a run of some workloads (`--only`) replaces only their rows. An interrupted run keeps what
it has measured.
"""

import argparse
import signal
import subprocess
import sys
from pathlib import Path

from bench.measure import Options, run
from bench.report import Results, line
from bench.servers import need
from bench.workloads import ALL

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results.json"


def main(argv: list[str]) -> int:
    if argv[:1] == ["spark"]:
        from bench.spark_rows import run_rows

        return run_rows(argv[1:])
    arguments = _parser().parse_args(argv)
    patterns = [text.lower() for text in arguments.only]
    chosen = [each for each in ALL if not patterns or any([text in each.title.lower() for text in patterns])]
    if arguments.skip_matrix and not patterns:
        chosen = [each for each in chosen if each.group != "append matrix"]
    if arguments.list:
        print("\n".join([each.title for each in chosen]))
        return 0
    results = Results.load(arguments.results)
    failed = 0
    if not arguments.report:
        need("wrk", "redis-server", "redis-benchmark", "nats-server")
        options = Options(
            quick=arguments.quick,
            rounds=1 if arguments.quick else arguments.rounds,
            seconds=arguments.seconds,
            peers=tuple(arguments.peer),
        )
        for workload in chosen:
            try:
                result = run(workload, options)
            except (OSError, AssertionError, subprocess.SubprocessError) as error:
                print(f"FAILED {workload.title}: {error}", file=sys.stderr, flush=True)
                failed += 1
                continue
            print(line(result), flush=True)
            if not arguments.quick:
                results.put(result)
    if not arguments.quick and arguments.results == RESULTS:
        docs = ROOT / "docs"
        results.write_documents(RESULTS.with_name("RESULTS.md"), docs / "images", docs / "operate" / "sizing.md")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", metavar="TEXT", action="append", default=[], help="only workloads whose title has this text"
    )
    parser.add_argument("--quick", action="store_true", help="one round and a tenth of the data; writes no results")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of each workload (default 3)")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of one measurement (default 1)")
    parser.add_argument(
        "--peer", metavar="NAME=COMMAND", action="append", type=_peer, default=[],
        help="another server of the /v0 API, measured in the same rounds; it must take TOPICS_PORT and TOPICS_DATA_DIR, "
        "for example --peer before='env PYTHONPATH=../before/src python -m topics.cli.main serve'",
    )  # fmt: skip
    parser.add_argument("--skip-matrix", action="store_true", help="leave out the append matrix (about 4 minutes)")
    parser.add_argument("--list", action="store_true", help="print the workloads and measure nothing")
    parser.add_argument("--report", action="store_true", help="write the documents from the stored results")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        help="where the figures are kept, as JSON; the documents are written only for the default file",
    )
    return parser


def _peer(text: str) -> tuple[str, str]:
    name, _, command = text.partition("=")
    if not name or not command:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, command


if __name__ == "__main__":
    # A terminated run ends the servers and mounts that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
