"""Archives: the history of a topic in a Delta table, written by the pipeline and read here without Spark.

A table holds one row for every record, and one for every range of records that was lost before it could be archived. How
far each partition has been archived is kept in the same Delta log, in the commit that brings the rows: whatever is asked of
an archive is answered from that log alone, and rows and positions cannot disagree. `ledger` is that log, `rows` says what
a row is, `files` writes them, `history` reads them back.

Needs `deltalake`, which comes with `topics[spark]`.
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
