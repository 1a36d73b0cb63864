"""The process that runs SELECTs: reads requests and answers them one after the other. See `select`.

Started as `python -m topics.sql.worker MEGABYTES`. Each query gets an engine of its own in memory, holding the tables it
names and nothing else.
"""

import os
import resource
import sys
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

import duckdb
import msgspec

from topics.sql.select import MAX_REPLY_BYTES, Reply, Request
from topics.sql.statements import TABLES_SCHEMA

_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # The default is `.tmp` in the working directory, and files there may be read in spite of the other settings.
    "temp_directory": "",
    "threads": "1",
}
MAX_ERROR_CHARS = 500

_decode = msgspec.msgpack.Decoder(Request).decode
_encode = msgspec.msgpack.Encoder().encode


def main() -> None:
    max_bytes = int(sys.argv[1]) << 20
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    # Nothing may be written to files. The limit does not apply to pipes.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The settings of the engine contain both, and a query can read them.
    os.chdir("/")
    os.environ["HOME"] = "/"
    _send(b"")
    stdin = sys.stdin.buffer
    while len(head := stdin.read(4)) == 4:
        body = stdin.read(int.from_bytes(head, "little"))
        reply = _encode(answer(_decode(body)))
        if len(reply) > MAX_REPLY_BYTES:
            reply = _encode(Reply(error=f"the answer has more than {MAX_REPLY_BYTES} bytes; ask for less"))
        _send(reply)


def answer(request: Request) -> Reply:
    """The rows, or what is wrong with the query."""
    try:
        with duckdb.connect(":memory:", config={**_CONFIG, "memory_limit": f"{request.memory_mb}MB"}) as engine:
            engine.execute("SET python_enable_replacements = false")
            _load(engine, request)
            engine.execute("SET lock_configuration = true")
            return _run(engine, request)
    except duckdb.Error as error:
        return Reply(error=_public_message(str(error)))
    except (MemoryError, RecursionError):
        return Reply(error="the query needs more memory than it may use")


def _load(engine: Any, request: Request) -> None:
    for table in request.tables:
        columns = ", ".join([f'"{column.name}" {column.type}' for column in table.columns])
        engine.execute(f'CREATE TABLE {TABLES_SCHEMA}."{table.name}" ({columns})')
        if table.rows:
            # One list per column: a hundred thousand rows take 0.4 s, one by one half a minute.
            lists = ", ".join([f"unnest(?::{column.type}[])" for column in table.columns])
            values = [list(column) for column in zip(*table.rows, strict=True)]
            engine.execute(f'INSERT INTO {TABLES_SCHEMA}."{table.name}" SELECT {lists}', values)


def _run(engine: Any, request: Request) -> Reply:
    statements = engine.extract_statements(request.text)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        return Reply(error="only one SELECT at a time can be run here")
    result = engine.execute(statements[0], request.params)
    columns = [column[0] for column in result.description]
    rows = result.fetchmany(request.max_rows + 1)
    if len(rows) > request.max_rows:
        return Reply(error=f"the answer has more than {request.max_rows} rows; add a LIMIT")
    return Reply(columns, [[_plain(value) for value in row] for row in rows])


def _plain(value: object) -> object:
    """The value as a type that JSON has."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value) if value.is_finite() else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return str(value)


def _public_message(message: str) -> str:
    """The message of the engine with the names of the query, without advice about settings that a caller cannot change."""
    message = message.partition("\n\nPossible solutions")[0].partition("\nDatabase is launched")[0]
    return message.replace(f"{TABLES_SCHEMA}.", "system.").strip()[:MAX_ERROR_CHARS]


def _send(body: bytes) -> None:
    sys.stdout.buffer.write(len(body).to_bytes(4, "little") + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
