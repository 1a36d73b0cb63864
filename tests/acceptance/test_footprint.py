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


def libraries(server: ServerProcess) -> set[str]:
    """The files whose code the process has loaded."""
    lines = Path(f"/proc/{server.pid}/maps").read_text().splitlines()
    return {path for line in lines if ".so" in (path := line.split(maxsplit=5)[-1])}


def test_a_server_without_sealed_segments_does_not_load_what_reads_them(tmp_path: Path) -> None:
    for _ in range(2):
        with ServerProcess(tmp_path) as server, Api(server.url) as api:
            assert api.post("/v0/topics/a", {"records": [{"data": 1}]}).status < 300
            assert api.post("/v0/topics/a/diff", {}).status == 200
            assert not [path for path in libraries(server) if "arrow" in path]


def test_what_reads_sealed_segments_is_loaded_before_the_server_is_ready(tmp_path: Path) -> None:
    """Otherwise the first read would hold everybody up for a tenth of a second."""
    small = {"TOPICS_SEGMENT_BYTES": "4096", "TOPICS_HOT_BYTES": "4096"}
    records = [{"data": number, "tag": "t", "node": "n", "meta": {}} for number in range(500)]
    with ServerProcess(tmp_path, **small) as server, Api(server.url) as api:
        assert api.post("/v0/topics/a", {"records": records}).status == 201
        assert server.stop() == 0
        assert list(server.data_dir.glob("segments/*.arrow"))
    with ServerProcess(tmp_path, **small) as server, Api(server.url) as api:
        ready = libraries(server)
        assert [path for path in ready if "libarrow.so" in path]
        page = api.post("/v0/topics/a/diff", {"limit": 400, "include_tags": True}).json
        assert [record["data"] for record in page["records"]] == list(range(400))
        assert api.post("/v0/topics/a/delete", {"match": "t", "before_seq": 9}).json["deleted"] == 8
        assert libraries(server) == ready
