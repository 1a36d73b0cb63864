"""What the `topics` command does before any command of its own runs."""

import subprocess
import sys
from importlib import import_module

import pytest

import topics
from topics.cli.main import COMMANDS, main

HEAVY = {"argparse", "asyncio", "httptools", "msgspec", "pyarrow", "uvloop", "xxhash"}


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    out, err = capsys.readouterr()
    assert all(f"  {name}" in out and summary in out for name, (_, summary) in COMMANDS.items())
    assert err == ""


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version_is_the_package_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"topics {topics.__version__}\n"


@pytest.mark.parametrize("argv", [[], ["frobnicate"], ["--frobnicate"], [""]])
def test_no_command_or_an_unknown_one_exits_2_with_usage_on_stderr(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: topics" in err
    assert all(repr(word) in err for word in argv)


def test_a_command_gets_its_arguments_and_gives_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Command:
        @staticmethod
        def run(argv: list[str]) -> int:
            seen.append(argv)
            return 7

    monkeypatch.setitem(sys.modules, "topics.cli.probe", Command)
    monkeypatch.setitem(COMMANDS, "probe", ("topics.cli.probe", "for this test"))
    assert main(["probe", "--help", "dir"]) == 7
    assert seen == [["--help", "dir"]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_can_be_run(name: str) -> None:
    assert callable(import_module(COMMANDS[name][0]).run)


def test_help_and_version_import_nothing_heavy() -> None:
    code = (
        "import sys; from topics.cli.main import main; main(['--help']); main(['--version']); "
        f"print('heavy:', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_the_process_exits_with_the_status_of_main() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", "frobnicate"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert "unknown command 'frobnicate'" in done.stderr
