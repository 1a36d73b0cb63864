"""The registered tables of a server, by name."""

import msgspec

from topics.model.facts import TableDropped, TableSet
from topics.model.tables.table import Table


class Tables:
    def __init__(self) -> None:
        self.by_name: dict[str, Table] = {}

    def put(self, fact: TableSet) -> None:
        self.by_name[fact.table.name] = fact.table

    def drop(self, fact: TableDropped) -> None:
        self.by_name.pop(fact.name, None)

    def capture(self) -> bytes:
        return msgspec.msgpack.encode(list(self.by_name.values()))

    def restore(self, body: bytes) -> None:
        for table in _decode_tables(body):
            self.by_name[table.name] = table


_decode_tables = msgspec.msgpack.Decoder(list[Table]).decode
