"""Records as the API shows them: `{"$seq":..,"$ts":..,"$node":..,"$tag":..,"data":..,"meta":..}`.

`data` and `meta` are the client's own bytes. The default form (meta yes, tag no, data yes) of a run of records is put
together from constant pieces, numbers taken from a table, and the client's bytes, with one join for all: 0.1 us a
record against 0.3 when each is formatted by itself. Other forms are rendered record by record.

Sealed records are rendered from the columns of their file, without splitting the client's bytes: `record_heads` makes the
text before each of them in bulk.
"""

from collections.abc import Collection
from itertools import accumulate
from typing import Protocol

from msgspec import Struct

from topics.model.records.page import SEPARATOR, Page, column, page_datas, page_times


class View(Struct, frozen=True, gc=False):
    """Which parts of a record a reader wants, and whose records it does not want."""

    tags: bool = False
    metas: bool = True
    data: bool = True
    # JSON strings as pages hold them; a record whose node is among these is left out.
    without_nodes: frozenset[bytes] = frozenset()


USUAL = View()


class Rendered(Struct, frozen=True, gc=False):
    """A run of records in the usual form, comma between them, and what these records have."""

    text: bytes
    count: int
    size: int
    tags: bool
    metas: bool
    nodes: bool


class Parts(Protocol):
    """What some records have beside their data; false when none of them has it."""

    @property
    def tags(self) -> object: ...
    @property
    def metas(self) -> object: ...
    @property
    def nodes(self) -> object: ...


def is_usual(view: View, records: Parts) -> bool:
    """Whether this view of these records is the usual form: what they do not have cannot differ."""
    return (
        view.data
        and not (view.tags and records.tags)
        and (view.metas or not records.metas)
        and not (view.without_nodes and records.nodes)
    )


def render_run(page: Page, start: int, stop: int) -> bytes:
    """Records `start` to `stop` (exclusive, counted within the page) in the usual form, comma between them."""
    count = stop - start
    datas = page_datas(page)
    if count != page.count:
        datas = datas[start:stop]
    heads, tails = number_pieces(page.first_seq + start, count)
    times = page.times
    if isinstance(times, int):
        middles = [b',"$ts":%d' % times] * count
    else:
        moments = page_times(page)[start:stop].tolist()
        text_of = {moment: b',"$ts":%d' % moment for moment in set(moments)}
        middles = [text_of[moment] for moment in moments]
    columns = [heads, tails, middles]
    if page.nodes is not None:
        columns.append([b',"$node":' + node if node else b"" for node in page.nodes.split(SEPARATOR)[start:stop]])
    columns += ([b',"data":'] * count, datas)
    if page.metas is not None:
        columns.append([b',"meta":' + meta if meta else b"" for meta in page.metas.split(SEPARATOR)[start:stop]])
    width = len(columns)
    pieces: list[bytes] = [b""] * (width * count + 1)
    for index, pieces_of in enumerate(columns):
        pieces[index : width * count : width] = pieces_of
    # Each head closes the record before it; the first has none before it, and the last is closed here.
    pieces[0] = pieces[0][2:]
    pieces[-1] = b"}"
    return b"".join(pieces)


class Rendering:
    """A whole page in the usual form, from which any run of its records can be cut."""

    __slots__ = ("_ends", "_page", "text")

    def __init__(self, page: Page) -> None:
        self._page = page
        self._ends: list[int] | None = None
        self.text = render_run(page, 0, page.count)

    def cut(self, start: int, stop: int) -> bytes:
        """Records `start` to `stop`, exclusive."""
        ends = self._ends
        if ends is None:
            ends = self._ends = list(accumulate(_lengths(self._page)))
        return self.text[ends[start - 1] if start else 0 : ends[stop - 1] - 1]


def _lengths(page: Page) -> list[int]:
    """How long each record is in the usual form, with the comma behind it."""
    fixed = len(b'{"$seq":,"$ts":,"data":},') + len(b"%d" % page.first_ts)
    lengths = [fixed + len(data) for data in page_datas(page)]
    digits = len(b"%d" % page.first_seq)
    if digits == len(b"%d" % page.last_seq):
        lengths = [length + digits for length in lengths]
    else:
        lengths = [length + len(b"%d" % seq) for seq, length in enumerate(lengths, page.first_seq)]
    for texts, name in ((page.nodes, b',"$node":'), (page.metas, b',"meta":')):
        if texts is not None:
            extra = [len(name) + len(text) if text else 0 for text in texts.split(SEPARATOR)]
            lengths = [length + more for length, more in zip(lengths, extra, strict=True)]
    return lengths


def record_heads(first_seq: int, count: int, behind: bytes) -> tuple[bytes, int] | None:
    """The beginnings of records with these seqs, each closing the one before it, `behind` at the end of each.

    Return them as one text, and the length of each. None when their lengths differ, which happens once in a log for
    each digit of a seq, or when a seq is short.

    The numbers of a thousand seqs are kept as one text, so 256 heads cost 4 us.
    """
    if first_seq < 1000 or _digits(first_seq) != _digits(first_seq + count - 1):
        return None
    texts: list[bytes] = []
    start = 0
    while start < count:
        thousands, rest = divmod(first_seq + start, 1000)
        run = min(count - start, 1000 - rest)
        before = b'},{"$seq":%d' % thousands
        numbers = _THREE_DIGITS_TEXT[rest * 4 : (rest + run) * 4]
        texts += (before, numbers.replace(SEPARATOR, behind + before)[: -len(before)])
        start += run
    return b"".join(texts), len(b'},{"$seq":') + _digits(first_seq) + len(behind)


def _digits(number: int) -> int:
    return len(b"%d" % number)


_THREE_DIGITS = [b"%03d" % number for number in range(1000)]
_THREE_DIGITS_TEXT = SEPARATOR.join([*_THREE_DIGITS, b""])
_SHORT = [b"%d" % number for number in range(1000)]


def number_pieces(first: int, count: int) -> tuple[list[bytes], list[bytes]]:
    """The beginnings of `count` records from seq `first` on: all digits but three, and the last three."""
    heads: list[bytes] = []
    tails: list[bytes] = []
    while count:
        thousands, rest = divmod(first, 1000)
        run = min(count, 1000 - rest)
        if thousands:
            heads += [b'},{"$seq":%d' % thousands] * run
            tails += _THREE_DIGITS[rest : rest + run]
        else:
            heads += [b'},{"$seq":'] * run
            tails += _SHORT[rest : rest + run]
        first += run
        count -= run
    return heads, tails


def render_records(page: Page, chosen: Collection[int], view: View) -> list[bytes]:
    """The chosen records (positions within the page), one text each, leaving out those of unwanted nodes."""
    first_seq = page.first_seq
    times = page_times(page)
    datas = page_datas(page)
    nodes = column(page.nodes, page.count)
    tags = column(page.tags, page.count) if view.tags else None
    metas = column(page.metas, page.count) if view.metas else None
    unwanted = view.without_nodes
    result = []
    for position in chosen:
        node = nodes[position]
        if node in unwanted:
            continue
        text = b'{"$seq":%d,"$ts":%d' % (first_seq + position, times[position])
        if node:
            text += b',"$node":' + node
        if tags is not None and tags[position]:
            text += b',"$tag":' + tags[position]
        if view.data:
            text += b',"data":' + datas[position]
        if metas is not None and metas[position]:
            text += b',"meta":' + metas[position]
        result.append(text + b"}")
    return result


def wanted(page: Page, positions: Collection[int], view: View) -> list[int]:
    """The positions whose record this view does not leave out."""
    if not view.without_nodes or page.nodes is None:
        return list(positions)
    nodes = page.nodes.split(SEPARATOR)
    unwanted = view.without_nodes
    return [position for position in positions if nodes[position] not in unwanted]
