"""The Python blocks of the guides run, one after another, against a fresh server."""

import re
from pathlib import Path

import pytest

from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
# Guides whose blocks need Spark or a lake are run by tests/spark.
RUN = ["job-queue.md", "consumer-groups.md", "delete-user-data.md"]


@pytest.mark.parametrize("page", RUN)
def test_blocks_of_a_guide_run(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (GUIDES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url:
        names: dict[str, object] = {}
        for number, block in enumerate(blocks, start=1):
            code = block.replace("http://127.0.0.1:4000", url)
            exec(compile(code, f"{page}, block {number}", "exec"), names)
        names["client"].close()  # type: ignore[attr-defined]
