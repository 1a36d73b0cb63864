"""SQL: statements about topics, groups and routes, and SELECT over the system tables."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from topics.api import groups, topics
from topics.api.common import Response, Tombstone, about
from topics.api.operation import (
    ADMIN,
    ANY_KEY,
    DELETE,
    READ,
    WRITE_ERRORS,
    Command,
    Example,
    Name,
    Operation,
    Rule,
    command_of,
)
from topics.api.tables import archives


class SqlBody(Struct):
    """One statement."""

    sql: Annotated[str, about("The statement. Parameters are written as `?`.")]
    params: Annotated[
        list[str | int | float | bool | None] | None, about("Values of the parameters, in order; bound, never pasted.")
    ] = None


class SqlResult(Response):
    """What a statement answers. CONSUME also has the fields of a poll."""

    columns: Annotated[list[str], about("Names of the columns.")]
    rows: Annotated[list[list[Any]], about("The rows, each with one value for every column.")]
    message: Annotated[str | None, about("What was done, for people.")] = None
    next_offset: Annotated[int, about("CONSUME: offset of the next message.")] | UnsetType = UNSET
    has_more: Annotated[bool, about("CONSUME: whether there are more messages.")] | UnsetType = UNSET
    tombstone: Annotated[Tombstone | None, about("CONSUME: set when messages were lost.")] | UnsetType = UNSET
    partitions: Annotated[Any, about("RESET CONSUMER GROUP: the positions.")] | UnsetType = UNSET


OPERATIONS = (
    Operation(
        name="run_sql", noun="sql", method="POST", path="/api/sql",
        summary="Run one SQL statement.",
        description="A statement requires the scope of the operation that it corresponds to, and the key must be allowed to touch "
        "every name in it. See docs/sql.md for the statements and the system tables.",
        scope=ANY_KEY, body=SqlBody, response=SqlResult,
        errors=("topic_not_found", "group_not_found", "not_found", "topic_exists_incompatible", "topic_not_empty",
                "partition_owned", "session_expired", "corrupt_storage", "not_a_queue", "record_too_large", "batch_too_large",
                *WRITE_ERRORS),
        safe_to_retry=False,
        example=Example("/api/sql", {"sql": "SELECT topic_id, bytes FROM system.topics WHERE topic_id = ?", "params": ["orders"]}, {
            "columns": ["topic_id", "bytes"], "rows": [["orders", 41]], "message": "1 row",
            "performance": {"server_total_ms": 3.1}}),
    ),
)  # fmt: skip

_BY_NAME = {operation.name: operation for module in (archives, groups, topics) for operation in module.OPERATIONS}
_TOPIC = Name("body", "topic", "topic", "topic")
_ALIASED = Name("body", "topic", "aliased_topic")
_TABLE = Name("body", "table", "table")


def _as(operation: str, name: str, fields: dict[str, str | None] | None = None, more: tuple[Name, ...] = ()) -> Command:
    return command_of(name, _BY_NAME[operation], fields, more=more)


_OPTIONS: dict[str, str | None] = {"dead_letter": "options.dead_letter", "uri": "options.uri"}
_GROUP: dict[str, str | None] = {"topic|topic_id": "topic"}
# What each statement requires, by its class in `topics.sql.statements`. A statement that does what an operation does requires the
# same as the operation; the others have no operation, and are declared here.
STATEMENTS = {
    command.name: command
    for command in (
        _as("put_topic", "CreateTopic", _OPTIONS, (Name("body", "options.alias"),)),
        _as("delete_topic", "DropTopic"),
        _as("delete_records", "ClearTopic"),
        Command("AddSource", Rule(ADMIN, (_TOPIC, _TABLE))),
        Command("DropSource", Rule(ADMIN, (_TOPIC, _TABLE))),
        _as("put_topic", "SetRetention", {"dead_letter": None}),
        _as("put_topic", "ClearRetention", {"dead_letter": None}),
        Command("SetAlias", Rule(ADMIN, (_TOPIC, Name("body", "alias")))),
        _as("put_archive", "SetArchive", _OPTIONS),
        _as("delete_archive", "ClearArchive"),
        Command("SetMaterialized", Rule(ADMIN, (_TABLE, Name("body", "options.uri", "archive_location")))),
        Command("ClearMaterialized", Rule(DELETE, (_TABLE,))),
        _as("consume", "Consume", _GROUP),
        _as("group_ack", "Ack", _GROUP),
        _as("group_seek", "ResetGroup", _GROUP),
        Command("DropGroup", Rule(DELETE, (_ALIASED,))),
        # The rows of these are limited to what the caller may touch.
        _as("list_topics", "ShowTopics"),
        _as("list_groups", "ShowGroups"),
        _as("get_topic", "DescribeTopic"),
        Command("Select", Rule(READ, (Name("body", "tables[]", "system_table"),))),
    )
}
# System tables that require more than READ. Those in UNRESTRICTED_TABLES are for keys without prefixes.
TABLE_SCOPES = {"settings": READ | ADMIN}
UNRESTRICTED_TABLES = frozenset({"settings"})
