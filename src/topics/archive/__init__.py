"""Archives: the history of a topic in a Delta table, written by the pipeline and read here without Spark.

A table holds one row for every record, and one for every range of records that was lost before it could be archived. The
commit that adds the rows also stores, in the same Delta log, how far each partition is archived, so rows and positions
cannot disagree. `ledger` reads and writes that log, `rows` defines a row, `files` writes rows, `history` reads them back.

Needs `deltalake`, which comes with the extra `spark`.
"""

from topics.archive.history import History, HistoryGone, read_records
from topics.archive.ledger import ArchiveError, Ledger, NoTable, Overtaken, Position, open_archive, open_quarantine

__all__ = [
    "ArchiveError",
    "History",
    "HistoryGone",
    "Ledger",
    "NoTable",
    "Overtaken",
    "Position",
    "open_archive",
    "open_quarantine",
    "read_records",
]
