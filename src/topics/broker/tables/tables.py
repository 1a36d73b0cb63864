"""Register and drop tables. Each of these is synced before it is answered.

Changes of a table that is not registered are accepted too. A registered table gives its changes their key columns, and its
routes a schema to be checked against.
"""

from collections.abc import Callable

from msgspec import structs

from topics.broker.core import Core
from topics.engine.topics.topic import Topic
from topics.model.errors import Conflict, NotFound, Throttled, TopicsError
from topics.model.facts import TableDropped, TableSet
from topics.model.tables.archive import ArchiveOptions
from topics.model.tables.change import CHANGES
from topics.model.tables.location import Location
from topics.model.tables.table import Materialized, Table, check_table

MAX_TABLES = 10_000


def put_table(core: Core, table: Table, reply: Callable[[TopicsError | None], None]) -> None:
    """Make the table known, in place of what was known by its name."""
    tables = core.state.tables.by_name
    if table.name not in tables and len(tables) >= MAX_TABLES:
        raise Throttled(
            f"the server knows {MAX_TABLES} tables already", detail={"limit": "max_tables", "max": MAX_TABLES}
        )

    def decided(_: object = None) -> None:
        # A later change of the table may be in flight.
        if core.tables_in_flight.get(table.name) is table:
            del core.tables_in_flight[table.name]

    fact = TableSet(table, core.state.versions.tables.next())
    core.commit_facts([fact], reply, after_apply=decided, rollback=decided)
    core.tables_in_flight[table.name] = table


def set_materialized(
    core: Core, name: str, materialized: Materialized | None, reply: Callable[[TopicsError | None], None]
) -> None:
    """Materialise the table there, in place of any other location, or nowhere. What is at the old location stays.

    A table whose changes were sent without registering it is registered as one of kind push. Raises NotFound for a table
    that is neither registered nor has changes, and Conflict when the location is in use.
    """
    table = core.state.tables.by_name.get(name)
    if table is None and CHANGES + name in core.state.topics:
        table = Table(name, "push", None, (), {}, core.runtime.now_ms())
    if table is None:
        table = known_table(core, name)
    if table.materialized == materialized:
        reply(None)
        return
    table = check_table(structs.replace(table, materialized=materialized))
    if materialized is not None:
        check_location_free(core, materialized.uri, materialized.location, table=table)
    put_table(core, table, reply)


def check_location_free(
    core: Core, uri: str, location: Location, *, table: Table | None = None, topic: Topic | None = None
) -> None:
    """Raise Conflict when a topic besides `topic` is archived, or a table besides `table` is materialised, at this location.

    Directories inside or around it, and those of its quarantine, count as the same.
    """
    archives = [each.archive for each in core.state.archived.values() if each is not topic]
    tables = core.state.tables.by_name | core.tables_in_flight
    taken = [archive.options.location for archive in archives if archive is not None]
    taken += [
        each.materialized.location
        for each in tables.values()
        if each.materialized is not None and (table is None or each.name != table.name)
    ]
    taken += [ArchiveOptions(each).location for each in core.archives_in_flight]
    if any([location.overlaps(other) for other in taken]):
        raise Conflict(
            "another topic is archived or another table is materialised to this table, or one in the same directory",
            detail={"uri": uri},
        )


def drop_table(core: Core, name: str, reply: Callable[[TopicsError | None], None]) -> None:
    """Forget the table. Its change topic stays."""
    known_table(core, name)
    core.commit_facts([TableDropped(name, core.state.versions.tables.next())], reply)


def known_table(core: Core, name: str) -> Table:
    table = core.state.tables.by_name.get(name)
    if table is None:
        raise NotFound(f'table "{name}" is not known', code="not_found", detail={"table": name})
    return table
