"""A server in a thread of this process for all tests of a package, and a client of it for each. Packages import these in their conftest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.client import Client
from topics.server.ops.settings import Settings, load_settings
from topics.testing.server import running_server


def server_settings(data_dir: Path, port: int = 0, **more: str) -> Settings:
    return load_settings({"TOPICS_PORT": str(port), "TOPICS_DATA_DIR": str(data_dir), **more})


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(server_settings(tmp_path_factory.mktemp("server"))) as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client
