"""Every operation with every name that it touches: refused without the scope or outside the prefixes, done otherwise.

The cases are made from the declarations in `topics.api`, for HTTP, SQL, WebSocket and the system tables: one for each name that is
declared, with the declared scopes. `CALLS`, `STATEMENT_CALLS` and `MESSAGES` have one call of each; an operation without one fails
`test_every_operation_statement_and_command_has_a_call`.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, get_args
from urllib.parse import urlencode

import pytest
from websockets.asyncio.client import connect

from tests.server.house import House, error_of, in_house
from topics.api.live import COMMANDS
from topics.api.operation import (
    ADMIN,
    ANY_KEY,
    CONSUME,
    DELETE,
    PROBE,
    PUBLIC,
    READ,
    SCOPE_NAMES,
    WRITE,
    Name,
    Operation,
    Rule,
)
from topics.api.operations import OPERATIONS
from topics.api.sql import STATEMENTS, TABLE_SCOPES, UNRESTRICTED_TABLES
from topics.broker.broker import Broker, Topic
from topics.server.sql.system_tables import TABLES
from topics.sql.statements import Statement

# One key with everything, one with everything but one scope for each scope, and one that is limited to prefixes.
KEYS = ",".join(
    ["full", "tenant::t42:|changes:t42."]
    + [
        f"no-{name}:{'+'.join([other for other in SCOPE_NAMES.values() if other != name])}"
        for name in SCOPE_NAMES.values()
    ]
)
# In every name outside the prefixes of the tenant, so that an answer that reveals one is found.
FOREIGN = "foreign"
RECORDS = {"records": [{"data": 1}]}
REPORT = {"state": "running", "started_ts": 1, "jobs": []}
CHANGES = {"changes": [{"op": "insert", "key": {"id": 1}, "after": {"id": 1}}]}


class Side(NamedTuple):
    """Names of existing things, all inside the prefixes or all outside. `fresh` names nothing yet."""

    topic: str
    queue: str
    router: str
    table: str
    known_table: str
    pipeline: str
    producer: str
    alias: str
    fresh: str
    # Made for each server.
    stage: str = ""
    wid: str = ""
    connection: str = ""


INSIDE = Side("t42:a", "t42:q", "t42:r", "t42.chat", "t42.known", "t42:p", "mine", "t42:alias", "t42:new")
# The producer's name says nothing about prefixes; its owner does.
OUTSIDE = Side(
    f"{FOREIGN}:a", f"{FOREIGN}:q", f"{FOREIGN}:r", f"{FOREIGN}.chat", f"{FOREIGN}.known", f"{FOREIGN}:p", "theirs",
    f"{FOREIGN}:alias", f"{FOREIGN}:new",
)  # fmt: skip
# Names within the prefixes of things that lead outside: routers by their source or dest, a topic by its routers, an alias.
LEAKS = {
    "router from outside": "t42:from-outside",
    "router to outside": "t42:to-outside",
    "topic with a router from outside": "t42:fed",
    "topic with a router to outside": "t42:feeds",
    "alias of a topic outside": "t42:far",
}


class Call(NamedTuple):
    """A request over HTTP; a statement when `sql`, a command when `ws`."""

    method: str = "POST"
    path: str = ""
    body: Any = None
    sql: str = ""
    ws: dict[str, Any] | None = None


class Case(NamedTuple):
    """One name of one operation, statement or command. The tried name comes from the second side."""

    operation: str
    name: str
    scope: int
    # Gets names inside the prefixes, and those to put where the tried name belongs.
    call: Callable[[Side, Side], Call]
    # The response to the tenant for a name outside: an error, or (`hidden`) a success that shows nothing of it.
    outside: str = "forbidden"
    # The operation with a name inside is for keys without prefixes only.
    unrestricted: bool = False


class Request(NamedTuple):
    """A call of an operation with the names of one side."""

    name: str = ""
    query: Mapping[str, Any] = MappingProxyType({})
    body: Any = None


def leak(what: str) -> Side:
    """As OUTSIDE, with one name that looks as if it were inside."""
    kind = what.partition(" ")[0]
    return OUTSIDE._replace(**{kind: LEAKS[what]})


def jobs(side: Side, **more: Any) -> Request:
    return Request(side.queue, body={"node": "w", "seqs": [1], **more})


def group(side: Side, **more: Any) -> Request:
    return Request(body={"topic": side.topic, "group_id": "g", **more})


# One call of every operation that needs a credential, with all its names. The cases are made from this and the declarations.
CALLS: dict[str, Callable[[Side], Request]] = {
    "list_topics": lambda side: Request(query={"prefix": side.topic}),
    "get_topic": lambda side: Request(side.topic),
    "put_topic": lambda side: Request(side.fresh, body={"type": "queue", "dead_letter": side.topic}),
    "delete_topic": lambda side: Request(side.topic),
    "append": lambda side: Request(
        side.fresh, body={**RECORDS, "config": {"type": "queue", "dead_letter": side.topic}}
    ),
    "diff": lambda side: Request(side.topic, body={}),
    "delete_records": lambda side: Request(side.topic, body={"before_seq": 9}),
    "get_ranges": lambda side: Request(side.topic),
    "search_topics": lambda side: Request(query={"q": side.topic}),
    "post_heads": lambda side: Request(body={"topics": {side.topic: {"0": 0}}}),
    "claim": lambda side: Request(side.queue, body={"node": "w"}),
    "ack": jobs,
    "nack": jobs,
    "extend": lambda side: jobs(side, lease_ms=1000),
    "list_jobs": lambda side: Request(side.queue),
    "redrive": lambda side: Request(side.topic, body={"queue": side.queue}),
    "stream_work": lambda side: Request(side.queue, query={"node": "w"}),
    "post_watch": lambda side: Request(body={"topics": {side.topic: {}}}),
    "get_watch": lambda side: Request(side.wid),
    "list_connections": lambda _side: Request(),
    "delete_connection": lambda side: Request(side.connection),
    "get_socket": lambda _side: Request(),
    "consume": lambda side: group(side, start="Earliest", limit=1, timeout_seconds=0),
    "group_ack": lambda side: group(side, partition_id=0, upto_offset=1),
    "group_seek": lambda side: group(side, to="Latest"),
    "group_leave": lambda side: group(side, consumer_id="c"),
    "list_groups": lambda side: Request(query={"topic": side.topic}),
    "run_sql": lambda _side: Request(body={"sql": "SHOW TOPICS"}),
    "list_routers": lambda side: Request(query={"source": side.topic}),
    "put_router": lambda side: Request(side.fresh, body={"source": side.topic, "dest": side.fresh}),
    "get_router": lambda side: Request(side.router),
    "delete_router": lambda side: Request(side.router),
    "post_stage": lambda side: Request(query={"topic": side.topic}, body=RECORDS),
    "delete_stage": lambda side: Request(side.stage),
    "post_commit": lambda side: Request(
        body={
            "stages": [side.stage],
            "writes": [{"topic": side.topic, **RECORDS}],
            "producer": side.producer,
            "batch": 9,
        }
    ),
    "get_producer": lambda side: Request(side.producer),
    "post_renewal": lambda side: Request(side.producer),
    "list_tables": lambda side: Request(query={"prefix": side.table}),
    "get_table": lambda side: Request(side.known_table),
    # A location that is new is for keys without prefixes.
    "put_table": lambda side: Request(
        side.table, body={"kind": "delta", "location": f"s3://{FOREIGN}/x"} if side.topic == OUTSIDE.topic else {}
    ),
    "delete_table": lambda side: Request(side.known_table),
    "post_changes": lambda side: Request(side.table, body=CHANGES),
    "get_routes": lambda side: Request(query={"table": side.table}),
    "get_archive": lambda side: Request(side.topic),
    "put_archive": lambda side: Request(side.topic, body={"uri": f"s3://lake/{side.topic}"}),
    "delete_archive": lambda side: Request(side.topic),
    "post_progress": lambda side: Request(side.topic, body={"partitions": []}),
    "list_archives": lambda _side: Request(),
    "list_pipelines": lambda _side: Request(),
    "get_pipeline": lambda side: Request(side.pipeline),
    "put_pipeline": lambda side: Request(side.fresh, body=REPORT),
    "delete_pipeline": lambda side: Request(side.pipeline),
    "stop_pipeline": lambda side: Request(side.pipeline),
    "get_whoami": lambda _side: Request(),
    "get_overview": lambda _side: Request(),
    "get_metrics": lambda _side: Request(),
}
# One of every SQL statement, with the field of each name in braces.
STATEMENT_CALLS: dict[str, tuple[str, Callable[[Side], dict[str, str]]]] = {
    "CreateTopic": (
        "CREATE TOPIC \"{topic}\" WITH (type = 'queue', alias = '{alias}', dead_letter = '{dead_letter}')",
        lambda side: {"topic": side.fresh, "alias": f"{side.fresh}2", "dead_letter": side.topic},
    ),
    "DropTopic": ('DROP TOPIC "{topic}"', lambda side: {"topic": side.topic}),
    "ClearTopic": ('CLEAR TOPIC "{topic}"', lambda side: {"topic": side.topic}),
    "AddSource": (
        'ALTER TOPIC "{topic}" ADD SOURCE {table} ON DELETE',
        lambda side: {"topic": side.topic, "table": side.table},
    ),
    "DropSource": (
        'ALTER TOPIC "{topic}" DROP SOURCE {table}',
        lambda side: {"topic": side.topic, "table": side.table},
    ),
    "SetRetention": (
        'ALTER TOPIC "{topic}" SET RETENTION WITH (retention_seconds = 9)',
        lambda side: {"topic": side.topic},
    ),
    "ClearRetention": ('ALTER TOPIC "{topic}" CLEAR RETENTION', lambda side: {"topic": side.topic}),
    "SetAlias": (
        "ALTER TOPIC \"{topic}\" SET ALIAS '{alias}'",
        lambda side: {"topic": side.topic, "alias": side.fresh},
    ),
    "SetArchive": (
        "ALTER TOPIC \"{topic}\" SET ARCHIVE WITH (uri = '{uri}')",
        lambda side: {"topic": side.topic, "uri": f"s3://lake/{side.topic}"},
    ),
    "ClearArchive": ('ALTER TOPIC "{topic}" CLEAR ARCHIVE', lambda side: {"topic": side.topic}),
    "SetMaterialized": (
        "ALTER TABLE {table} SET MATERIALIZED WITH (uri = '{uri}')",
        lambda side: {"table": side.known_table, "uri": f"s3://lake/{side.topic}-rows"},
    ),
    "ClearMaterialized": ("ALTER TABLE {table} CLEAR MATERIALIZED", lambda side: {"table": side.known_table}),
    "Consume": ("CONSUME FROM \"{topic}\" GROUP 'g' LIMIT 1", lambda side: {"topic": side.topic}),
    "Ack": ("ACK \"{topic}\" GROUP 'g' UPTO OFFSET 1", lambda side: {"topic": side.topic}),
    "ResetGroup": ("RESET CONSUMER GROUP 'g' ON \"{topic}\" TO LATEST", lambda side: {"topic": side.topic}),
    "DropGroup": ("DROP CONSUMER GROUP 'g' ON \"{topic}\"", lambda side: {"topic": side.topic}),
    "ShowTopics": ("SHOW TOPICS", lambda _side: {}),
    "ShowGroups": ('SHOW CONSUMER GROUPS ON "{topic}"', lambda side: {"topic": side.topic}),
    "DescribeTopic": ('DESCRIBE TOPIC "{topic}"', lambda side: {"topic": side.topic}),
    # Its names are system tables: see TABLE_CASES.
    "Select": ("SELECT * FROM system.topics", lambda _side: {}),
}
# One of every WebSocket command.
MESSAGES: dict[str, Callable[[Side], dict[str, Any]]] = {
    "subscribe": lambda side: {"topic": side.topic, "topics": {side.queue: {}}},
    "unsubscribe": lambda side: {"topic": side.topic},
    "publish": lambda side: {
        "topic": side.fresh, **RECORDS, "config": {"type": "queue", "dead_letter": side.topic},
    },
    "ping": lambda _side: {},
}  # fmt: skip


def scope_of(rule: Rule, body: Any) -> int:
    """The scopes of a key that are required. READ and WRITE include CONSUME."""
    scope = rule.scope if not rule.scope & CONSUME else (rule.scope & ~CONSUME) | READ | WRITE
    for each in rule.field_scopes:
        scope |= each.scope if body is not None and each.field in body else 0
    return scope


def with_field(body: Any, other: Any, field: str) -> Any:
    """The body with one field, as `Name.field` writes it, taken from the other body if it has it."""
    first, _, rest = field.partition("|")[0].partition(".")
    key = first.rstrip("[]{}")
    if rest and not first.endswith("[]"):
        return {**body, key: with_field(body[key], other[key], rest)}
    return {**body, key: other[key]} if key in other else body


def operation_cases(operation: Operation) -> Iterator[Case]:
    make = CALLS[operation.name]

    def request(inside: Side, tried: Side, name: Name | None) -> Call:
        call, other = make(inside), make(tried)
        if name is None:
            # Nothing is refused: lists show what the key may touch, whatever the query names.
            call = other
        elif name.place == "path":
            call = call._replace(name=other.name)
        elif name.place == "query":
            call = call._replace(query={**call.query, name.field: other.query[name.field]})
        else:
            call = call._replace(body=with_field(call.body, other.body, name.field))
        path = operation.path.replace("{" + operation.path_parameter + "}", call.name) if call.name else operation.path
        return Call(operation.method, path + ("?" + urlencode(call.query) if call.query else ""), call.body)

    scope = scope_of(operation.rule, make(INSIDE).body)
    if operation.name == "get_socket":
        yield Case(operation.name, "none", scope, lambda *_: Call(ws={"op": "ping"}), "hidden")
    elif not operation.names:
        hidden = partial(request, name=None)
        # Each statement has its own scope.
        yield Case(operation.name, "none", READ if operation.name == "run_sql" else scope, hidden, "hidden")
    for name in operation.names:
        outside = "unauthorized" if name.kind == "watch_session" else "forbidden"
        yield Case(operation.name, name.field, scope, partial(request, name=name), outside)


def statement_cases(statement: str) -> Iterator[Case]:
    text, fields = STATEMENT_CALLS[statement]
    rule = STATEMENTS[statement].rule

    def call(inside: Side, tried: Side, field: str) -> Call:
        values = {**fields(inside), **({field: fields(tried)[field]} if field else {})}
        return Call("POST", "/api/sql", sql=text.format(**values))

    names = [name.field.rpartition(".")[2] for name in rule.names if name.kind != "system_table"]
    for field in names or [""]:
        outside = "forbidden" if field else "hidden"
        yield Case(f"SQL {statement}", field or "none", scope_of(rule, None), partial(call, field=field), outside)


def command_cases(op: str) -> Iterator[Case]:
    rule = COMMANDS[op].rule
    make = MESSAGES[op]

    def call(inside: Side, tried: Side, field: str) -> Call:
        body = with_field(make(inside), make(tried), field) if field else make(inside)
        return Call(ws={"op": op, **body})

    for field in [name.field for name in rule.names] or [""]:
        outside = "forbidden" if field else "hidden"
        yield Case(f"WS {op}", field or "none", scope_of(rule, make(INSIDE)), partial(call, field=field), outside)


def sql(text: Callable[[Side, Side], str]) -> Callable[[Side, Side], Call]:
    return lambda inside, tried: Call("POST", "/api/sql", sql=text(inside, tried))


def http(method: str, path: Callable[[Side], str], body: Any = None) -> Callable[[Side, Side], Call]:
    return lambda _inside, tried: Call(method, path(tried), body(tried) if callable(body) else body)


def ws(message: Callable[[Side], dict[str, Any]]) -> Callable[[Side, Side], Call]:
    return lambda _inside, tried: Call(ws=message(tried))


TABLE_CASES = [
    Case(
        f"TABLE {table}", "rows", READ | TABLE_SCOPES.get(table, 0),
        sql(lambda *_, table=table: f"SELECT * FROM system.{table}"),  # type: ignore[misc]
        "forbidden" if table in UNRESTRICTED_TABLES else "hidden", table in UNRESTRICTED_TABLES,
    )
    for table in TABLES
]  # fmt: skip
# Other forms of the same operations.
MORE_CASES = [
    Case("list_topics", "listed topics", READ, http("GET", lambda _side: "/v0/topics"), "hidden"),
    Case("get_topic", "topic behind the alias", READ, http("GET", lambda side: f"/v0/topics/{side.alias}")),
    Case("append", "existing topic", WRITE, http("POST", lambda side: f"/v0/topics/{side.topic}", RECORDS)),
    Case("append", "new topic", WRITE, http("POST", lambda side: f"/v0/topics/{side.fresh}", RECORDS)),
    Case("diff", "topic behind the alias", READ, http("POST", lambda side: f"/v0/topics/{side.alias}/diff", {})),
    Case(
        "put_archive", "topic behind the alias", ADMIN,
        http("PUT", lambda side: f"/v0/topics/{side.alias}/archive", lambda side: {"uri": f"s3://lake/{side.topic}"}),
    ),
    Case("get_ranges", "topic behind the alias", READ, http("GET", lambda side: f"/v0/topics/{side.alias}/ranges")),
    Case("search_topics", "listed topics", READ, http("GET", lambda _side: "/v0/topic-search?sort=bytes"), "hidden"),
    Case("list_groups", "listed groups", READ, http("GET", lambda _side: "/api/groups"), "hidden"),
    Case("list_routers", "listed routers", READ, http("GET", lambda _side: "/v0/routers"), "hidden"),
    Case("list_routers", "dest", READ, http("GET", lambda side: f"/v0/routers?dest={side.topic}"), "hidden"),
    Case(
        "post_watch", "topics, lenient", READ,
        http("POST", lambda _side: "/v0/watch?lenient=true", lambda side: {"topics": {side.fresh: {}}}),
    ),
    Case("get_routes", "listed routes", READ, http("GET", lambda _side: "/api/routes"), "hidden"),
    Case("list_tables", "listed tables", READ, http("GET", lambda _side: "/api/tables"), "hidden"),
    Case(
        "put_table", "location inside", ADMIN,
        lambda inside, _: Call("PUT", f"/api/tables/{inside.table}", {"kind": "delta", "location": "s3://lake/x"}),
        unrestricted=True,
    ),
    Case(
        "WS subscribe", "topics, lenient", READ,
        ws(lambda side: {"op": "subscribe", "topics": {side.fresh: {}}, "lenient": True}),
    ),
    Case("WS publish", "existing topic", WRITE, ws(lambda side: {"op": "publish", "topic": side.topic, **RECORDS})),
    Case(
        "WS publish", "config of an existing topic", WRITE | ADMIN,
        ws(lambda side: {"op": "publish", "topic": side.topic, **RECORDS, "config": {"cap_records": 5}}),
    ),
    Case("SQL SetAlias", "no alias", ADMIN, sql(lambda _, side: f'ALTER TOPIC "{side.topic}" CLEAR ALIAS')),
    Case("SQL Consume", "no group", READ | WRITE, sql(lambda _, side: f'CONSUME FROM "{side.topic}" LIMIT 1')),
    Case("SQL ShowGroups", "listed topics", READ, sql(lambda *_: "SHOW CONSUMER GROUPS"), "hidden"),
    Case("SQL DescribeTopic", "alias", READ, sql(lambda _, side: f'DESCRIBE TOPIC "{side.alias}"')),
]  # fmt: skip

GUARDED = [operation for operation in OPERATIONS if operation.scope not in (PROBE, PUBLIC)]
CASES = [
    *[case for operation in GUARDED if operation.name in CALLS for case in operation_cases(operation)],
    *[case for statement in STATEMENTS if statement in STATEMENT_CALLS for case in statement_cases(statement)],
    *[case for op in COMMANDS if op in MESSAGES for case in command_cases(op)],
    *TABLE_CASES,
    *MORE_CASES,
]

# Names inside the prefixes that lead outside: (operation of CASES, which of its names, the name that is tried).
LEAKING = [
    ("get_router", "router", "router from outside"),
    ("get_router", "router", "router to outside"),
    ("delete_router", "router", "router from outside"),
    ("delete_router", "router", "router to outside"),
    ("delete_topic", "topic", "topic with a router from outside"),
    ("delete_topic", "topic", "topic with a router to outside"),
    ("SQL DropTopic", "topic", "topic with a router from outside"),
    ("get_topic", "topic behind the alias", "alias of a topic outside"),
    ("diff", "topic behind the alias", "alias of a topic outside"),
    ("put_archive", "topic behind the alias", "alias of a topic outside"),
    ("SQL DescribeTopic", "alias", "alias of a topic outside"),
]


def test_every_operation_statement_and_command_has_a_call() -> None:
    assert set(CALLS) == {operation.name for operation in GUARDED}
    assert set(STATEMENT_CALLS) == set(STATEMENTS) == {statement.__name__ for statement in get_args(Statement)}
    assert set(MESSAGES) == set(COMMANDS)


# What differs between the calls of both sides and is no name that the key must be allowed to touch: filters of lists, which show what
# the key may see, the producer of a renewal, which renews the stages of the key's own producer only, and the kind of a table.
FREE = {
    "list_topics": {"query.prefix"},
    "search_topics": {"query.q"},
    "list_routers": {"query.source"},
    "list_tables": {"query.prefix"},
    "get_routes": {"query.table"},
    "post_renewal": {"path"},
    "put_table": {"body.kind"},
}
# The scopes of statements and commands, as docs/sql.md and docs/api.md state them.
STATEMENT_SCOPES = {
    **dict.fromkeys(["CreateTopic", "AddSource", "DropSource", "SetRetention", "ClearRetention", "SetAlias"], ADMIN),
    **dict.fromkeys(["SetArchive", "SetMaterialized"], ADMIN),
    **dict.fromkeys(["DropTopic", "ClearTopic", "DropGroup", "ClearArchive", "ClearMaterialized"], DELETE),
    **dict.fromkeys(["Consume", "Ack", "ResetGroup"], READ | CONSUME),
    **dict.fromkeys(["ShowTopics", "ShowGroups", "DescribeTopic", "Select"], READ),
}
COMMAND_SCOPES = {"subscribe": READ, "unsubscribe": ANY_KEY, "publish": WRITE, "ping": ANY_KEY}


def differences(one: Any, other: Any, field: str) -> Iterator[str]:
    """The fields in which two calls differ, written as `Name.field`."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() & other.keys():
            yield from differences(one[key], other[key], f"{field}.{key}" if field else key)
        if one.keys() - other.keys():
            yield f"{field}{{}}"
        else:
            yield from [f"{field}.{key}" for key in other.keys() - one.keys()]
    elif isinstance(one, list) and isinstance(other, list):
        for each, another in zip(one, other, strict=True):
            yield from differences(each, another, f"{field}[]")
    elif one != other:
        yield field


def declared(names: Iterable[Name], kind: str = "") -> set[str]:
    """The names as `differences` finds them."""
    return {
        "path" if each.place == "path" else kind.format(each.place) + each.field.partition("|")[0] for each in names
    }


def test_every_name_in_a_call_is_declared() -> None:
    """The cases are made from the declared names, so a name that is not declared would not be tried."""
    inside = INSIDE._replace(stage="s1", wid="w1", connection="c1")
    outside = OUTSIDE._replace(stage="s2", wid="w2", connection="c2")
    for operation in GUARDED:
        one, other = CALLS[operation.name](inside), CALLS[operation.name](outside)
        found = {*(["path"] if one.name != other.name else [])}
        found |= {*differences(dict(one.query), dict(other.query), "query"), *differences(one.body, other.body, "body")}
        assert found == declared(operation.names, "{}.") | FREE.get(operation.name, set()), operation.name
    for statement, (_, fields) in STATEMENT_CALLS.items():
        names = [name for name in STATEMENTS[statement].rule.names if name.kind != "system_table"]
        last = {field.rpartition(".")[2] for field in declared(names)}
        assert {*differences(fields(inside), fields(outside), "")} == last, statement
    for op, message in MESSAGES.items():
        assert {*differences(message(inside), message(outside), "")} == declared(COMMANDS[op].rule.names), op


def test_statements_and_commands_require_the_documented_scopes() -> None:
    assert {name: statement.rule.scope for name, statement in STATEMENTS.items()} == STATEMENT_SCOPES
    assert {name: each.rule.scope for name, each in COMMANDS.items()} == COMMAND_SCOPES


@in_house(API_KEYS=KEYS)
async def test_every_operation_is_refused_without_its_scopes(house: House) -> None:
    inside, _outside = await furnish(house)
    before = fingerprint(house)
    failed = []
    try:
        for case in CASES:
            for bit, scope in SCOPE_NAMES.items():
                if not case.scope & bit:
                    continue
                status, answer = await perform(house, case.call(inside, inside), f"no-{scope}")
                detail = answer.get("error", answer).get("detail", {})
                if (status, detail.get("scope")) != (403, scope) or fingerprint(house) != before:
                    failed.append((case.operation, case.name, scope, status, answer))
    finally:
        house.service.selects.close()
    assert failed == []


@in_house(API_KEYS=KEYS)
async def test_no_operation_reaches_or_reveals_a_name_outside_the_prefixes(house: House) -> None:
    inside, outside = await furnish(house)
    before = fingerprint(house)
    failed = []
    calls = [(case, case.call(inside, outside)) for case in CASES]
    found = {(case.operation, case.name): case for case in CASES}
    for operation, name, what in LEAKING:
        case = found[operation, name]
        calls.append((case._replace(name=what), case.call(inside, leak(what))))
    try:
        for case, call in calls:
            status, answer = await perform(house, call, "tenant")
            expected = {"forbidden": 403, "unauthorized": 401, "hidden": 200}[case.outside]
            text = json.dumps(answer)
            sent = json.dumps([call.path, call.body, call.sql, call.ws])
            if status != expected or (FOREIGN in text and FOREIGN not in sent) or fingerprint(house) != before:
                failed.append((case.operation, case.name, status, text))
    finally:
        house.service.selects.close()
    assert failed == []


# Those that change nothing share a server.
READING = [case for case in CASES if case.scope in (READ, ANY_KEY) or case.operation.startswith("TABLE ")]
CHANGING = [case for case in CASES if case not in READING]


@in_house(API_KEYS=KEYS)
async def test_every_reading_operation_is_done_with_its_scopes_and_names_inside_the_prefixes(house: House) -> None:
    inside, _outside = await furnish(house)
    try:
        for case in READING:
            await check_allowed(house, case, inside)
    finally:
        house.service.selects.close()


@pytest.mark.parametrize("case", CHANGING, ids=lambda case: f"{case.operation}, {case.name}".replace("/", "|"))
@in_house(API_KEYS=KEYS)
async def test_changing_operation_is_done_with_its_scopes_and_names_inside_the_prefixes(
    house: House, case: Case
) -> None:
    inside, _outside = await furnish(house)
    await check_allowed(house, case, inside)


async def check_allowed(house: House, case: Case, inside: Side) -> None:
    """Whether the case's own key succeeds: the tenant's, or one without prefixes where the tenant's is refused."""
    call = case.call(inside, inside)
    if case.unrestricted:
        assert (await perform(house, call, "tenant"))[0] == 403, case
    status, answer = await perform(house, call, "full" if case.unrestricted else "tenant")
    assert status in (200, 201), (case, answer)


async def furnish(house: House) -> tuple[Side, Side]:
    """Make what both sides name, and what leads from one to the other. With ids that the server makes up."""

    async def make(method: str, path: str, body: Any = None, key: str = "full") -> Any:
        answer = await house.ask(method, path, body, key=key)
        assert answer.status in (200, 201), (path, answer.body)
        return answer.json

    async def run(text: str) -> None:
        await make("POST", "/api/sql", {"sql": text})

    sides = []
    for side, key in ((INSIDE, "tenant"), (OUTSIDE, "full")):
        await make("POST", f"/v0/topics/{side.topic}", RECORDS)
        await run(f"ALTER TOPIC \"{side.topic}\" SET ALIAS '{side.alias}'")
        await run(f'ALTER TOPIC "{side.topic}" ADD SOURCE {side.table} ON INSERT')
        await run(f"ALTER TOPIC \"{side.topic}\" SET ARCHIVE WITH (uri = 's3://lake/{side.topic}')")
        await run(f"CONSUME FROM \"{side.topic}\" GROUP 'g' LIMIT 1")
        await make("PUT", f"/v0/topics/{side.queue}", {"type": "queue"})
        await make("POST", f"/v0/topics/{side.queue}", RECORDS)
        await make("PUT", f"/v0/routers/{side.router}", {"source": side.topic, "dest": f"{side.topic}:copy"})
        await make("PUT", f"/api/tables/{side.known_table}", {})
        await run(f"ALTER TABLE {side.known_table} SET MATERIALIZED WITH (uri = 's3://lake/{side.topic}-rows')")
        await make("PUT", f"/api/pipelines/{side.pipeline}", REPORT)
        await make("POST", "/v0/commits", {"producer": side.producer, "batch": 1}, key=key)
        stage = (await make("POST", f"/v0/stages?topic={side.topic}", RECORDS))["stage_id"]
        wid = (await make("POST", "/v0/watch", {"topics": {side.topic: {}}}, key=key))["wid"]
        listed = (await make("GET", "/v0/connections"))["connections"]
        connection = next(each["id"] for each in listed if each["topics"][0]["topic"] == side.topic)
        sides.append(side._replace(stage=stage, wid=wid, connection=connection))
    for name, source, dest in (
        (LEAKS["router from outside"], OUTSIDE.topic, LEAKS["topic with a router from outside"]),
        (LEAKS["router to outside"], LEAKS["topic with a router to outside"], f"{FOREIGN}:sink"),
    ):
        await make("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
    far = f"{FOREIGN}:far"
    await make("POST", f"/v0/topics/{far}", RECORDS)
    await run(f"ALTER TOPIC \"{far}\" SET ALIAS '{LEAKS['alias of a topic outside']}'")
    # A topic inside that a table outside feeds, and a table inside that feeds a topic outside.
    await run(f'ALTER TOPIC "{INSIDE.queue}" ADD SOURCE {OUTSIDE.table} ON INSERT')
    await run(f'ALTER TOPIC "{far}" ADD SOURCE {INSIDE.table} ON INSERT')
    return sides[0], sides[1]


async def perform(house: House, call: Call, key: str) -> tuple[int, Any]:
    """Status and body. For a command over WebSocket the body is its answer, and the status that of its error code."""
    if call.ws is not None:
        return await command(house, call.ws, key)
    path, body, method = call.path, call.body, call.method
    if call.sql:
        body = {"sql": call.sql}
    if path.startswith("/v0/watch/") or "/work?" in path:
        return await open_stream(house, path, key)
    answer = await house.ask(method, path, body, key=key)
    if answer.status >= 400:
        error_of(answer)
        return answer.status, answer.json
    return answer.status, answer.body.decode() if path == "/v0/metrics" else answer.json


async def open_stream(house: House, path: str, key: str) -> tuple[int, Any]:
    """Only the head of the answer, if it is a stream."""
    reader, writer = await asyncio.open_connection(*house.address)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        if status == 200:
            return status, {}
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return status, json.loads(await reader.readexactly(int(length.partition(b":")[2])))
    finally:
        writer.close()
        await writer.wait_closed()


async def command(house: House, message: dict[str, Any], key: str) -> tuple[int, Any]:
    host, port = house.address
    async with connect(f"ws://{host}:{port}/v0/ws", additional_headers={"Authorization": f"Bearer {key}"}) as socket:
        await socket.send(json.dumps({**message, "request_id": 1}))
        while True:
            answer = json.loads(await socket.recv())
            if answer.get("request_id") == 1:
                break
    return (200 if answer["op"] != "error" else {"forbidden": 403}.get(answer["code"], 400)), answer


def fingerprint(house: House) -> Any:
    """Everything that a refused operation must not change."""
    broker: Broker = house.broker
    state = broker.state
    return (
        sorted([(name, topic_fingerprint(broker, topic)) for name, topic in state.topics.items()]),
        sorted(state.routers.by_name),
        sorted(state.tables.by_name.items()),
        sorted(state.stages.stages),
        sorted([(name, fence.batch) for name, fence in state.stages.fences.items()]),
        [(name, each.stop) for name, each in sorted(house.service.pipelines.by_name.items())],
    )


def topic_fingerprint(broker: Broker, topic: Topic) -> Any:
    heads = [(each.head_seq, each.count) for each in topic.partitions]
    groups = {
        name: {number: at.next_offset for number, at in each.positions.items()} for name, each in topic.groups.items()
    }
    archive = None if topic.archive is None else topic.archive.options
    jobs = broker.queues.stats(topic) if topic.config.type == "queue" else None
    return repr((heads, topic.config, topic.alias, topic.routes, groups, archive, jobs))


@in_house(API_KEYS=KEYS)
async def test_conflicts_of_a_router_name_no_topic_outside_the_prefixes(house: House) -> None:
    await furnish(house)

    async def put(name: str, source: str, dest: str, key: str = "tenant") -> Any:
        return await house.ask("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}, key=key)

    # Its name is inside, what it connects is not.
    changed = await put(LEAKS["router from outside"], "t42:x", "t42:y")
    assert (changed.status, FOREIGN in changed.body.decode()) == (403, False)
    # The dest has a source outside already.
    fan_in = await put("t42:n", "t42:x", LEAKS["topic with a router from outside"])
    assert (fan_in.status, error_of(fan_in)["detail"]["reason"]) == (409, "router_dest_fan_in")
    assert FOREIGN not in fan_in.body.decode()
    # A cycle through topics outside.
    assert (await put(f"{FOREIGN}:back", f"{FOREIGN}:sink", "t42:end", key="full")).status == 201
    cycle = await put("t42:n", "t42:end", LEAKS["topic with a router to outside"])
    assert (cycle.status, error_of(cycle)["code"]) == (409, "router_cycle")
    names = error_of(cycle)["detail"]["cycle"]
    assert names[0] == names[-1]
    assert FOREIGN not in cycle.body.decode()


@in_house(API_KEYS=KEYS)
async def test_config_of_an_append_counts_for_nothing_where_the_topic_exists(house: House) -> None:
    body = {**RECORDS, "config": {"cap_records": 5}}
    assert (await house.ask("POST", "/v0/topics/a", RECORDS, key="no-admin")).status == 201
    assert (await house.ask("POST", "/v0/topics/a", body, key="no-admin")).status == 200
    assert house.broker.state.topics["a"].config.cap_records == 0
    # Without `create` no topic would be created, so there is nothing to be allowed to.
    absent = await house.ask("POST", "/v0/topics/b", {**body, "create": False}, key="no-admin")
    assert absent.status == 404
    assert (await house.ask("POST", "/v0/topics/b", body, key="no-admin")).status == 403
    assert (await house.ask("POST", "/v0/topics/b", body, key="full")).status == 201
    assert house.broker.state.topics["b"].config.cap_records == 5
