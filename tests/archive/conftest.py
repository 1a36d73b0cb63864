"""A server in a thread for all tests of this package, and archives in directories of their own."""

import itertools
from pathlib import Path

import pytest

from tests.archive.copier import Copier
from tests.served import client as client
from tests.served import url as url
from topics.archive.ledger import Ledger, open_archive
from topics.client import Client

_numbers = itertools.count(1)


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
