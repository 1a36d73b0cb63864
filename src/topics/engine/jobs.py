"""Jobs as the API shows them: a record with the lease it is delivered under.

    {"$seq":..,"lease_id":"lease_..","deadline":..,"$ts":..,"$node":..,"$tag":..,"deliveries":..,"data":..,"meta":..}

Claims take neighbouring records of a page one after the other, so the columns of the last few pages are kept apart
(taking a page of 256 records apart costs 8 us, rendering 16 jobs of it 6).
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from topics.engine.lease import Grant
from topics.engine.partition import Partition
from topics.model.page import SEPARATOR, Page, column, page_times

PAGES_KEPT = 8


class Columns(Struct):
    """A page taken apart, one entry per record. Lists are None when no record of the page has a value."""

    page: Page
    times: Sequence[int]
    data: list[bytes]
    metas: list[bytes] | None
    nodes: list[bytes] | None
    tags: list[bytes] | None
    plain: bool


class JobTexts:
    """Renders jobs of any queue."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], Columns] = {}

    def render(self, partition: Partition, grant: Grant, deliveries: list[int]) -> list[bytes]:
        """The jobs of the grant, which are live and whose seqs ascend, one text each."""
        seqs = grant.seqs
        texts: list[bytes] = []
        count = len(seqs)
        index = 0
        while index < count:
            page = partition.page_at(seqs[index])
            columns = self._columns(partition, page)
            # The part of the list that lies in this page.
            behind = page.first_seq + page.count
            stop = count if seqs[-1] < behind else bisect_left(seqs, behind, index)
            form = _plain if columns.plain else _full
            if stop - index == count:
                return form(grant, columns, seqs, deliveries)
            texts += form(grant, columns, seqs[index:stop], deliveries[index:stop])
            index = stop
        return texts

    def _columns(self, partition: Partition, page: Page) -> Columns:
        key = (partition.topic_id, partition.number, page.first_seq)
        kept = self._kept.get(key)
        if kept is not None and kept.page is page:
            return kept
        count = page.count
        columns = Columns(
            page,
            page_times(page),
            [page.data] if count == 1 else page.data.split(SEPARATOR),
            None if page.metas is None else column(page.metas, count),
            None if page.nodes is None else column(page.nodes, count),
            None if page.tags is None else column(page.tags, count),
            page.metas is None and page.nodes is None and page.tags is None,
        )
        self._kept.pop(key, None)
        if len(self._kept) >= PAGES_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = columns
        return columns


def _plain(grant: Grant, columns: Columns, seqs: list[int], deliveries: list[int]) -> list[bytes]:
    form = b'{"$seq":%%d,"lease_id":"lease_%b%%x","deadline":%d,"$ts":%%d,"deliveries":%%d,"data":%%b}' % (
        grant.token,
        grant.deadline,
    )
    first_seq = columns.page.first_seq
    start, stop = seqs[0] - first_seq, seqs[-1] - first_seq + 1
    if stop - start == len(seqs):
        rows = zip(seqs, seqs, columns.times[start:stop], deliveries, columns.data[start:stop], strict=True)
        return [form % row for row in rows]
    times, data = columns.times, columns.data
    return [
        form % (seq, seq, times[seq - first_seq], count, data[seq - first_seq])
        for seq, count in zip(seqs, deliveries, strict=True)
    ]


def _full(grant: Grant, columns: Columns, seqs: list[int], deliveries: list[int]) -> list[bytes]:
    first_seq = columns.page.first_seq
    metas, nodes, tags = columns.metas, columns.nodes, columns.tags
    texts = []
    for seq, count in zip(seqs, deliveries, strict=True):
        position = seq - first_seq
        text = b'{"$seq":%d,"lease_id":"lease_%b%x","deadline":%d,"$ts":%d' % (
            seq,
            grant.token,
            seq,
            grant.deadline,
            columns.times[position],
        )
        if nodes is not None and nodes[position]:
            text += b',"$node":' + nodes[position]
        if tags is not None and tags[position]:
            text += b',"$tag":' + tags[position]
        text += b',"deliveries":%d,"data":' % count + columns.data[position]
        if metas is not None and metas[position]:
            text += b',"meta":' + metas[position]
        texts.append(text + b"}")
    return texts
