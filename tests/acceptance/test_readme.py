"""Commands and code of the README and the first page are run against a fresh server and give what is printed."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics.server.ops.settings import load_settings
from topics.testing.chromium import Chromium
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "$TOPICS_URL"


def steps(text: str) -> Iterator[tuple[str, str]]:
    """The commands of the console blocks, each with the output printed below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, output = re.fullmatch(r"(.*?)(?:\n(\{\".*)?)?", step.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
            yield command, output or ""


def curl(api: Api, command: str) -> Answer:
    """What this curl command would get."""
    words = iter(shlex.split(command.replace("\\\n", " "))[1:])
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


def shown(value: Any, printed: Any) -> bool:
    """Whether the answer has everything that is printed. Fields may be left out where `...` is printed."""
    if isinstance(printed, dict):
        return isinstance(value, dict) and all(
            [key in value and shown(value[key], each) for key, each in printed.items()]
        )
    if isinstance(printed, list):
        return len(value) == len(printed) and all([shown(*pair) for pair in zip(value, printed, strict=True)])
    if isinstance(printed, str) and printed.endswith("..."):
        return isinstance(value, str) and value.startswith(printed.removesuffix("..."))
    return bool(value == printed)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url, Api(url) as api:
        yield api


@pytest.mark.parametrize("page", ["README.md", "docs/start/five-minutes.md"])
def test_curl_commands_give_the_answers_that_are_printed(api: Api, page: str) -> None:
    commands = [each for each in steps((ROOT / page).read_text()) if each[0].startswith(("curl", "topics append"))]
    assert commands
    for command, output in commands:
        if command.startswith("topics append"):
            topic, data = shlex.split(command)[2:]
            answer = api.post(f"/v0/topics/{topic}", {"records": [{"data": json.loads(data)}]})
        else:
            answer = curl(api, command)
        assert answer.status < 300, (command, answer.body)
        if output:
            printed = json.loads(output.replace(", ...}", "}"))
            assert shown(answer.json, printed), (command, answer.body)


def test_worker_of_the_readme_handles_its_job(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    code = code.replace("http://127.0.0.1:4000", api.url)
    # The worker of the page runs until Ctrl-C; here its handler ends it.
    code = code.replace('print("resize", job.data["file"])', 'print("resize", job.data["file"])\n    worker.stop()')
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    names["client"].close()
    assert capsys.readouterr().out == "resize cat.png\n"
    assert api.get("/v0/topics/thumbnails").json["count"] == 0


@pytest.mark.slow
def test_live_feed_of_the_readme_shows_records_in_a_browser(api: Api, tmp_path: Path) -> None:
    (page,) = re.findall(r"^```html\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    api.post("/v0/topics/orders", {"records": [{"data": {"sku": "AEROPRESS"}}]})
    with Chromium(tmp_path / "profile") as browser:
        browser.go_to(f"{api.url}/v0/health")
        browser.run("document.body.textContent = ''")
        script = page.replace('<script type="module">', "").replace("</script>", "")
        browser.run(f"(async () => {{ {script} }})()")
        browser.wait_for("document.body.textContent.includes('AEROPRESS')")
        api.post("/v0/topics/orders", {"records": [{"data": {"sku": "FILTERS"}}]})
        browser.wait_for("document.body.textContent.includes('AEROPRESS FILTERS')")
