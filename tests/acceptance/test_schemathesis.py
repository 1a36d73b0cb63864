"""Generated requests to every operation of /openapi.json: no 5xx, and no response outside its declaration.

Schemathesis makes the requests from the document alone: valid ones, and ones that break one rule of it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from topics.api.documents.openapi import document
from topics.api.operation import ARROW
from topics.api.operations import OPERATIONS
from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
# For each operation; all of them take about 15 s of processor time.
MAX_EXAMPLES = 10
STREAMS = {operation.path for operation in OPERATIONS if operation.stream}


def described() -> schemathesis.BaseSchema:
    config = SchemathesisConfig()
    config.projects.default.generation.modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
    schema = schemathesis.openapi.from_dict(document(), config=config)
    # Streams do not end, and /v1 is the same as /api.
    return schema.exclude(path=sorted(STREAMS)).exclude(path_regex="^/v1/")


@schemathesis.serializer(ARROW)
def arrow_body(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Bytes that are hardly ever an Arrow stream: the server must refuse them."""
    return value if isinstance(value, bytes) else str(value).encode()


schema = described()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("data")),
        "TOPICS_MAX_CONSUME_TIMEOUT": "1",
        "TOPICS_DEFAULT_CONSUME_TIMEOUT": "1",
    }
    found = load_settings(environment)
    limits = msgspec.structs.replace(found.limits, max_wait_ms=5)
    with running_server(msgspec.structs.replace(found, limits=limits)) as address:
        yield address


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=MAX_EXAMPLES, suppress_health_check=list(HealthCheck))
def test_responses_to_generated_requests_are_as_declared(case: schemathesis.Case, url: str) -> None:
    name = case.path_parameters.get("topic") if case.path_parameters else None
    if isinstance(name, str) and not len(name) % 2:
        # Random names hardly ever name a topic: in half of the requests it exists, so that successes are generated too.
        with Api(url) as api:
            queue = len(name) % 4 == 0
            case.path_parameters["topic"] = "known-queue" if queue else "known"
            api.put(f"/v0/topics/{case.path_parameters['topic']}", {"type": "queue"} if queue else {})
    response = case.call(base_url=url)
    case.validate_response(response, checks=list(CHECKS))
