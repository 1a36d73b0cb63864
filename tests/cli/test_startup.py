"""How soon a command starts: it imports only what it needs, and takes little processor time."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import in_pipe
from topics.server import handlers
from topics.testing.process import ServerProcess

# Modules that take long to import, and that no simple command needs.
HEAVY = ("asyncio", "argon2", "duckdb", "prompt_toolkit", "pyarrow", "rich", "sqlglot", "topics.server", "uvloop")
# Modules that a server imports with the first request or setting that needs them. The second line is of the standard library.
NOT_FOR_SERVE = (
    *("argon2", "cryptography", "duckdb", "jwt", "numpy", "prompt_toolkit", "pyarrow", "rich", "sqlglot"),
    *("dataclasses", "gzip", "http.client", "json", "multiprocessing", "pathlib", "tempfile", "tomllib", "xml"),
    *("topics.api.documents", "topics.archive", "topics.capture", "topics.client", "topics.conformance"),
    *("topics.maintenance", "topics.server.live.websocket", "topics.spark", "topics.sql.parser", "topics.testing"),
)
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


class ServerThatDescribesItself(ServerProcess):
    """When it has served and stopped, it prints the state of the garbage collector and the names of all imported modules."""

    program = (
        "-c",
        "import gc, sys; from topics.cli.main import main; main(['serve'])\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 0); print(*[name for name, module in sys.modules.items() if module])",
    )


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    with ServerThatDescribesItself(tmp_path_factory.mktemp("served")) as server:
        server.stop()
        return server.logs.splitlines()[-2:]


def test_serve_imports_nothing_that_only_a_request_needs(description: list[str]) -> None:
    interpreter = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    imported = set(description[1].split()) - set(interpreter.stdout.split())
    assert "topics.server.application" in imported
    assert imported & {*NOT_FOR_SERVE, *[f"topics.server.{module}" for module in handlers.MODULES]} == set()


def test_the_garbage_collector_is_on_again_when_a_server_serves(description: list[str]) -> None:
    assert description[0] == "True True"


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
