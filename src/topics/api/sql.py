"""SQL: statements about topics, groups and routes, and SELECT over the system tables."""

from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from topics.api.common import Response, Tombstone, about
from topics.api.groups import CONSUME_GROUP
from topics.api.operation import ADMIN, ANY_KEY, DELETE, READ, WRITE_ERRORS, Command, Example, Name, Operation, Rule


class SqlBody(Struct):
    """One statement."""

    sql: Annotated[str, about("The statement. Parameters are written as `?`.")]
    params: Annotated[
        list[str | int | float | bool | None] | None, about("Values of the parameters, in order; bound, never pasted.")
    ] = None


class SqlResult(Response):
    """What a statement answers. CONSUME also has the fields of a poll."""

    columns: list[str]
    rows: list[list[Any]]
    message: str | None = None
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

_TOPIC = Name("body", "topic")
_ALIASED = Name("body", "topic", "aliased_topic")
_TABLE = Name("body", "table", "table")

# What each statement requires, by its class in `topics.sql.statements`, and the operation that does the same over HTTP.
STATEMENTS = {
    command.name: command
    for command in (
        Command(
            "CreateTopic",
            Rule(ADMIN, (_TOPIC, Name("body", "options.alias"), Name("body", "options.dead_letter"))),
            "put_topic",
        ),
        Command("DropTopic", Rule(DELETE, (_TOPIC,)), "delete_topic"),
        Command("ClearTopic", Rule(DELETE, (_TOPIC,)), "delete_records"),
        Command("AddSource", Rule(ADMIN, (_TOPIC, _TABLE))),
        Command("DropSource", Rule(ADMIN, (_TOPIC, _TABLE))),
        Command("SetRetention", Rule(ADMIN, (_TOPIC,)), "put_topic"),
        Command("ClearRetention", Rule(ADMIN, (_TOPIC,)), "put_topic"),
        Command("SetAlias", Rule(ADMIN, (_TOPIC, Name("body", "alias")))),
        Command("SetArchive", Rule(ADMIN, (_ALIASED, Name("body", "options.uri", "archive_location"))), "put_archive"),
        Command("ClearArchive", Rule(DELETE, (_ALIASED,)), "delete_archive"),
        Command("Consume", Rule(CONSUME_GROUP, (_ALIASED,)), "consume"),
        Command("Ack", Rule(CONSUME_GROUP, (_ALIASED,)), "group_ack"),
        Command("ResetGroup", Rule(CONSUME_GROUP, (_ALIASED,)), "group_seek"),
        Command("DropGroup", Rule(DELETE, (_ALIASED,))),
        # The rows of these are limited to what the caller may touch.
        Command("ShowTopics", Rule(READ), "list_topics"),
        Command("ShowGroups", Rule(READ, (_ALIASED,))),
        Command("DescribeTopic", Rule(READ, (_ALIASED,)), "get_topic"),
        Command("Select", Rule(READ, (Name("body", "tables[]", "system_table"),))),
    )
}
# System tables that require more than READ. Those in UNRESTRICTED_TABLES are for keys without prefixes.
TABLE_SCOPES = {"settings": READ | ADMIN}
UNRESTRICTED_TABLES = frozenset({"settings"})
