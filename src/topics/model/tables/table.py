"""Tables: where the changes of a table come from, and what is known about its columns.

Every reader may see the location of a table, so it contains no secret: passwords are in the environment of the process that
connects (`PGPASSFILE`, `PGPASSWORD`, the storage keys of the object store).
"""

import re
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from topics.model.errors import InvalidRequest
from topics.model.tables.location import Location, parse_location

Kind = Literal["push", "delta", "postgres"]
MaterializeMode = Literal["scd1", "scd2"]
MAX_COLUMNS = 2000
MAX_KEY_COLUMNS = 64
MAX_COLUMN_CHARS = 255
MAX_LOCATION_CHARS = 2000

_SECRETS = {"password", "sslpassword", "passwd", "pwd", "secret", "token", "sig", "access_key", "secret_key"}
_SETTING = re.compile(r"(\w+)\s*=")


class Materialized(Struct, frozen=True):
    """The Delta table that the pipeline keeps equal to a table (`scd1`), or to the history of its rows (`scd2`)."""

    uri: str
    mode: MaterializeMode = "scd1"

    @property
    def location(self) -> Location:
        """The same for all spellings of one table. Raises ValueError."""
        return parse_location(self.uri)


class Table(Struct, frozen=True):
    """A table by its name. `columns` is its schema if it was given: names with their types, or none."""

    name: str
    kind: Kind
    # The URI of a Delta table or the DSN of a PostgreSQL; nothing for one whose changes are pushed.
    location: str | None
    key_columns: tuple[str, ...]
    columns: dict[str, str]
    created_ts: int
    materialized: Materialized | None = None

    def unknown(self, columns: list[str]) -> str | None:
        """The first of these that the table does not have; None when all are there or its schema is not known."""
        known = {name.casefold() for name in self.columns}
        return next((name for name in columns if known and name.casefold() not in known), None)


def check_table(table: Table) -> Table:
    """Raises InvalidRequest unless everything about the table goes together."""
    if (table.location is None) != (table.kind == "push"):
        what = {"push": "has no location", "delta": "needs the URI of the table", "postgres": "needs a DSN"}
        raise InvalidRequest(f"a table of kind {table.kind} {what[table.kind]}")
    if table.location is not None:
        check_location(table.location)
    if table.materialized is not None:
        _check_materialized(table.materialized, table.location if table.kind == "delta" else None)
    for name in (*table.key_columns, *table.columns):
        if not name or len(name) > MAX_COLUMN_CHARS or not name.isprintable():
            raise InvalidRequest(f"a column has a name of 1 to {MAX_COLUMN_CHARS} printable characters")
    if len(table.key_columns) > MAX_KEY_COLUMNS or len(table.columns) > MAX_COLUMNS:
        raise InvalidRequest(f"a table has at most {MAX_KEY_COLUMNS} key columns and {MAX_COLUMNS} columns")
    if len(set(table.key_columns)) != len(table.key_columns):
        raise InvalidRequest("key_columns names a column twice")
    missing = table.unknown(list(table.key_columns))
    if missing is not None:
        raise InvalidRequest(f"the key column {missing!r} is not among the columns", detail={"column": missing})
    return table


def _check_materialized(materialized: Materialized, source: str | None) -> None:
    check_location(materialized.uri)
    try:
        location = materialized.location
        is_source = source is not None and location.is_same(parse_location(source))
    except ValueError:
        raise InvalidRequest("uri is a path or a URI in UTF-8", detail={"option": "uri"}) from None
    if is_source:
        raise InvalidRequest("uri is the table that the changes come from", detail={"option": "uri"})


def check_location(location: str) -> None:
    """Raises InvalidRequest, without repeating it, for what is no location or holds a secret."""
    if not 0 < len(location) <= MAX_LOCATION_CHARS or not location.isprintable():
        raise InvalidRequest(f"a URI or DSN has 1 to {MAX_LOCATION_CHARS} printable characters")
    try:
        parts = urlsplit(location)
        secret = parts.password is not None
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    except ValueError:
        raise InvalidRequest("this is not a URI") from None
    if "://" not in location:
        names = _SETTING.findall(location)
    if secret or any([name.lower() in _SECRETS for name in names]):
        raise InvalidRequest(
            "a location holds no password: keep it where the table is reached from (PGPASSFILE or PGPASSWORD, storage keys)"
        )
