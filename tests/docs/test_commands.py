"""Commands and options of `topics` that a document shows exist."""

import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_project import ROOT, project_files
from tools.reference_pages import SPARK_COMMANDS
from topics.cli.main import COMMANDS
from topics.cli.shared.arguments import actions, subparsers

# The pages that are made from the parsers are left out.
DOCUMENTS = sorted([path for path in project_files() if path.suffix == ".md" and path.parent.name != "reference"])
INLINE = re.compile(r"`topics ([a-z][^`\n]*)`")
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
# A line of a block, perhaps behind a prompt or the path of an environment.
LINE = re.compile(r"^ *(?:\$ )?(?:\S*/bin/)?topics ([a-z].*)$", re.MULTILINE)


@cache
def options_of(module: str, command: str | None) -> frozenset[str]:
    parser = import_module(module).build_parser()
    below = subparsers(parser)
    parsers = [parser, below[command]] if command in below else [parser, *below.values()]
    return frozenset([option for each in parsers for action in actions(each) for option in action.option_strings])


def problems(line: str) -> list[str]:
    """What is wrong with a command line, after `topics`."""
    words = re.split(r" (?:#|&+|\||>|<|--) ", f"{line} ")[0]
    try:
        arguments = shlex.split(words, comments=True)
    except ValueError:
        arguments = words.split()
    name, *rest = arguments
    if name not in COMMANDS:
        return [f"topics {name}"]
    below = rest[0] if rest else None
    module = SPARK_COMMANDS.get(f"topics {name} {below}") or COMMANDS[name][0]
    named = [each.partition("=")[0] for each in rest if re.match(r"--?[a-z]", each)]
    return [f"topics {name} {each}" for each in named if each not in options_of(module, below)]


def shown(text: str) -> list[str]:
    text = text.replace("\\\n", " ")
    return [*INLINE.findall(text), *[line for block in BLOCK.findall(text) for line in LINE.findall(block)]]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_that_a_document_shows_exist(page: Path) -> None:
    assert [each for line in shown(page.read_text(encoding="utf-8")) for each in problems(line)] == []


def test_the_documents_show_most_commands() -> None:
    names = {line.split()[0] for page in DOCUMENTS for line in shown(page.read_text(encoding="utf-8"))}
    assert len(names & set(COMMANDS)) > len(COMMANDS) * 0.8


@pytest.mark.parametrize(
    "line", ["apend orders", "read orders --form -1h", "queue stats --nothing", "pipeline run --chekpoint x"]
)
def test_a_wrong_command_is_found(line: str) -> None:
    assert problems(line)
