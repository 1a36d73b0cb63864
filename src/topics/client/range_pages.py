"""Pages of a bounded range of seqs, verified before anything is made of them.

A reader of a range takes page after page and never requests again what a page has covered. So each page must account for
every seq that it covers: it begins where the page before it ended, and it holds every live record up to its end, which the
server counts (`records_live`) apart from how it collects the records. Deleted records are not live, and lost ones are in
the tombstone.
"""

import json
from typing import Any

from msgspec import Struct

from topics.model.errors import TopicsError


class IncompletePage(TopicsError):
    """A page does not account for the range that it claims to cover. Nothing of it may be used."""

    code = "incomplete_page"


class RangePage(Struct):
    """One page: record batches with a `seq` column, and what the server says about them.

    `from_seq` and `records_live` are None when the server is too old to say.
    """

    batches: list[Any]
    next_from_seq: int
    epoch: int
    tombstone: dict[str, Any] | None
    from_seq: int | None = None
    records_live: int | None = None


def arrow_page(stream: bytes) -> RangePage:
    """The page in an Arrow stream, as `Client.diff_arrow` answers it."""
    import pyarrow as pa

    reader = pa.ipc.open_stream(stream)
    fields = {name.decode(): json.loads(value) for name, value in reader.schema.metadata.items()}
    return RangePage(
        list(reader),
        fields["next_from_seq"],
        fields["epoch"],
        fields["tombstone"],
        fields.get("from_seq"),
        fields.get("records_live"),
    )


def check_page(topic: str, partition: int, from_seq: int, to_seq: int, page: RangePage) -> None:
    """Raise IncompletePage unless `page` answers a read of from_seq + 1 .. to_seq and accounts for what it passes.

    The page must be of the instance of the topic that was asked for. It need not reach `to_seq`.
    """
    problem = _problem(from_seq, to_seq, page)
    if problem is not None:
        raise IncompletePage(
            f'topic "{topic}" partition {partition}: the page for records {from_seq + 1} to {to_seq} claims to cover '
            f"{from_seq + 1} to {page.next_from_seq}, but {problem}. Nothing of it was used."
        )


def _problem(from_seq: int, to_seq: int, page: RangePage) -> str | None:
    if page.from_seq is not None and page.from_seq != from_seq:
        return f"it begins behind {page.from_seq}"
    start = from_seq
    if page.tombstone is not None:
        gap_from, gap_to = page.tombstone["gap_from"], page.tombstone["gap_to"]
        if not from_seq < gap_from <= gap_to:
            return f"reports records {gap_from} to {gap_to} as lost"
        start = gap_to
    if not start <= page.next_from_seq <= max(start, to_seq):
        return "it ends outside the range"
    records = 0
    at = start
    for batch in page.batches:
        if not batch.num_rows:
            continue
        first, last, in_order = _seqs(batch.column("seq"))
        if first <= at or not in_order:
            return f"its records are not in order at {first}"
        records += batch.num_rows
        at = last
    if at > page.next_from_seq:
        return f"it holds record {at}"
    if page.records_live is not None and page.records_live != records:
        return f"it holds {records} of {page.records_live} records there"
    return None


def _seqs(column: Any) -> tuple[int, int, bool]:
    """The first and the last, and whether each is greater than the one before it."""
    import pyarrow.compute as pc

    count = len(column)
    rising = pc.all(pc.greater(column.slice(1), column.slice(0, count - 1))).as_py()
    return column[0].as_py(), column[count - 1].as_py(), rising is not False
