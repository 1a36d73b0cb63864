"""What the `topics` command does before a command runs."""

import subprocess
import sys
from importlib import import_module

import pytest

import topics
from topics.cli.main import COMMANDS, GROUPS, main
from topics.cli.shared.arguments import subparsers

HEAVY = {"argparse", "asyncio", "httptools", "msgspec", "pyarrow", "uvloop", "xxhash"}


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_below_its_group(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    out, err = capsys.readouterr()
    assert list(GROUPS) == ["data", "queues", "groups", "pipeline", "server"]
    for group, commands in GROUPS.items():
        section = out.partition(f"\n{group}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(commands)
        assert all([summary in section for _, summary in commands.values()])
    assert err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_has_an_example_that_begins_with_the_command(name: str) -> None:
    parser = import_module(COMMANDS[name][0]).build_parser()
    parsers = {f"topics {name}": parser, **{f"topics {name} {sub}": each for sub, each in subparsers(parser).items()}}
    for command, each in parsers.items():
        epilog = each.epilog or ""
        assert epilog.startswith("example"), command
        assert command in epilog or name == "completion", command
        assert each.description, command


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version_is_the_package_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    assert capsys.readouterr().out == f"topics {topics.__version__}\n"


@pytest.mark.parametrize("argv", [["frobnicate"], ["--frobnicate"], [""]])
def test_unknown_command_exits_1_and_is_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert repr(argv[0]) in err
    assert "topics --help" in err


def test_an_argument_that_is_not_utf_8_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "orders", "\udcff"]) == 1
    assert capsys.readouterr().err == "topics: the argument '\\udcff' is not UTF-8\n"


def test_no_command_exits_1_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert "usage: topics" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["tial"], "Did you mean tail"),
        (["queue", "stat"], "Did you mean stats?"),
        (["ls", "--ouput", "json"], "Did you mean --output?"),
        (["ls", "-o", "jason"], "Did you mean json"),
    ],
)
def test_misspelled_words_get_a_suggestion(argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(argv)
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert (status, hint in capsys.readouterr().err) == (1, True)


def test_a_command_gets_its_arguments_and_gives_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Command:
        @staticmethod
        def run(argv: list[str]) -> int:
            seen.append(argv)
            return 7

    monkeypatch.setitem(sys.modules, "topics.cli.probe", Command)
    monkeypatch.setitem(COMMANDS, "probe", ("topics.cli.probe", "a probe"))
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
    assert done.returncode == 1
    assert "there is no command 'frobnicate'" in done.stderr
