"""Every command in a real terminal and in a pipe: it succeeds, and its output is for people or for programs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cases import (
    CAPTURE_CASES,
    CASES,
    SPARK_CASES,
    Case,
    check_pipe,
    check_terminal,
    command_names,
    command_of,
    prepare,
)
from tests.cli.terminal import Terminal, in_pipe, in_terminal
from topics.client import Client

pytestmark = pytest.mark.slow

# Commands that run until they are stopped have tests of their own, in a terminal and in a pipe: `serve` in
# test_interactive.py, `pipeline run` in tests/spark/test_commands.py.
RUN_UNTIL_STOPPED = {"serve", "pipeline run"}


@pytest.fixture
def prepared(
    environment: dict[str, str], directory: Path, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Case, str], list[str]]:
    """A function that runs what comes before a case and returns the arguments of the case."""
    for name in ("TOPICS_URL", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, environment[name])
    return lambda case, mode: prepare(case, mode, directory, shared_url)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_command_in_a_terminal_prints_for_people(
    case: Case, environment: dict[str, str], prepared: Callable[[Case, str], list[str]]
) -> None:
    code, text = in_terminal(prepared(case, "terminal"), environment, case.stdin)
    check_terminal(case, code, text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_command_in_a_pipe_prints_for_programs(
    case: Case, environment: dict[str, str], prepared: Callable[[Case, str], list[str]]
) -> None:
    check_pipe(case, in_pipe(prepared(case, "pipe"), environment, case.stdin))


@pytest.mark.parametrize("mode", ["terminal", "pipe"])
def test_watch_follows_several_topics_and_prefixes_at_once(
    mode: str, environment: dict[str, str], shared_url: str
) -> None:
    topics = [f"{mode}-{name}" for name in ("one", "two", "left.a", "left.b", "right.a")]
    with Client(shared_url) as client:
        for topic in topics:
            client.append(topic, [f"from {topic}"])
    prefixes = ["--prefix", f"{mode}-left.", "--prefix", f"{mode}-right."]
    arguments = ["watch", *topics[:2], *prefixes, "--all", "--limit", str(len(topics))]
    if mode == "pipe":
        done = in_pipe(arguments, environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted([json.loads(line)["topic"] for line in done.stdout.splitlines()]) == sorted(topics)
    else:
        with Terminal(arguments, environment) as terminal:
            assert terminal.wait() == 0
        assert all([f"from {topic}" in terminal.text for topic in topics])


def test_every_command_has_a_case_that_succeeds() -> None:
    succeeding = {command_of(case.line) for case in [*CASES, *CAPTURE_CASES, *SPARK_CASES] if case.code == 0}
    assert succeeding | RUN_UNTIL_STOPPED == set(command_names())


def test_every_case_expects_an_output() -> None:
    assert [case.line for case in [*CASES, *CAPTURE_CASES, *SPARK_CASES] if not case.terminal or not case.pipe] == []
