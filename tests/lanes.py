"""`make test`: run the tests as two processes of pytest at the same time (docs/decisions/0028-test-lanes.md).

    rest    all tests except tests/spark    one process that uses a core all the time
    spark   tests/spark                     JVMs and workers that mostly wait for each other

    python -m tests.lanes [options of pytest, for both]

The Spark process has a lower priority, so that tests which measure times run as if they ran alone. The output of the rest is shown
as it is written; that of Spark is kept in a file and shown after it. The last line has the counts of both together, in the
words of pytest. The exit status is 0 if both processes exit with 0. A process that ends without a count of its tests, because
it was killed for example, is an error.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

LANES = {"rest": ["tests", "--ignore=tests/spark"], "spark": ["tests/spark"]}
# What pytest exits with when an expression on the command line leaves a lane without tests.
NOTHING_TO_DO = 5
LOOK_S = 0.1
PATIENCE_S = 30
WORDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "error")


def run(lanes: dict[str, list[str]], options: Sequence[str]) -> int:
    """Run them all to their end and answer the exit status. The first is the one that is shown at once."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="topics-lanes-") as directory, ended_with_us() as processes:
        outputs = {name: Path(directory) / f"{name}.out" for name in list(lanes)[1:]}
        for name, arguments in lanes.items():
            tally = Path(directory) / f"{name}.json"
            command = [sys.executable, "-m", "pytest", *arguments, "-p", "tests.lanes", f"--tally={tally}", *options]
            if name in outputs:
                with outputs[name].open("wb") as output:
                    processes.append(
                        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=step_back)
                    )
            else:
                processes.append(subprocess.Popen(command))
        for name, process in zip(lanes, processes, strict=True):
            if name in outputs:
                print(f"\n{f' {name} ':=^100}", flush=True)
                # Opened again: a position that is shared with the writer would move what it writes.
                with outputs[name].open("rb") as output:
                    follow(output, process)
            process.wait()
        statuses = [process.wait() for process in processes]
        counts = [tally_of(Path(directory) / f"{name}.json") for name in lanes]
    total: Counter[str] = Counter()
    for name, status, count in zip(lanes, statuses, counts, strict=True):
        if count is None:
            print(f"lane {name} ended with status {status} and without a summary", flush=True)
            count = {"error": 1}
        total.update(count)
    # On a line of its own, whatever a library has said without ending it.
    print(f"\n{summary(total, time.monotonic() - began)}", flush=True)
    if None in counts or all([status == NOTHING_TO_DO for status in statuses]):
        return 1
    return max([0 if status == NOTHING_TO_DO else abs(status) for status in statuses])


def step_back() -> None:
    os.nice(10)


def follow(output: BinaryIO, process: "subprocess.Popen[bytes]") -> None:
    """Show what is there and what comes, until the process has ended."""
    while True:
        # Asked before the last look, not after it: what was written in between would be lost.
        over = process.poll() is not None
        for part in iter(lambda: output.read(1 << 16), b""):
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        if over:
            return
        time.sleep(LOOK_S)


@contextmanager
def ended_with_us() -> "Iterator[list[subprocess.Popen[bytes]]]":
    """End all lanes when this process ends: each gets time to clean up."""
    processes: list[subprocess.Popen[bytes]] = []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        yield processes
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in processes:
            if process.poll() is None:
                # As Ctrl-C does it: fixtures are torn down.
                process.send_signal(signal.SIGINT)
        for process in processes:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def summary(total: Counter[str], seconds: float) -> str:
    """The line that pytest would have ended with."""
    parts = []
    for word in WORDS:
        count = total[word]
        if count:
            singular = word.removesuffix("s") if word in ("warnings", "error") else word
            plural = "errors" if word == "error" else word
            parts.append(f"{count} {singular if count == 1 else plural}")
    minutes, rest = divmod(int(seconds), 60)
    text = f"{', '.join(parts) or 'no tests ran'} in {seconds:.2f}s ({minutes // 60}:{minutes % 60:02}:{rest:02})"
    return f"{f' {text} ':=^100}"


def tally_of(path: Path) -> dict[str, int] | None:
    try:
        found: dict[str, int] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found


# Within a lane, where this file is a plugin of pytest


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--tally", metavar="FILE", help="write to the file how many tests passed, failed and so on")


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    if config.option.tally:
        counts = {word: len(terminalreporter.stats.get(word, [])) for word in WORDS}
        Path(config.option.tally).write_text(json.dumps(counts))


if __name__ == "__main__":
    sys.exit(run(LANES, sys.argv[1:]))
