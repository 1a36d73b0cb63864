"""Check responses against the declarations of the API: status, error code and every field."""

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator

from topics.api.documents.openapi import document
from topics.api.errors import STATUS_OF
from topics.api.operation import JSON, Operation
from topics.api.operations import OPERATIONS

# Validating a larger response takes too long; small ones have the same fields.
MAX_CHECKED_BYTES = 64 << 10
# Answered for every path, before the operation is known or by the HTTP layer.
ANYWHERE = {"not_found", "method_not_allowed", "not_acceptable"}


def operation_of(method: str, target: str) -> Operation | None:
    """The operation behind a request; None when there is none."""
    parts = target.partition("?")[0].split("/")
    for operation in OPERATIONS:
        if operation.method != {"HEAD": "GET"}.get(method, method):
            continue
        for path in operation.paths:
            pattern = path.split("/")
            if len(pattern) == len(parts) and all(
                [each == part or (each.startswith("{") and part) for each, part in zip(pattern, parts, strict=True)]
            ):
                return operation
    return None


def check_response(method: str, target: str, status: int, content_type: str, body: bytes) -> None:
    """Raises AssertionError when the response is not one that the operation declares."""
    operation = operation_of(method, target)
    if operation is None or method in ("HEAD", "OPTIONS") or status in (101, 304):
        return
    if status >= 400:
        if not content_type.startswith("application/json"):
            return
        code = json.loads(body)["error"]["code"]
        assert STATUS_OF[code] == status, (method, target, status, code)
        assert code in {*operation.all_errors, *ANYWHERE}, f"{operation.name} does not declare the error {code}"
        _validate("ErrorResponse", body, operation)
        return
    assert status in operation.statuses, (operation.name, status)
    assert any([content_type.startswith(media.partition(";")[0]) for media in operation.media]), content_type
    if content_type.startswith(JSON) and operation.response is not None and operation.name != "get_openapi":
        _validate(operation.response.__name__, body, operation)


def _validate(name: str, body: bytes, operation: Operation) -> None:
    if len(body) > MAX_CHECKED_BYTES:
        return
    try:
        value = json.loads(body)
    except UnicodeDecodeError:
        return
    errors = [f"{error.json_path}: {error.message[:300]}" for error in validator(name).iter_errors(value)]
    assert errors == [], (operation.name, errors)


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """Of a response type, with every field declared: one that is not in the type is an error."""
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": strict_schemas()}})


@functools.cache
def strict_schemas() -> dict[str, Any]:
    schemas: dict[str, Any] = document()["components"]["schemas"]
    for name, schema in schemas.items():
        # Metrics have a field for each metric.
        if name != "Metrics" and "properties" in schema:
            schema["additionalProperties"] = False
    return schemas
