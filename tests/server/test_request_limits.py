"""Limits of what requests ask for: larger values count as the limit, in one module for all transports."""

import ast
from pathlib import Path

import pytest

import topics.server
from topics.model.limits import Limits
from topics.server import limits as request_limits
from topics.server.limits import at_most

SERVER = Path(topics.server.__file__).parent
# What handlers call the fields of a request.
REQUEST_FIELDS = {"body", "fields", "options", "query", "statement"}
LIMITS = Limits()


@pytest.mark.parametrize(
    ("wanted", "limit", "default", "counts"),
    [
        (None, 10, 3, 3),
        (0, 10, 3, 3),
        (1, 10, 3, 1),
        (10, 10, 3, 10),
        (11, 10, 3, 10),
        (2**70, 10, 3, 10),
        (None, 2, 3, 2),
    ],
)
def test_larger_values_count_as_the_limit(wanted: int | None, limit: int, default: int, counts: int) -> None:
    assert at_most(wanted, limit, default) == counts


def test_each_limit_has_its_documented_range() -> None:
    huge = 2**70
    assert (request_limits.read_records(0, LIMITS), request_limits.read_records(huge, LIMITS)) == (256, 1000)
    assert (request_limits.read_bytes(0, LIMITS), request_limits.read_bytes(huge, LIMITS)) == (1 << 20, 8 << 20)
    assert (request_limits.wait_ms(0, LIMITS), request_limits.wait_ms(huge, LIMITS)) == (0, 30_000)
    assert (request_limits.consumed_messages(None, LIMITS), request_limits.consumed_messages(huge, LIMITS)) == (
        100,
        1000,
    )
    assert (request_limits.claimed_jobs(0, LIMITS), request_limits.claimed_jobs(huge, LIMITS)) == (0, 1000)
    assert (request_limits.streamed_jobs(0, LIMITS), request_limits.streamed_jobs(huge, LIMITS)) == (1, 1000)
    assert (request_limits.lease_ms(0), request_limits.lease_ms(huge)) == (100, 86_400_000)
    assert (request_limits.heartbeat_ms(0), request_limits.heartbeat_ms(huge)) == (1_000, 60_000)


def test_no_other_module_of_the_server_reduces_a_value_of_a_request() -> None:
    found = [
        (path.name, node.lineno, ast.unparse(node))
        for path in SERVER.rglob("*.py")
        if path.name != "limits.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and (node.func.id == "clamp" or (node.func.id == "min" and _reads_request(node)))
    ]
    assert found == []


def _reads_request(call: ast.Call) -> bool:
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in REQUEST_FIELDS
        for argument in call.args
        for node in ast.walk(argument)
    )
