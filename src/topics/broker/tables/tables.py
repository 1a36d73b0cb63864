"""Register and drop tables. Each of these is synced before it is answered.

Changes of a table that is not registered are accepted too. A registered table gives its changes their key columns, and its
routes a schema to be checked against.
"""

from collections.abc import Callable

from topics.broker.core import Core
from topics.model.errors import NotFound, Throttled, TopicsError
from topics.model.facts import TableDropped, TableSet
from topics.model.table import Table

MAX_TABLES = 10_000


def put_table(core: Core, table: Table, reply: Callable[[TopicsError | None], None]) -> None:
    """Make the table known, in place of what was known by its name."""
    tables = core.state.tables.by_name
    if table.name not in tables and len(tables) >= MAX_TABLES:
        raise Throttled(
            f"the server knows {MAX_TABLES} tables already", detail={"limit": "max_tables", "max": MAX_TABLES}
        )
    core.commit_facts([TableSet(table, core.state.versions.tables.next())], reply)


def drop_table(core: Core, name: str, reply: Callable[[TopicsError | None], None]) -> None:
    """Forget the table. Its change topic stays."""
    known_table(core, name)
    core.commit_facts([TableDropped(name, core.state.versions.tables.next())], reply)


def known_table(core: Core, name: str) -> Table:
    table = core.state.tables.by_name.get(name)
    if table is None:
        raise NotFound(f'table "{name}" is not known', code="not_found", detail={"table": name})
    return table
