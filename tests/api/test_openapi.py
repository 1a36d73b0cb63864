"""The OpenAPI document describes the server: valid, complete, and with examples that hold."""

import json

import msgspec
import pytest
from openapi_spec_validator import validate

from tests.declared import validator
from tests.server.house import House, in_house
from topics.api.common import ErrorResponse
from topics.api.documents.openapi import document
from topics.api.live import COMMANDS, ErrorMessage
from topics.api.operation import PROBE, PUBLIC, Operation
from topics.api.operations import BY_NAME, OPERATIONS
from topics.model.limits import Limits

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def test_document_is_valid_openapi() -> None:
    described = document()
    assert described["openapi"].startswith("3.1")
    validate(described)


def test_names_of_operations_are_unique() -> None:
    assert len(BY_NAME) == len(OPERATIONS)


@each_operation
def test_operation_is_documented(operation: Operation) -> None:
    assert operation.summary.endswith(".")
    assert operation.example is not None
    for name in operation.names:
        if name.place == "path":
            assert name.field == operation.path_parameter
        if name.place == "query":
            assert operation.query is not None
            assert name.field in operation.query.__struct_fields__
        if name.place == "body":
            assert operation.body is not None
            first = name.field.partition("|")[0].partition(".")[0].rstrip("[]{}")
            assert first in operation.body.__struct_fields__


def test_every_type_and_every_field_has_a_description() -> None:
    """Requests, responses and messages, with all types that they use."""
    types = [each for operation in OPERATIONS for each in (operation.body, operation.query, operation.response)]
    types += [each for command in COMMANDS.values() for each in (command.request, command.response)]
    declared = list(dict.fromkeys([each for each in types if each is not None] + [ErrorMessage, ErrorResponse]))
    _, schemas = msgspec.json.schema_components(declared)
    # A reference is described by its type; a choice of words, by its words.
    undescribed = [
        (kind, name)
        for kind, schema in schemas.items()
        for name, field in schema.get("properties", {}).items()
        if "$ref" not in field
        and "enum" not in field
        and not any(["description" in each for each in (field, *field.get("anyOf", ()))])
    ]
    assert undescribed == []
    queries = {operation.query.__name__ for operation in OPERATIONS if operation.query is not None}
    assert [kind for kind, schema in schemas.items() if "description" not in schema and kind not in queries] == []


def test_document_has_the_limits_of_lists() -> None:
    schemas = document()["components"]["schemas"]
    for operation in OPERATIONS:
        for entries in operation.max_entries:
            assert operation.body is not None
            field = schemas[operation.body.__name__]["properties"][entries.field]
            limits = [each.get("maxItems", each.get("maxProperties")) for each in (field, *field.get("anyOf", ()))]
            expected = entries.limit if isinstance(entries.limit, int) else getattr(Limits(), entries.limit)
            assert expected in limits, (operation.name, entries.field)


@each_operation
def test_examples_are_of_their_types(operation: Operation) -> None:
    example = operation.example
    assert example is not None
    if example.body is not None:
        assert operation.body is not None
        msgspec.json.decode(json.dumps(example.body), type=operation.body)
    if example.response is not None:
        assert operation.response is not None
        errors = list(validator(operation.response.__name__).iter_errors(example.response))
        assert [error.message for error in errors] == []


@in_house(API_KEYS="secret")
async def test_description_of_the_api_needs_no_credential(house: House) -> None:
    described = await house.ask("GET", "/openapi.json")
    assert described.status == 200
    assert described.json == json.loads(json.dumps(document()))
    again = await house.ask("GET", "/openapi.json")
    assert again.body == described.body
    page = await house.ask("GET", "/docs")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for operation in OPERATIONS:
        assert f'id="{operation.name}"' in page.body.decode()
    # Nothing is loaded from elsewhere.
    assert "http://" not in page.body.decode()
    assert "https://" not in page.body.decode()
    assert (await house.ask("GET", "/v0/topics")).status == 401


def test_operations_without_credentials_are_few() -> None:
    open_to_all = {operation.name for operation in OPERATIONS if operation.scope in (PUBLIC, PROBE)}
    assert open_to_all == {
        "get_console_file",
        "get_docs",
        "get_health",
        "get_openapi",
        "get_ready",
        "get_root",
        "log_in",
    }
