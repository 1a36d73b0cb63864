"""The blocks of docs/archive.md run, except those that need Spark; the test does the work of the pipeline."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.archive.copier import Copier
from topics.archive.ledger import open_archive
from topics.client import Client
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

PAGE = Path(__file__).resolve().parents[2] / "docs" / "archive.md"


def test_every_block_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    ran = 0
    with (
        running_server(load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})) as url,
        Client(url) as client,
    ):
        for language, block in blocks:
            if language == "sh" and "pipeline run" in block:
                archive = open_archive(names["LAKE"], create=True)
                Copier(client, archive, "orders").up_to(client.info("orders").head_seq)
            elif language == "python" and "spark." not in block:
                exec(compile(block.replace("http://127.0.0.1:4000", url), str(PAGE), "exec"), names)
                ran += 1
    assert ran == 4


def test_the_guide_queries_the_archive_with_duckdb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pipeline's work is done here: an archive of `orders` in a local directory."""
    guide = PAGE.parent / "guides" / "history-with-duckdb.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", guide.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lake = str(tmp_path / "lake")
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url, Client(url) as client:
        client.append("orders", [{"cents": 1250}, {"cents": 300}])
        Copier(client, open_archive(lake, create=True), "orders").up_to(2)
    exec(compile(block.replace("s3://lake/orders", lake), str(guide), "exec"), {})
    assert "15.5" in capsys.readouterr().out
