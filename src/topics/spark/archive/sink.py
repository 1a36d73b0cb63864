"""The sink of the archive: tasks copy ranges of seqs into Parquet files, the driver commits the files to the table.

A task returns what it wrote in its commit message; of several attempts at a task, Spark passes on the message of one. The
commit is refused unless the table is where the batch begins, so a batch that Spark runs again is in the table once.
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamReader, WriterCommitMessage
from pyspark.sql.types import StructType

from topics.archive.ledger import open_archive, quarantine_uri
from topics.archive.piece import Piece, Work, commit_pieces, copy_piece
from topics.archive.place import Place
from topics.spark.archive.source import SCHEMA, ArchivePlan, ArchiveReader

FORMAT = "topics-archive"


class ArchiveDataSource(DataSource):
    """`format("topics-archive")`, for the archive job: its source gives work, its sink does it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return ArchiveReader(self._plan())

    def writer(self, schema: StructType, overwrite: bool) -> "ArchiveWriter":
        return ArchiveWriter(self._plan(), int(self.options["batch"]))

    def _plan(self) -> ArchivePlan:
        return msgspec.json.decode(self.options["plan"], type=ArchivePlan)


@dataclass
class WrittenPieces(WriterCommitMessage):
    """What one task wrote: pieces as JSON."""

    pieces: list[bytes]


class ArchiveWriter(DataSourceArrowWriter):
    def __init__(self, plan: ArchivePlan, batch: int) -> None:
        self._plan = plan
        self._batch = batch

    def write(self, iterator: Iterator[Any]) -> WrittenPieces:
        """Copy the ranges into files that the Delta log does not name yet."""
        uri = self._plan.uri
        pieces = []
        with self._plan.client() as client:
            for rows in iterator:
                for text in rows.column("work").to_pylist():
                    work = msgspec.json.decode(text, type=Work)
                    pieces.append(copy_piece(client, work, Place(uri), Place(quarantine_uri(uri))))
        return WrittenPieces([msgspec.json.encode(piece) for piece in pieces])

    def commit(self, messages: list[Any]) -> None:
        """Raises Overtaken when another driver has archived these records; the table is unchanged then."""
        written = [piece for each in messages if each is not None for piece in each.pieces]
        pieces = [msgspec.json.decode(piece, type=Piece) for piece in written]
        if pieces:
            commit_pieces(open_archive(self._plan.uri), self._plan.topic, pieces, {"topics.batch": str(self._batch)})

    def abort(self, messages: list[Any]) -> None:
        """Leave the files: Spark also aborts after a commit that Delta has accepted, and then they are in the table."""
