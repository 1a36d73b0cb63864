"""The OpenAPI document describes the server: valid, complete, and with examples that hold."""

import json

import msgspec
import pytest
from openapi_spec_validator import validate

from tests.declared import validator
from tests.server.house import House, in_house
from topics.api.openapi import document
from topics.api.operation import PROBE, PUBLIC, Operation
from topics.api.operations import BY_NAME, OPERATIONS

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


@each_operation
def test_fields_of_requests_have_descriptions(operation: Operation) -> None:
    for kind in (operation.body, operation.query):
        if kind is None:
            continue
        for name, schema in msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"].items():
            described = [schema, *schema.get("anyOf", ())]
            plain = "$ref" in schema or "enum" in schema or name in ("password",)
            assert plain or any(["description" in each for each in described]), (kind.__name__, name)


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
