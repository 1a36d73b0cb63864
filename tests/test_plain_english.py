"""Words that the project does not use, because a plainer one exists: in names, comments, messages and documents.

An underscore ends a word, so that `test_x_is_told_y` is found too.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "docs", "tests", "bench", "tools", "examples", "deploy")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "mkdocs.yml", "Dockerfile")
SUFFIXES = {".py", ".md", ".js", ".ipynb", ".html", ".css", ".toml", ".yml", ".yaml", ".sql", ".service", ".conf"}
# With what to write instead.
WORDS = {
    "whoever": "the reader, a client, each caller",
    "nobody": "no client, no reader",
    "somebody": "a client, another caller",
    "anybody": "any client",
    "told": "reported, sent, given",
    "telling": "reporting, notifying",
    "owed": "pending, unwritten",
    "so many": "the number",
    "stands": "is",
    "anew": "again",
}
PATTERN = re.compile(rf"(?<![a-z])({'|'.join(WORDS).replace(' ', '[ _]')})(?![a-z])", re.IGNORECASE)


def texts() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    found = [path for path in found if "__pycache__" not in path.parts and "build" not in path.parts]
    return [*found, *[ROOT / name for name in FILES]]


def test_no_text_has_a_word_with_a_plainer_one() -> None:
    problems = []
    for path in texts():
        name = str(path.relative_to(ROOT))
        if name == "tests/test_plain_english.py":
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [(number, each[0]) for number, line in enumerate(lines, 1) for each in PATTERN.finditer(line)]
        problems += [
            f"{name}:{number}: {word}: write {WORDS[word.lower().replace('_', ' ')]}" for number, word in found
        ]
    assert problems == []


@pytest.mark.parametrize("text", ["test_it_is_told_once", "Nobody", "so_many", "what stands there"])
def test_words_are_found_in_names_and_sentences(text: str) -> None:
    assert PATTERN.search(text)


@pytest.mark.parametrize("text", ["understands", "renewed", "stand-alone", "followed", "some many"])
def test_parts_of_other_words_are_not_found(text: str) -> None:
    assert not PATTERN.search(text)
