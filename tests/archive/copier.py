"""Archiving by hand: what the job has Spark do, one piece at a time."""

from typing import Any

import pyarrow as pa

from topics.archive.ledger import Ledger, quarantine_uri
from topics.archive.piece import Committed, Piece, Work, commit_pieces, copy_piece
from topics.archive.place import Place
from topics.client import Client


class Copier:
    def __init__(self, client: Client, archive: Ledger, topic: str) -> None:
        self.client = client
        self.archive = archive
        self.topic = topic

    @property
    def epoch(self) -> int:
        """The epoch of the present topic; no two topics of a server have the same."""
        return self.client.info(self.topic).epoch

    def copy(self, first: int, last: int, *, partition: int = 0, **more: Any) -> Piece:
        work = Work(self.topic, partition, self.epoch, first, last, **more)
        return copy_piece(self.client, work, Place(self.archive.uri), Place(quarantine_uri(self.archive.uri)))

    def commit(self, *pieces: Piece) -> Committed:
        return commit_pieces(self.archive, self.topic, list(pieces))

    def up_to(self, last: int, *, partition: int = 0) -> Committed:
        """Continue at the table's position."""
        first = self.archive.position(self.topic).next_seq(self.epoch, partition)
        return self.commit(self.copy(first, last, partition=partition))


def rows_of(uri: str) -> list[dict[str, Any]]:
    """All rows of a table, as any reader of Delta sees them, in order."""
    from deltalake import DeltaTable

    order = [(name, "ascending") for name in ("topic", "epoch", "partition", "seq")]
    return list(pa.table(DeltaTable(uri).to_pyarrow_table()).sort_by(order).to_pylist())
