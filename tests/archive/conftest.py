"""A server in a thread for the whole room, and archives in directories of their own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive.copier import Copier
from topics.archive.ledger import Ledger, open_archive
from topics.client import Client
from topics.server.settings import load_settings
from topics.testing.server import running_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("archive-server")
    with running_server(load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(data)})) as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    """Colons are the one sign in the names of topics that is not one in the names of directories."""
    return f"app:archived-{next(_numbers)}"


@pytest.fixture
def archive(tmp_path: Path) -> Ledger:
    return open_archive(str(tmp_path / "table"), create=True)


@pytest.fixture
def copier(client: Client, archive: Ledger, topic: str) -> Copier:
    return Copier(client, archive, topic)
