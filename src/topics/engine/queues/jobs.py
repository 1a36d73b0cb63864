"""Jobs as the API shows them: a record with the lease it is delivered under.

    {"$seq":..,"lease_id":"lease_..","deadline":..,"$ts":..,"$node":..,"$tag":..,"deliveries":..,"data":..,"meta":..}

Claims take neighbouring records of a page one after the other, so the split columns of the last few pages are kept
(splitting a page of 256 records costs 8 us). Fresh neighbours without tag, node and meta are put together from three
pieces each with one join: the text before the token of the lease id depends on the seq alone and is made for a
thousand seqs at once, what follows up to the data is the same for all (16 jobs: 2 us against 6).
"""

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from topics.engine.leases.delivery import Delivery
from topics.engine.partitions.partition import Partition
from topics.model.records.page import Page, column, fold, page_datas, page_times

PAGES_KEPT = 8
# Each is some 80 KB.
THOUSANDS_KEPT = 8
_STARTS = b"\0".join([b'},{"$seq":\1%03d,"lease_id":"lease_\1%03d' % (number, number) for number in range(1000)])


class Columns(Struct):
    """The columns of a page, split: one entry per record. Lists are None when no record of the page has a value."""

    page: Page
    first: int
    stop: int
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
        self._last: Columns | None = None
        self._last_of: Partition | None = None
        self.starts: dict[int, list[bytes]] = {}

    def fresh(self, partition: Partition, delivery: Delivery) -> bytes:
        """Adjacent jobs, all delivered for the first time, with commas between them."""
        first = delivery.seqs[0]
        left = len(delivery.seqs)
        texts: list[bytes] = []
        while left:
            columns = self._last
            # Records never change, so split columns stay valid when the page is folded or dropped.
            if columns is None or self._last_of is not partition or not columns.first <= first < columns.stop:
                pages = partition.pages_from(first, left)
                # Jobs appended one by one are in one page each until these are folded: 16 of them take 14 us as one
                # page, and 50 as 16.
                columns = self._columns(partition, pages[0]) if len(pages) <= 2 else _split_columns(fold(pages))
                self._last, self._last_of = columns, partition
            start = first - columns.first
            count = min(left, columns.stop - first)
            if not columns.plain:
                texts += _full(delivery, columns, range(first, first + count), [1] * count)
            elif count == 1:
                texts.append(
                    b'{"$seq":%d,"lease_id":"lease_%d%b","deadline":%d,"$ts":%d,"deliveries":1,"data":%b}'
                    % (first, first, delivery.token, delivery.deadline, columns.times[start], columns.data[start])
                )
            else:
                texts.append(self._run(delivery, columns, start, count))
            left -= count
            first += count
        return texts[0] if len(texts) == 1 else b",".join(texts)

    def of(self, partition: Partition, delivery: Delivery, deliveries: list[int]) -> list[bytes]:
        """The jobs of the delivery, which are live and whose seqs ascend: one text each for a connection, otherwise one in all."""
        seqs = delivery.seqs
        if delivery.connection_jobs is not None:
            return self.render(partition, delivery, deliveries)
        if isinstance(seqs, range) and deliveries.count(1) == len(seqs):
            return [self.fresh(partition, delivery)]
        return [b",".join(self.render(partition, delivery, deliveries))]

    def render(self, partition: Partition, delivery: Delivery, deliveries: list[int]) -> list[bytes]:
        """The jobs of the delivery, which are live and whose seqs ascend, one text each."""
        seqs = delivery.seqs
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
                return form(delivery, columns, seqs, deliveries)
            texts += form(delivery, columns, seqs[index:stop], deliveries[index:stop])
            index = stop
        return texts

    def _columns(self, partition: Partition, page: Page) -> Columns:
        key = (partition.topic_id, partition.number, page.first_seq)
        kept = self._kept.get(key)
        if kept is not None and kept.page is page:
            return kept
        columns = _split_columns(page)
        self._kept.pop(key, None)
        if len(self._kept) >= PAGES_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = columns
        return columns

    def _run(self, delivery: Delivery, columns: Columns, start: int, count: int) -> bytes:
        first = columns.first + start
        thousand, rest = divmod(first, 1000)
        starts = self._starts_of(thousand)[rest : rest + count]
        while len(starts) < count:
            thousand += 1
            starts += self._starts_of(thousand)[: count - len(starts)]
        # The start of each closes the job before it.
        pieces: list[bytes] = [b"}"] * (3 * count + 1)
        end = 3 * count
        pieces[0:end:3] = starts
        pieces[1:end:3] = _middles(delivery, columns.times[start : start + count])
        pieces[2:end:3] = columns.data[start : start + count]
        pieces[0] = starts[0][2:]
        return b"".join(pieces)

    def _starts_of(self, thousand: int) -> list[bytes]:
        """How jobs with these seqs begin, up to the token of the lease id, each with the end of the job before it."""
        starts = self.starts.get(thousand)
        if starts is None:
            if len(self.starts) >= THOUSANDS_KEPT:
                del self.starts[next(iter(self.starts))]
            if thousand:
                starts = _STARTS.replace(b"\1", b"%d" % thousand).split(b"\0")
            else:
                starts = [b'},{"$seq":%d,"lease_id":"lease_%d' % (seq, seq) for seq in range(1000)]
            self.starts[thousand] = starts
        return starts


def _split_columns(page: Page) -> Columns:
    count = page.count
    return Columns(
        page,
        page.first_seq,
        page.first_seq + count,
        page_times(page),
        page_datas(page),
        None if page.metas is None else column(page.metas, count),
        None if page.nodes is None else column(page.nodes, count),
        None if page.tags is None else column(page.tags, count),
        page.metas is None and page.nodes is None and page.tags is None,
    )


def _middles(delivery: Delivery, times: Sequence[int]) -> list[bytes]:
    """The text between the seq in the lease id and the data of jobs that are delivered for the first time."""
    form = b'%b","deadline":%d,"$ts":%%d,"deliveries":1,"data":' % (delivery.token, delivery.deadline)
    # Times never fall, so equal ends mean equal times.
    if times[0] == times[-1]:
        return [form % times[0]] * len(times)
    return [form % ts for ts in times]


def _plain(delivery: Delivery, columns: Columns, seqs: Sequence[int], deliveries: list[int]) -> list[bytes]:
    form = b'{"$seq":%%d,"lease_id":"lease_%%d%b","deadline":%d,"$ts":%%d,"deliveries":%%d,"data":%%b}' % (
        delivery.token,
        delivery.deadline,
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


def _full(delivery: Delivery, columns: Columns, seqs: Sequence[int], deliveries: list[int]) -> list[bytes]:
    first_seq = columns.page.first_seq
    metas, nodes, tags = columns.metas, columns.nodes, columns.tags
    texts = []
    for seq, count in zip(seqs, deliveries, strict=True):
        position = seq - first_seq
        text = b'{"$seq":%d,"lease_id":"lease_%d%b","deadline":%d,"$ts":%d' % (
            seq,
            seq,
            delivery.token,
            delivery.deadline,
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
