"""Operations as they are served: one handler for each declaration, with its types; all checks come from the declaration."""

import ast
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import topics.server
from tests.server.house import House, error_of, in_house
from topics.api.openapi import document
from topics.api.operation import Operation
from topics.api.operations import BY_NAME, OPERATIONS
from topics.server import handlers
from topics.server.application import TopicsApplication
from topics.server.operations import DECODERS, FACTORIES, HANDLERS, Call
from topics.server.service import Service

SERVER = Path(topics.server.__file__).parent
# Packages with handlers.
NOUNS = ("topics", "queues", "live", "groups", "sql", "tables", "ops")
CHECKS = {"check_scope", "check_topic", "check_unrestricted", "check_reached", "check_owner"}

handlers.register()


def test_every_operation_has_one_handler_and_every_handler_an_operation() -> None:
    assert set(HANDLERS) | set(FACTORIES) == set(BY_NAME)
    assert not set(HANDLERS) & set(FACTORIES)


def test_operations_with_a_decoder_of_their_own_are_declared_so() -> None:
    dedicated = {operation.name for operation in OPERATIONS if operation.decoded == "dedicated"}
    assert set(DECODERS) | set(FACTORIES) == dedicated


def test_routes_openapi_and_table_are_equal() -> None:
    routes = {
        (method, pattern): route.operation.name for method, pattern, route in TopicsApplication(Service()).routes.all()
    }
    declared = {
        (operation.method, pattern_of(path)): operation.name for operation in OPERATIONS for path in operation.paths
    }
    described = {
        (method.upper(), pattern_of(path)): fields["operationId"].rstrip("_23")
        for path, methods in document()["paths"].items()
        for method, fields in methods.items()
    }
    assert routes == declared == described


def pattern_of(path: str) -> str:
    return "/" + "/".join(["*" if part.startswith("{") else part for part in path.strip("/").split("/")])


@pytest.mark.parametrize("operation", [BY_NAME[name] for name in HANDLERS], ids=lambda operation: operation.name)
def test_handler_takes_the_types_of_the_declaration(operation: Operation) -> None:
    hints = get_type_hints(HANDLERS[operation.name])
    assert list(hints) == ["call", "return"]
    assert get_origin(hints["call"]) is Call
    body, query = get_args(hints["call"])
    assert query is (type(None) if operation.query is None else operation.query)
    if operation.decoded == "declared":
        assert body is (type(None) if operation.body is None else operation.body)


def test_no_handler_checks_a_scope_or_a_prefix() -> None:
    found = [
        (path.name, node.lineno, node.func.attr)
        for noun in NOUNS
        for path in (SERVER / noun).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CHECKS
        # A Permission checks what is declared.
        and ast.unparse(node.func.value) != "permission"
    ]
    assert found == []


@in_house()
async def test_body_over_the_declared_size_is_refused(house: House) -> None:
    for operation in OPERATIONS:
        if operation.body is None or not operation.max_body_bytes or operation.stream:
            continue
        path = (
            operation.path.replace("{" + operation.path_parameter + "}", "x")
            if operation.path_parameter
            else operation.path
        )
        answer = await house.ask(operation.method, path, b" " * (operation.max_body_bytes + 1))
        assert (answer.status, error_of(answer)["code"]) == (413, "payload_too_large"), operation.name


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("page_size=0", 400),
        ("page_size=-1", 400),
        ("page_size=x", 400),
        ("page_size=", 400),
        ("page_size=12345678901234567890", 400),
        ("page_size=1&page_size=x", 200),
        ("page_size=x&page_size=1", 400),
        ("touch=yes", 400),
        ("touch=1&unknown=2", 200),
        ("prefix=", 200),
    ],
)
@in_house()
async def test_query_is_decoded_as_declared(house: House, query: str, status: int) -> None:
    answer: Any = await house.ask("GET", f"/v0/topics?{query}")
    assert answer.status == status
