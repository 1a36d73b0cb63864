"""The README's quickstart is true: every command is run against a fresh server and gives the answer printed there."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics.server.settings import load_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "$TOPICS"
# What differs from run to run; everything else must be as printed.
CHANGING = {"performance", "$ts", "last_write_ts", "last_read_ts"}


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of the console blocks, each with the output printed below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, output = re.fullmatch(r"(.*?)(?:\n(\{\".*)?)?", step.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
            yield command, output or ""


def curl(api: Api, command: str) -> Answer:
    """What this curl command would get."""
    words = iter(shlex.split(command)[1:])
    method, path, body, headers = "GET", "", None, {}
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(":")
            headers[name] = value.strip()
        elif word == "-d":
            body = next(words).encode()
        else:
            assert word.startswith(VARIABLE), command
            path = word.removeprefix(VARIABLE)
    return api.send(method, path, body, headers)


def settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "..." if key in CHANGING else settled(each) for key, each in value.items()}
    return [settled(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url, Api(url) as api:
        yield api


def test_the_quickstart_gives_the_answers_that_are_printed(api: Api) -> None:
    commands = [(command, output) for command, output in steps((ROOT / "README.md").read_text()) if "curl" in command]
    assert len(commands) >= 10
    for command, output in commands:
        answer = curl(api, command)
        assert settled(answer.json) == settled(json.loads(output)), command
