"""Every command with `-o` in every format: programs can parse it, and it holds no control characters in a pipe."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.cases import CASES, Case, command_names, command_of, has_output_option, prepare
from topics.cli.main import main
from topics.cli.shared.arguments import FORMATS

pytestmark = pytest.mark.slow

WITH_FORMATS = [case for case in CASES if case.code == 0 and has_output_option(case)]
# They print scripts, a secret, a sentence for each step, the output of other programs, or the log of a server.
WITHOUT_FORMATS = {
    "capture postgres",
    "completion bash",
    "completion fish",
    "completion words",
    "completion zsh",
    "demo",
    "pipeline replay",
    "pipeline run",
    "serve",
    "table materialize",
    "user add",
    "work",
}


def check_format(text: str, output: str) -> None:
    assert "\x1b" not in text
    assert text.strip()
    if output == "json":
        json.loads(text)
    elif output == "jsonl":
        assert [json.loads(line) for line in text.splitlines()]
    elif output == "csv":
        header, *rows = list(csv.reader(io.StringIO(text)))
        assert rows
        assert {len(row) for row in rows} == {len(header)}


@pytest.mark.parametrize("case", WITH_FORMATS, ids=lambda case: case.line)
def test_output_can_be_parsed_in_every_format(
    case: Case,
    environment: dict[str, str],
    directory: Path,
    shared_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("TOPICS_URL", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, environment[name])
    for output in FORMATS:
        arguments = prepare(case, output, directory, shared_url)
        capsys.readouterr()
        assert main([*arguments, "-o", output]) == 0
        check_format(capsys.readouterr().out, output)


def test_every_command_has_formats_unless_its_output_is_no_data() -> None:
    assert {command_of(case.line) for case in WITH_FORMATS} == set(command_names()) - WITHOUT_FORMATS
