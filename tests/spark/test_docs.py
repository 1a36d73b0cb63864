"""The blocks of docs/spark.md run."""

import re
from pathlib import Path
from typing import Any

import pytest

from topics.client import Client
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def test_every_block_of_the_page_runs_twice(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader runs the page again, in the same directory and against the same server: nothing is lost."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url, Client(url) as client:
        for run in (1, 2):
            names: dict[str, Any] = {}
            for block in blocks:
                exec(compile(block.replace("http://127.0.0.1:4000", url), str(PAGE), "exec"), names)
            totals = {record.tag: record.data["cents"] for record in client.read("sales.totals")}
            assert totals == {f"shop-{shop}": run * sum(range(shop, 1000, 3)) for shop in range(3)}
