"""Commands in pipes, as a shell runs them: a reader that has gone, and standard streams that are closed."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.client import Client
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("streams"))}
    with running_server(load_settings(environment)) as found:
        with Client(found) as client:
            for _ in range(20):
                client.append("many", ["x" * 100] * 1000)
        yield found


def shell(command: str, url: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which `topics` is this version; its status is that of the last command that failed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    topics = f"{shlex.quote(sys.executable)} -m topics.cli.main"
    line = f'set -o pipefail; topics() {{ {topics} "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", line],
        env=environment | {"TOPICS_URL": url},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        "topics read many | head -n 1",
        "topics read many -f | head -n 1",
        "topics tail many -n 100 | head -n 1",
        "topics watch many --all | head -n 1",
        "topics consume many --group g -f | head -n 1",
        "topics export many - | head -n 1",
        "topics config | true",
        "topics --help | true",
        "topics read --help | true",
        "topics ls | true",
        "topics sql 'SELECT name FROM system.topics' | true",
    ],
)
def test_a_command_whose_reader_has_gone_ends_quietly(command: str, url: str, tmp_path: Path) -> None:
    done = shell(command, url, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_input_is_an_empty_one(url: str, tmp_path: Path) -> None:
    done = shell("topics append nothing <&-", url, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("topics: nothing to append")
    done = shell("topics sql - <&-", url, tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Traceback" not in done.stderr


def test_a_password_is_not_asked_for_without_a_terminal(url: str, tmp_path: Path) -> None:
    done = shell("topics user add ada <&-", url, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "topics user: no terminal to ask on; give the password on standard input, with --password-stdin\n"
    )


def test_closed_outputs_do_not_fail_a_command(url: str, tmp_path: Path) -> None:
    done = shell("topics append closed '1' >&- 2>&- <&-; topics info closed", url, tmp_path)
    assert done.returncode == 0
    assert '"head_seq":1' in done.stdout
