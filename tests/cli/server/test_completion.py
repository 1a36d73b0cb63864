"""Completion: the words that can follow, and the scripts in the shells that are installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from topics.cli.server.completion import complete


@pytest.fixture(autouse=True)
def address(shared_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOPICS_URL", shared_url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["ta"], ["table", "tail"]),
        (["queue", ""], ["ack", "claim", "nack", "peek", "stats"]),
        (["queue", "claim", "--l"], ["--lease"]),
        (["tail", "sam"], ["sample"]),
        (["tail", "-n", "5", "sam"], ["sample"]),
        (["queue", "stats", "wo"], ["work"]),
        (["ls", "-o", "js"], ["json", "jsonl"]),
        (["create", "x", "--durability", "f"], ["fsync"]),
        (["frobnicate", ""], []),
        ([], None),
    ],
)
def test_words_that_can_follow(typed: list[str], words: list[str] | None) -> None:
    found = complete(typed)
    assert found == words if words is not None else "serve" in found


def test_a_server_that_does_not_answer_completes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_URL", "http://127.0.0.1:9")
    assert complete(["tail", "s"]) == []


@pytest.mark.parametrize(
    ("shell", "check"),
    [
        ("bash", 'COMP_WORDS=(topics queue st); COMP_CWORD=2; _topics_words; echo "${COMPREPLY[@]}"'),
        ("zsh", "compadd() { echo ${(P)2}; }; words=(topics queue st); CURRENT=3; _topics_words"),
        ("fish", "complete -C 'topics queue st'"),
    ],
)
def test_script_completes_in_its_shell(shell: str, check: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "topics"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m topics.cli.main "$@"\n')
    program.chmod(0o755)
    prefix = {
        "bash": "source <(topics completion bash)",
        "zsh": "compdef() { :; }; source <(topics completion zsh)",
        "fish": "topics completion fish | source",
    }
    path = "set -x PATH %s $PATH" if shell == "fish" else "PATH=%s:$PATH"
    done = subprocess.run(
        [shell, "-c", f"{path % tmp_path}; {prefix[shell]}; {check}"], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("stats", "")
