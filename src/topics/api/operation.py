"""Operations: the form of a declaration.

An `Operation` says what a request is and what it may do. It holds no code: a handler of the server registers itself with the
operation's name (`topics.server.operations`). Routes, permission checks, decoding, the clients, OpenAPI and the reference are
derived from the declaration.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct

# Scopes of a key. An operation that requires several has their sum.
READ = 1
WRITE = 2
DELETE = 4
ADMIN = 8
ALL = READ | WRITE | DELETE | ADMIN
# Move a consumer group. A key with READ and WRITE has it; a role may have it without WRITE.
CONSUME = 16
# Any valid credential.
ANY_KEY = 0
# No credential, unless the server requires one for its probes (TOPICS_PROBE_AUTH).
PROBE = -1
# No credential.
PUBLIC = -2

SCOPE_NAMES = {READ: "read", WRITE: "write", DELETE: "delete", ADMIN: "admin"}

Place = Literal["path", "query", "body"]
# What a name refers to, which decides how it is compared with the prefixes of a key:
#   topic, router, pipeline   the name itself must be within the prefixes
#   aliased_topic             the name of the topic, which the request may give by its alias
#   connected_router          the name of the router and, if it exists, those of its source and dest
#   table                     the name of the topic that holds the changes of the table
#   stage                     the name of the topic that the stage was made for
#   producer                  the prefixes of the key that commits as this producer
#   watch_session             the key that made the session (401 for others)
#   connection                the names of all topics of a live connection
#   table_location            only keys without prefixes may set a new one
#   archive_location          within the archive roots of the server, for keys with prefixes
#   system_table              the scope of the table; some are for keys without prefixes only
Kind = Literal[
    "topic",
    "aliased_topic",
    "router",
    "connected_router",
    "table",
    "pipeline",
    "stage",
    "producer",
    "watch_session",
    "connection",
    "table_location",
    "archive_location",
    "system_table",
]
# `dedicated`: the server has a decoder for this body, because it is frequent or holds many records. `tests/server/test_decoders.py`
# compares it with the declaration. All other bodies and all queries are decoded as declared.
Decoded = Literal["declared", "dedicated"]
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
EVENT_STREAM = "text/event-stream"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"

# Bodies of requests that carry no records. Decoding this much takes a few milliseconds; legitimate ones are far smaller.
MAX_CONTROL_BODY_BYTES = 1 << 20
# Errors that every operation can answer with, and those of operations with a body.
COMMON_ERRORS = (
    "invalid_request",
    "unauthorized",
    "forbidden",
    "throttled",
    "internal",
    "not_ready",
    "shutting_down",
    "payload_too_large",
    "unsupported_media_type",
)
# Errors of operations that write to the log.
WRITE_ERRORS = ("read_only", "storage_full", "storage_error")


class Name(Struct, frozen=True):
    """A name in a request that the caller must be allowed to touch.

    `field` is the parameter of the path or the query, or the field of the body: `config.dead_letter` for a field of a field,
    `writes[].topic` for a field of every item of a list, `topics{}` for the keys of an object, `topic|topic_id` for the first
    that is given. `label` is what an error calls a name that is not valid; None leaves the check to the operation.
    """

    place: Place
    field: str
    kind: Kind = "topic"
    label: str | None = None


class FieldScope(Struct, frozen=True):
    """A scope that is required in addition when the body has `field`.

    `on_creation`: only when the request creates the topic; for a topic that exists the field has no effect.
    """

    field: str
    scope: int
    on_creation: bool = False


class MaxEntries(Struct, frozen=True):
    """The most entries that a list or an object in the body may have. Checked before a large body is decoded.

    `limit` is a number, or the name of a field of `topics.model.limits.Limits`.
    """

    field: str
    limit: int | str
    error: Literal["invalid_request", "batch_too_large"] = "invalid_request"


class Rule(Struct, frozen=True):
    """What a caller must be allowed to do."""

    scope: int
    names: tuple[Name, ...] = ()
    field_scopes: tuple[FieldScope, ...] = ()


class Header(Struct, frozen=True):
    """A request header that the operation reads."""

    name: str
    description: str


class Example(Struct, frozen=True):
    """A request and its response, as documentation. Paths and queries are written out."""

    path: str
    body: Any = None
    response: Any = None


class Operation(Struct, frozen=True, kw_only=True):
    """One operation. `name` is its operationId and the name of its handler; `noun` groups the reference."""

    name: str
    noun: str
    method: Literal["GET", "PUT", "POST", "DELETE"]
    path: str
    summary: str
    description: str = ""
    scope: int
    names: tuple[Name, ...] = ()
    field_scopes: tuple[FieldScope, ...] = ()
    # Structs whose fields are the query parameters, the body and the response.
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    # A request without a body and without a Content-Type counts as one with an empty object.
    body_optional: bool = False
    max_entries: tuple[MaxEntries, ...] = ()
    # The name in the path and the query are checked before the type and the size of the body.
    names_first: bool = False
    decoded: Decoded = "declared"
    # The body may also be an Arrow stream.
    arrow_body: bool = False
    headers: tuple[Header, ...] = ()
    response: type | None = None
    # Media types of the response besides or instead of JSON.
    media: tuple[str, ...] = (JSON,)
    # Statuses of success.
    statuses: tuple[int, ...] = (200,)
    errors: tuple[str, ...] = ()
    # Sending the request again after a lost response changes nothing more.
    safe_to_retry: bool = True
    retry_note: str = ""
    # The response stays open: it counts as a connection, not as a request.
    stream: bool = False
    # Served also while the log is replayed and while the server stops.
    during_recovery: bool = False
    # The key may come as `?token=`, for clients that cannot send headers.
    query_token: bool = False
    # Largest body, also once inflated; 0 for the server's own limit.
    max_body_bytes: int = MAX_CONTROL_BODY_BYTES
    # Whether the body may have a Content-Encoding.
    compressed: bool = True
    # Other paths of the same operation.
    aliases: tuple[str, ...] = ()
    example: Example | None = None

    @property
    def rule(self) -> Rule:
        return Rule(self.scope, self.names, self.field_scopes)

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that serve the operation. Those of /api are served under /v1 too."""
        versioned = (f"/v1{self.path}",) if self.path.startswith("/api/") else ()
        return (self.path, *versioned, *self.aliases)

    @property
    def path_parameter(self) -> str:
        """The parameter in the path; empty when it has none."""
        return self.path.partition("{")[2].partition("}")[0]

    @property
    def path_name(self) -> Name | None:
        return next((name for name in self.names if name.place == "path"), None)

    @property
    def all_errors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*COMMON_ERRORS, *self.errors)))


class Command(Struct, frozen=True):
    """An SQL statement or a WebSocket command: what it requires, and the operation that does the same over HTTP, if one does.

    `request` and `response` are the messages of a WebSocket command and of its answer.
    """

    name: str
    rule: Rule
    operation: str | None = None
    request: type[Struct] | None = None
    response: type[Struct] | None = None


def command_of(
    name: str,
    operation: Operation,
    fields: Mapping[str, str | None] | None = None,
    *,
    more: tuple[Name, ...] = (),
    field_scopes: tuple[FieldScope, ...] = (),
    request: type[Struct] | None = None,
    response: type[Struct] | None = None,
) -> Command:
    """A command that does what the operation does: it requires the scope of the operation, for the same names in the same form.

    `fields` says what the command calls a field of the operation, None for one that it does not have; `more` are names that the
    operation does not have. `field_scopes` are given where a field of the command requires more than that of the operation.
    """
    renamed = fields or {}
    names = []
    for declared in operation.names:
        field = renamed.get(declared.field, declared.field)
        if field is not None:
            names.append(Name("body", field, declared.kind, declared.label))
    rule = Rule(operation.scope, (*names, *more), field_scopes or operation.field_scopes)
    return Command(name, rule, operation.name, request, response)


def reader(field: str) -> Callable[[Any], list[str]]:
    """A function that returns the names that a field of its argument holds: see `Name`. Absent and null fields hold none."""
    if field.isidentifier():

        def read_field(source: Any) -> list[str]:
            value = _field(source, field)
            return [value] if isinstance(value, str) else []

        return read_field
    alternatives = [alternative.split(".") for alternative in field.split("|")]

    def read(source: Any) -> list[str]:
        for parts in alternatives:
            found = list(_values(source, parts))
            if found:
                return found
        return []

    return read


def _values(value: Any, parts: list[str]) -> Iterator[str]:
    if value is None or value is UNSET:
        return
    if not parts:
        if isinstance(value, str):
            yield value
        return
    part, rest = parts[0], parts[1:]
    if part.endswith("[]"):
        for item in _field(value, part[:-2]) or ():
            yield from _values(item, rest)
    elif part.endswith("{}"):
        yield from list(_field(value, part[:-2]) or ())
    else:
        yield from _values(_field(value, part), rest)


def _field(value: Any, name: str) -> Any:
    found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return None if found is UNSET else found
