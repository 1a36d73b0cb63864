"""docs/sql.md tells what really happens: its statements are run in order, and their answers are compared.

Blocks: `sql` is run and must succeed, `sql error` must be refused, `json` behind one of them is its answer, and
`json append TOPIC` is the body of a write.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What differs from run to run.
TIME = 1_000_000_000_000


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")}
    with running_server(load_settings(environment)) as url, Api(url) as api:
        yield api


def test_every_statement_of_the_page_answers_what_the_page_says(api: Api) -> None:
    said = 0
    answer: dict[str, Any] = {}
    for language, rest, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "sql":
            answered = api.post("/api/sql", {"sql": text.strip()})
            assert (answered.status == 400) == (rest.strip() == "error"), (text, answered)
            answer = answered.json
        elif language == "json" and rest.startswith(" append "):
            assert api.post(f"/v0/topics/{rest.split()[1]}", text.encode()).status in (200, 201)
        elif language == "json":
            said += 1
            assert masked(json.loads(text)) == masked(shown(answer)), text
    assert said > 15


def shown(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "performance"}


def masked(value: Any) -> Any:
    """The answer without times, ids and lags in seconds."""
    if isinstance(value, dict):
        return {name: masked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [masked(each) for each in value]
    if (isinstance(value, int) and value > TIME) or isinstance(value, float):
        return "*"
    return "*" if isinstance(value, str) and re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", value) else value
