"""Statements as frozen data. Parameters are bound, expressions are in normal form."""

from msgspec import Struct

from topics.model.tables.route import Op, PayloadMode, RouteStart

Value = str | int | float | bool | None
Options = tuple[tuple[str, Value], ...]


class Earliest(Struct, frozen=True):
    pass


class Latest(Struct, frozen=True):
    pass


class AtOffset(Struct, frozen=True):
    offset: int


class AtTime(Struct, frozen=True):
    """Milliseconds, or a text that says a time."""

    time: int | str


Start = Earliest | Latest | AtOffset
Target = Earliest | Latest | AtOffset | AtTime


class CreateTopic(Struct, frozen=True):
    topic: str
    if_not_exists: bool = False
    partitions: int | None = None
    options: Options = ()


class DropTopic(Struct, frozen=True):
    topic: str
    if_exists: bool = False


class ClearTopic(Struct, frozen=True):
    topic: str


class AddSource(Struct, frozen=True):
    topic: str
    table: str
    op: Op
    payload_mode: PayloadMode = "Key"
    filter_expr: str | None = None
    partition_key_expr: str | None = None
    key_columns: tuple[str, ...] = ()
    start: RouteStart = "Latest"


class DropSource(Struct, frozen=True):
    """All sources of the topic that have the given values."""

    topic: str
    table: str
    op: Op | None = None
    filter_expr: str | None = None


class SetRetention(Struct, frozen=True):
    topic: str
    options: Options


class ClearRetention(Struct, frozen=True):
    topic: str


class SetArchive(Struct, frozen=True):
    topic: str
    options: Options


class ClearArchive(Struct, frozen=True):
    topic: str


class SetMaterialized(Struct, frozen=True):
    table: str
    options: Options


class ClearMaterialized(Struct, frozen=True):
    table: str


class SetAlias(Struct, frozen=True):
    topic: str
    alias: str | None


class Consume(Struct, frozen=True):
    """Without a group it is a read that moves no position."""

    topic: str
    group: str | None = None
    partition: int = 0
    start: Start | None = None
    limit: int | None = None


class Ack(Struct, frozen=True):
    topic: str
    group: str
    offset: int
    partition: int = 0


class ResetGroup(Struct, frozen=True):
    topic: str
    group: str
    target: Target
    partition: int | None = None
    dry_run: bool = False


class DropGroup(Struct, frozen=True):
    topic: str
    group: str
    if_exists: bool = False


class ShowTopics(Struct, frozen=True):
    pass


class ShowGroups(Struct, frozen=True):
    topic: str | None = None


class DescribeTopic(Struct, frozen=True):
    topic: str


class Select(Struct, frozen=True):
    """`text` with the schema of the named tables replaced by TABLES_SCHEMA; `params` are bound when it runs."""

    text: str
    tables: tuple[str, ...]
    params: tuple[Value, ...] = ()


Statement = (
    CreateTopic
    | DropTopic
    | ClearTopic
    | AddSource
    | DropSource
    | SetRetention
    | ClearRetention
    | SetArchive
    | ClearArchive
    | SetMaterialized
    | ClearMaterialized
    | SetAlias
    | Consume
    | Ack
    | ResetGroup
    | DropGroup
    | ShowTopics
    | ShowGroups
    | DescribeTopic
    | Select
)

# The schema of the tables while a SELECT runs: the SQL engine reserves the name `system`.
TABLES_SCHEMA = "main"
