"""One server for the whole run, one fresh topic name for each test."""

import itertools
import re
from collections.abc import Iterator

import pytest

from tests.acceptance.topic import TopicApi
from tests.declared import check_response
from topics.server.ops.settings import load_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

_numbers = itertools.count(1)


@pytest.fixture(autouse=True, scope="session")
def every_response_is_as_declared() -> Iterator[None]:
    """Every response that a test gets has the status, the error code and the fields that `topics.api` declares."""

    def check(method: str, path: str, answer: Answer) -> None:
        check_response(method, path, answer.status, answer.headers.get("content-type", ""), answer.body)

    Api.observer = staticmethod(check)
    yield
    Api.observer = None


# Where records stand must make no difference: by default all of a test's records are in memory; the other server writes
# them to segments, takes snapshots and rotates its log all the time, and keeps nothing it has read.
SERVERS = {
    "hot": {},
    "sealed": {
        "TOPICS_WAL_FILE_BYTES": "65536",
        "TOPICS_SEGMENT_BYTES": "4096",
        "TOPICS_HOT_BYTES": "4096",
        "TOPICS_CHECKPOINT_BYTES": "65536",
        "TOPICS_CACHE_BYTES": "0",
    },
}


@pytest.fixture(scope="session", params=SERVERS)
def server_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("data")),
        **SERVERS[request.param],
    }
    with running_server(load_settings(environment)) as url:
        yield url


@pytest.fixture(scope="session")
def small_server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose limits can be met with a few bytes."""
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("small")),
        "TOPICS_MAX_BATCH_RECORDS": "5",
        "TOPICS_MAX_RECORD_BYTES": "1000",
        "TOPICS_MAX_BODY_BYTES": "20000",
        "TOPICS_MAX_META_BYTES": "200",
        "TOPICS_MAX_TAG_BYTES": "8",
        "TOPICS_MAX_NODE_BYTES": "4",
        "TOPICS_MAX_LIMIT": "3",
        "TOPICS_MAX_TOPICS": "40",
    }
    with running_server(load_settings(environment)) as url:
        yield url


@pytest.fixture
def api(server_url: str) -> Iterator[Api]:
    api = Api(server_url)
    yield api
    api.close()


@pytest.fixture
def small_api(small_server_url: str) -> Iterator[Api]:
    api = Api(small_server_url)
    yield api
    api.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    word = re.sub(r"[^A-Za-z0-9]+", "-", request.node.originalname)
    return f"t{next(_numbers)}-{word}"[:200]


@pytest.fixture
def topic(api: Api, name: str) -> TopicApi:
    """A topic that does not exist yet."""
    return TopicApi(api, name)


@pytest.fixture
def small_topic(small_api: Api, name: str) -> Iterator[TopicApi]:
    topic = TopicApi(small_api, name)
    yield topic
    topic.drop()
