"""The Python blocks of the guides run, one after another, against a fresh server."""

import json
import re
from pathlib import Path

import pytest

from topics.client import Client
from topics.server.ops.settings import Settings, load_settings
from topics.testing.chromium import Chromium
from topics.testing.server import running_server

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
# Guides with Python blocks. The others: the chat below, the archive in tests/archive, the tables in tests/spark.
RUN = ["job-queue.md", "consumer-groups.md", "delete-user-data.md", "mirror.md"]


@pytest.mark.parametrize("page", RUN)
def test_blocks_of_a_guide_run(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (GUIDES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    with running_server(settings(tmp_path / "data")) as url, running_server(settings(tmp_path / "second")) as second:
        names: dict[str, object] = {}
        for number, block in enumerate(blocks, start=1):
            code = block.replace("http://127.0.0.1:4000", url).replace("http://127.0.0.1:5000", second)
            exec(compile(code, f"{page}, block {number}", "exec"), names)
        for client in [each for each in names.values() if isinstance(each, Client)]:
            client.close()


def settings(directory: Path) -> Settings:
    return load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(directory)})


@pytest.mark.slow
def test_the_chat_page_sends_and_shows_messages(tmp_path: Path) -> None:
    (page,) = re.findall(r"^```html\n(.*?)^```$", (GUIDES / "chat.md").read_text(), re.MULTILINE | re.DOTALL)
    markup, script = re.fullmatch(r"(.*)<script type=\"module\">(.*)</script>\s*", page, re.DOTALL).groups()  # type: ignore[union-attr]
    with (
        running_server(settings(tmp_path / "data")) as url,
        Client(url) as client,
        Chromium(tmp_path / "profile") as browser,
    ):
        client.append("chat", [{"text": "first"}])
        browser.go_to(f"{url}/v0/health")
        browser.run(f"document.body.innerHTML = {json.dumps(markup)}")
        browser.run(f"(async () => {{ {script} }})()")
        browser.wait_for("document.querySelector('ul').textContent.includes('first')")
        browser.run("document.forms[0].text.value = 'second'; document.forms[0].requestSubmit()")
        browser.wait_for("document.querySelector('ul').textContent === 'firstsecond'")
        assert [record.data for record in client.read("chat")] == [{"text": "first"}, {"text": "second"}]
