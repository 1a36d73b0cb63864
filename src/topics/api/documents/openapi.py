"""The OpenAPI 3.1 document of the API, made from the declarations."""

from typing import Any

import msgspec

from topics import __version__
from topics.api.common import ErrorResponse, RouterName, TopicName
from topics.api.errors import STATUS_OF
from topics.api.operation import ARROW, CONSUME, EVENT_STREAM, JSON, PROBE, PUBLIC, SCOPE_NAMES, MaxEntries, Operation
from topics.api.operations import NOUNS, OPERATIONS
from topics.model.limits import Limits

SCHEMAS = "#/components/schemas/{name}"
# Parameters in paths: their types and what they are.
PATH_PARAMETERS: dict[str, tuple[Any, str]] = {
    "topic": (TopicName, "Name of the topic: 1 to 255 of A-Z a-z 0-9 . _ : -"),
    "router": (RouterName, "Name of the router: as that of a topic, and >"),
    "table": (TopicName, "Name of the table."),
    "pipeline": (TopicName, "Name of the pipeline."),
    "stage_id": (str, "Id of the stage."),
    "producer": (str, "Name of the producer."),
    "wid": (str, "Id of the watch session."),
    "connection": (str, "Id of the connection, as listed."),
    "file": (str, "Name of the file."),
}


def document() -> dict[str, Any]:
    """The whole document."""
    bodies = [each for operation in OPERATIONS for each in (operation.body, operation.response) if each is not None]
    types = list(dict.fromkeys([*bodies, ErrorResponse]))
    references, schemas = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    refs = dict(zip(types, references, strict=True))
    for schema in schemas.values():
        _describe_defaults(schema)
    for operation in OPERATIONS:
        for entries in operation.max_entries:
            assert operation.body is not None
            _limit_entries(schemas[operation.body.__name__]["properties"][entries.field], entries)
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        for position, path in enumerate(operation.paths):
            paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, position, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "topics",
            "version": __version__,
            "description": "Append-only topics, queues, live streams and consumer groups over HTTP and JSON.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": noun, "description": title} for noun, title in NOUNS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key, or the token of a login."},
                "user": {"type": "http", "scheme": "basic", "description": "A user of server.toml."},
            },
        },
    }


def _describe_defaults(schema: dict[str, Any]) -> None:
    """Move the defaults of fields into their descriptions.

    Generators of clients read `default` as "always present": they would require the field in requests, and miss that a
    response may leave it out.
    """
    for field in schema.get("properties", {}).values():
        default = field.pop("default", None)
        if default is not None and default not in ("", [], {}):
            described = f"{field.get('description', '')} Default: {msgspec.json.encode(default).decode()}."
            field["description"] = described.strip()


def _limit_entries(field: dict[str, Any], entries: MaxEntries) -> None:
    """Add the most entries of a list or an object; the default of those that are a setting."""
    limit = entries.limit if isinstance(entries.limit, int) else getattr(Limits(), entries.limit)
    for schema in (field, *field.get("anyOf", ())):
        if schema.get("type") == "array":
            schema["maxItems"] = limit
        elif schema.get("type") == "object":
            schema["maxProperties"] = limit


def scope_names(scope: int) -> list[str]:
    """The scopes in words. To consume, a key needs read and write; a role may have the permission without write."""
    names = [name for bit, name in SCOPE_NAMES.items() if scope > 0 and scope & bit]
    return [*names, "consume"] if scope > 0 and scope & CONSUME else names


def _operation(operation: Operation, position: int, refs: dict[type, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "operationId": operation.name if not position else f"{operation.name}_{position + 1}",
        "tags": [operation.noun],
        "summary": operation.summary,
        "x-scopes": scope_names(operation.scope),
        "x-safe-to-retry": operation.safe_to_retry,
    }
    notes = [operation.description, operation.retry_note]
    if position:
        notes.insert(0, f"The same operation as {operation.path}.")
    if any(notes):
        fields["description"] = " ".join([note for note in notes if note])
    if operation.scope in (PUBLIC, PROBE):
        fields["security"] = []
    else:
        fields["security"] = [{"key": []}, {"user": []}, {}]
    parameters = _parameters(operation)
    if parameters:
        fields["parameters"] = parameters
    if operation.body is not None:
        fields["requestBody"] = _body(operation, refs)
    fields["responses"] = _responses(operation, refs)
    return fields


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    if operation.path_parameter:
        kind, description = PATH_PARAMETERS[operation.path_parameter]
        schema = msgspec.json.schema(kind)
        parameters.append(
            {
                "name": operation.path_parameter,
                "in": "path",
                "required": True,
                "description": description,
                "schema": {"minLength": 1, **schema},
            }
        )
    parameters += [_query_parameter(name, schema) for name, schema in query_schemas(operation).items()]
    for header in operation.headers:
        # OpenAPI describes Accept by the media types of the responses.
        if header.name != "Accept":
            parameters.append(
                {
                    "name": header.name,
                    "in": "header",
                    "required": False,
                    "description": header.description,
                    "schema": {"type": "string"},
                }
            )
    return parameters


def query_schemas(operation: Operation) -> dict[str, dict[str, Any]]:
    """The JSON schema of each query parameter; those that are required have `required`."""
    if operation.query is None:
        return {}
    schema = msgspec.json.schema(operation.query)["$defs"][operation.query.__name__]
    required = schema.get("required", ())
    return {name: {**each, "required": name in required} for name, each in schema["properties"].items()}


def _query_parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    required = schema["required"]
    # A parameter that is left out is null: the type without it is what can be sent.
    if "anyOf" in schema:
        schema = next(each for each in schema["anyOf"] if each != {"type": "null"})
    description = schema.get("description", "")
    schema = {key: value for key, value in schema.items() if key not in ("description", "required")}
    if schema.get("default") in ("", None):
        schema.pop("default", None)
    return {"name": name, "in": "query", "required": required, "description": description, "schema": schema}


def _body(operation: Operation, refs: dict[type, Any]) -> dict[str, Any]:
    assert operation.body is not None
    content: dict[str, Any] = {JSON: {"schema": refs[operation.body]}}
    if operation.example is not None and operation.example.body is not None:
        content[JSON]["example"] = operation.example.body
    if operation.arrow_body:
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    return {"required": not operation.body_optional, "content": content}


def _responses(operation: Operation, refs: dict[type, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in operation.statuses:
        content: dict[str, Any] = {}
        for media in operation.media:
            content[media] = {
                "schema": {"type": "string"} if media == EVENT_STREAM or media.startswith("text/") else {}
            }
            if media == JSON:
                content[media]["schema"] = refs[operation.response] if operation.response is not None else {}
                if operation.example is not None and operation.example.response is not None:
                    content[media]["example"] = operation.example.response
            elif media == ARROW:
                content[media]["schema"] = {"type": "string", "format": "binary"}
        described = {200: "Done.", 201: "Created.", 101: "The connection is a WebSocket from here on."}[status]
        responses[str(status)] = {"description": described, **({"content": content} if content else {})}
    for status, codes in errors_by_status(operation).items():
        responses[str(status)] = {
            "description": " or ".join([f"`{code}`" for code in codes]),
            "content": {JSON: {"schema": refs[ErrorResponse]}},
        }
    return responses


def errors_by_status(operation: Operation) -> dict[int, list[str]]:
    """The codes that the operation can answer with, by status."""
    found: dict[int, list[str]] = {}
    for code in sorted(operation.all_errors, key=lambda code: STATUS_OF[code]):
        found.setdefault(STATUS_OF[code], []).append(code)
    return found
