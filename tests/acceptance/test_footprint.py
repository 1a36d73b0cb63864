"""What a server process takes along, and what it does not."""

import json
from pathlib import Path

import pytest

from tests.acceptance.test_arrow import ARROW, Page, stream
from topics.testing.http import Api
from topics.testing.process import ServerProcess


def test_a_server_that_seals_and_speaks_arrow_never_loads_numpy(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    with (
        ServerProcess(tmp_path, TOPICS_SEGMENT_BYTES="4096", TOPICS_HOT_BYTES="4096") as server,
        Api(server.url) as api,
    ):
        records = [{"data": number, "tag": "t", "node": "n", "meta": {}} for number in range(500)]
        assert api.post("/v0/topics/a", json.dumps({"records": records}).encode()).status == 201
        rows = stream(data=["1", "2"], tag=["t", None])
        assert api.send("POST", "/v0/topics/a", rows, {"Content-Type": ARROW}).status == 200
        headers = {"Content-Type": "application/json", "Accept": ARROW}
        page = Page(api.send("POST", "/v0/topics/a/diff", b'{"filter":"t"}', headers).body)
        assert len(page.rows) == 501
        maps = Path(f"/proc/{server.pid}/maps").read_text()
    assert "libarrow" in maps
    assert "numpy" not in maps
