"""docs/bulk.md is run as it is written."""

import re
from pathlib import Path
from typing import Any

from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "bulk.md"


def test_every_block_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {}
    with running_server(load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path)})) as url:
        for block in blocks:
            exec(compile(block.replace("http://127.0.0.1:4000", url), str(PAGE), "exec"), names)
