"""A server in a thread of the test: it serves while the block runs, and stops in good order."""

from pathlib import Path

import pytest

from tests.served import server_settings
from topics.testing.http import Api
from topics.testing.server import running_server


def test_server_serves_in_the_block_and_has_its_data_in_the_next(tmp_path: Path) -> None:
    with running_server(server_settings(tmp_path)) as url, Api(url) as api:
        assert api.post("/v0/topics/t", {"records": [{"data": 1}]}).status == 201
    with pytest.raises(ConnectionRefusedError), Api(url) as api:
        api.get("/v0/ready")
    with running_server(server_settings(tmp_path)) as url, Api(url) as api:
        assert [record["data"] for record in api.post("/v0/topics/t/diff", {"from_seq": 0}).json["records"]] == [1]


def test_server_that_cannot_use_its_directory_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(AssertionError, match="ended with 1"), running_server(server_settings(file)):
        pass
