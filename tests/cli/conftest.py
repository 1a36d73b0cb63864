"""A server with sample data for tests that run `topics` in processes, and the environment to reach it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import clean_environment
from topics.client import Client, RecordIn
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server


@pytest.fixture(scope="session")
def shared_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("cli-server"))})
    with running_server(settings) as url:
        with Client(url) as client:
            client.append("sample", [RecordIn({"n": n}, tag=f"tag-{n}") for n in range(1, 4)])
            client.consume("sample", "readers", timeout_seconds=0)
            client.create("work", type="queue")
        yield url


@pytest.fixture(scope="session")
def environment(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    return clean_environment(
        TOPICS_URL=shared_url, HOME=str(home), XDG_CONFIG_HOME=str(home / "config"), XDG_STATE_HOME=str(home / "state")
    )


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for files, with the data directory of a stopped server in `data`."""
    made = tmp_path_factory.mktemp("files")
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(made / "data")})
    with running_server(settings) as url, Client(url) as client:
        client.append("sample", [1, 2, 3])
    return made
