"""How soon a command starts: it imports only what it needs, and takes little processor time."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from tests.cli.terminal import in_pipe

# Modules that take long to import, and that no simple command needs.
HEAVY = ("asyncio", "argon2", "duckdb", "prompt_toolkit", "pyarrow", "rich", "sqlglot", "topics.server", "uvloop")
MAX_START_S = 0.15
# Processes that share a core slow each other down by less than this, also in processor time.
MAX_LOAD_FACTOR = 3.0


def test_simple_commands_import_nothing_heavy(environment: dict[str, str]) -> None:
    code = (
        "import sys, json; from topics.cli.main import main\n"
        "for line in ('tail sample', 'append started 1', 'ls', 'queue peek work'): main(line.split())\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_serve_does_not_import_the_client(environment: dict[str, str]) -> None:
    code = (
        "import sys; from topics.cli.server.serve import build_parser; import topics.server.ops.process\n"
        "build_parser().parse_args([]); print([name for name in sys.modules if name.startswith('topics.client')])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tail_starts_within_150_ms_of_processor_time_on_a_machine_that_does_nothing_else(
    environment: dict[str, str], tmp_path: Path
) -> None:
    # With compiled modules, as an installed package has them.
    environment = {**environment, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert in_pipe(["tail", "sample"], environment).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert min([once() for _ in range(5)]) <= MAX_START_S * min(MAX_LOAD_FACTOR, max(1.0, load))
