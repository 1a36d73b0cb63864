"""Operations as they are served: one handler for each declaration, with its types; all checks come from the declaration."""

import ast
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

import topics.server
from tests.server.house import House, error_of, in_house
from topics.api.documents.openapi import document
from topics.api.live import COMMANDS
from topics.api.operation import Command, Operation
from topics.api.operations import BY_NAME, OPERATIONS
from topics.api.sql import STATEMENTS
from topics.model.errors import InvalidRequest
from topics.server import handlers
from topics.server.application import TopicsApplication
from topics.server.decoding import query_decoder
from topics.server.operations import DECODERS, FACTORIES, HANDLERS, Call
from topics.server.service import Service

SERVER = Path(topics.server.__file__).parent
CHECKS = {"may", "check_scope", "check_topic", "check_unrestricted", "check_reached", "check_owner"}

for name in BY_NAME:
    handlers.register(name)


def test_the_module_that_is_imported_for_an_operation_registers_its_handler() -> None:
    modules = {
        name: getattr(handler, "__module__", "").removeprefix("topics.server.")
        for name, handler in {**HANDLERS, **FACTORIES}.items()
    }
    named = {name: module for module, names in handlers.MODULES.items() for name in names}
    assert modules == named


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


# Statements and commands that do what no operation does: their rule is declared with them.
WITHOUT_OPERATION = {
    "AddSource", "DropSource", "SetAlias", "DropGroup", "Select", "SetMaterialized", "ClearMaterialized", "unsubscribe", "ping",
}  # fmt: skip


@pytest.mark.parametrize("command", [*STATEMENTS.values(), *COMMANDS.values()], ids=lambda command: command.name)
def test_statements_and_commands_require_what_their_operation_requires(command: Command) -> None:
    if command.operation is None:
        assert command.name in WITHOUT_OPERATION
        return
    operation = BY_NAME[command.operation]
    assert command.rule.scope == operation.scope
    names = [(name.kind, name.label) for name in command.rule.names]
    # Retention has no dead letter; the other names are checked as in the operation.
    left_out = ["dead_letter"] if command.name in ("SetRetention", "ClearRetention") else []
    required = [(name.kind, name.label) for name in operation.names if name.field not in left_out]
    assert names[: len(required)] == required
    scopes = {each.field: each.scope for each in command.rule.field_scopes}
    assert all(scopes[each.field] == each.scope for each in operation.field_scopes)


BAD_NAME = "x" * 300


@pytest.mark.parametrize(
    ("sql", "method", "path", "body"),
    [
        (f'DROP TOPIC "{BAD_NAME}"', "DELETE", f"/v0/topics/{BAD_NAME}", None),
        (f'DROP TOPIC IF EXISTS "{BAD_NAME}"', "DELETE", f"/v0/topics/{BAD_NAME}", None),
        (f'CLEAR TOPIC "{BAD_NAME}"', "POST", f"/v0/topics/{BAD_NAME}/delete", {"before_seq": 1}),
        (f'CREATE TOPIC "{BAD_NAME}"', "PUT", f"/v0/topics/{BAD_NAME}", {}),
        (f'DESCRIBE TOPIC "{BAD_NAME}"', "GET", f"/v0/topics/{BAD_NAME}", None),
        (
            "RESET CONSUMER GROUP '' ON t TO LATEST",
            "POST",
            "/api/topics/seek",
            {"topic": "t", "group_id": "", "to": "Latest"},
        ),
        (
            f"RESET CONSUMER GROUP '{BAD_NAME}' ON t TO LATEST",
            "POST",
            "/api/topics/seek",
            {"topic": "t", "group_id": BAD_NAME, "to": "Latest"},
        ),
        ("ACK t GROUP '' UPTO OFFSET 1", "POST", "/api/topics/ack", {"topic": "t", "group_id": "", "upto_offset": 1}),
        ("CONSUME FROM t GROUP ''", "POST", "/api/topics/consume", {"topic": "t", "group_id": ""}),
        (f"DROP CONSUMER GROUP '{BAD_NAME}' ON t", "", "", None),
        ("DROP CONSUMER GROUP IF EXISTS '' ON t", "", "", None),
    ],
)
@in_house()
async def test_names_have_the_same_form_in_sql_and_over_http(
    house: House, sql: str, method: str, path: str, body: Any
) -> None:
    await house.ask("PUT", "/v0/topics/t", {})
    answer = await house.ask("POST", "/api/sql", {"sql": sql})
    assert (answer.status, error_of(answer)["code"]) == (400, "invalid_request")
    if path:
        answer = await house.ask(method, path, body)
        assert (answer.status, error_of(answer)["code"]) == (400, "invalid_request")


# Modules that make the checks, from the declarations.
CHECKING = {"admission.py", "archive_roots.py", "authorization.py", "origins.py", "permissions.py", "roles.py"}
# Calls with the name of a check that are none: the member of a consumer group; what a key is shown about itself.
NOT_CHECKS = {("actions.py", "check_owner"), ("whoami.py", "may")}
# Handlers whose operation finds further names while it runs: the broker compares them with what is passed on.
PASSING_ON = {
    "dead_letters.py",
    "metrics.py",
    "routers.py",
    "stages.py",
    "statements.py",
    "system_tables.py",
    "topics.py",
}
# Lists that are limited to prefixes, and what a key is shown about itself.
LISTING = {"keys.py", "search.py", "settings.py", "whoami.py"}


def server_trees() -> list[tuple[str, ast.Module]]:
    return [(path.name, ast.parse(path.read_text())) for path in SERVER.rglob("*.py") if path.name not in CHECKING]


def test_no_handler_checks_a_scope_or_a_prefix() -> None:
    found = set()
    for name, tree in server_trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            # A Permission checks what is declared.
            declared = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "permission"
            if called in CHECKS and not declared:
                found.add((name, called))
    assert found - NOT_CHECKS == set()


def test_no_handler_raises_forbidden() -> None:
    named = {name for name, tree in server_trees() for node in ast.walk(tree) if _is_name(node, "Forbidden")}
    assert named == set()


def test_prefixes_are_passed_on_only_for_names_that_are_found_later() -> None:
    found = set()
    for name, tree in server_trees():
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            passed = isinstance(node, ast.Attribute) and node.attr in ("may_touch", "may_touch_table", "prefixes")
            if passed and id(node) not in called:
                found.add(name)
    assert found <= PASSING_ON | LISTING


def _is_name(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.alias) and node.name == name)


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


# What is wrong with a request, and the first check that refuses it: key, method, path, Content-Type, body, error.
ORDER_OF_CHECKS = [
    (None, "GET", "/v0/nowhere", "", None, "unauthorized"),
    ("w:write", "PATCH", "/v0/topics/bad name", "", None, "method_not_allowed"),
    ("w:write", "PUT", "/v0/topics/bad name", "text/plain", b"{", "forbidden"),
    ("all", "PUT", "/v0/topics/bad name", "text/plain", b"{", "invalid_request"),
    ("all", "PUT", "/v0/topics/t", "text/plain", b"{", "unsupported_media_type"),
    ("w:write", "PUT", "/v0/routers/bad name", "text/plain", b"{", "forbidden"),
    ("all", "PUT", "/v0/routers/bad name", "text/plain", b"{", "unsupported_media_type"),
    ("all", "PUT", "/v0/routers/bad name", "application/json", b"{", "invalid_request"),
    ("all", "POST", "/v0/topics/bad name", "text/plain", b"{", "unsupported_media_type"),
    ("w:write", "POST", "/v0/topics/bad name/delete", "text/plain", b"{", "forbidden"),
    ("all", "POST", "/v0/topics/bad name/delete", "text/plain", b"{", "unsupported_media_type"),
    ("all", "POST", "/v0/topics/none/delete", "application/json", b"{", "invalid_request"),
    ("all", "POST", "/v0/topics/none/delete", "application/json", b'{"before_seq":1}', "topic_not_found"),
    ("r:read:in:", "POST", "/v0/topics/out/diff", "text/plain", b"{", "forbidden"),
    ("all", "POST", "/v0/topics/none/diff", "text/plain", b"{", "unsupported_media_type"),
    ("all", "POST", "/v0/topics/none/diff", "application/json", b"{", "invalid_request"),
    ("all", "POST", "/v0/topics/none/ack", "application/json", b"{", "invalid_request"),
    ("all", "POST", "/v0/stages?topic=bad name", "text/plain", b"{", "invalid_request"),
    ("all", "POST", "/v0/stages?topic=none", "text/plain", b"{", "unsupported_media_type"),
    ("all", "PUT", "/api/tables/bad name", "text/plain", b"{", "invalid_request"),
    ("all", "PUT", "/v0/topics/none/archive", "text/plain", b"{", "unsupported_media_type"),
    ("all", "POST", "/v0/watch?lenient=x", "text/plain", b"{", "unsupported_media_type"),
    ("all", "GET", "/v0/topics/none/work?node=w&lease_ms=", "", None, "invalid_request"),
    ("all", "GET", "/v0/topics/none/work?node=w", "", None, "topic_not_found"),
]


@in_house(API_KEYS="all,w:write,r:read:in:")
async def test_checks_of_a_request_have_one_order(house: House) -> None:
    found = []
    for key, method, path, content_type, body, _ in ORDER_OF_CHECKS:
        lines = [f"{method} {path.replace(' ', '%20')} HTTP/1.1", "Host: localhost"]
        if key is not None:
            lines.append(f"Authorization: Bearer {key.partition(':')[0]}")
        if body is not None:
            lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
        client = await house.connect()
        answer = await client.ask("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        found.append(error_of(answer)["code"])
    assert found == [expected for *_, expected in ORDER_OF_CHECKS]


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


class Limited(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(ge=2, le=5)] = 2
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=3)] = "a"
    optional: Annotated[int, msgspec.Meta(le=5)] | None = None


@pytest.mark.parametrize(
    ("query", "accepted"),
    [
        (b"number=2&text=a&optional=5", True),
        (b"number=5&text=abc&optional=", True),
        (b"number=1", False),
        (b"number=6", False),
        (b"text=", False),
        (b"text=abcd", False),
        (b"optional=6", False),
    ],
)
def test_declared_limits_of_query_parameters_are_enforced(query: bytes, accepted: bool) -> None:
    decode_query = query_decoder(Limited)
    if accepted:
        decode_query(query)
    else:
        with pytest.raises(InvalidRequest):
            decode_query(query)
