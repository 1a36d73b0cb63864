"""Pages: a run of records with neighbouring seqs, held as columns rather than as objects.

    data   the JSON texts of the records, one behind the other, NUL between them
    metas  likewise, empty where a record has none; None when no record of the page has one
    nodes  JSON strings ("..." with escapes, canonical), likewise
    tags   likewise
    times  one `$ts` for all, or one little-endian int64 per record

NUL separates texts safely because no JSON text holds a NUL byte: inside strings it must be escaped, and the request
decoder refuses it anywhere else. So a batch is stored with one `join` and taken apart with one `split`, both in C
(100 records: 1.3 us and 8 us; rendering them record by record costs 29 us and is left to the first reader).

A page never changes. One append makes one page; small neighbours are folded into larger pages later.
"""

from array import array
from typing import Protocol

from msgspec import Struct

SEPARATOR = b"\0"
# What a record costs beside its texts: counted in `bytes` and against `cap_bytes`.
RECORD_OVERHEAD = 24


class RecordTexts(Protocol):
    """The columns of some records, whether they have seqs yet or not."""

    data: bytes
    metas: bytes | None
    nodes: bytes | None
    tags: bytes | None


class Page(Struct, array_like=True, gc=False):
    """Records first_seq .. first_seq + count - 1."""

    first_seq: int
    count: int
    times: int | bytes
    data: bytes
    metas: bytes | None
    nodes: bytes | None
    tags: bytes | None
    size: int

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    @property
    def first_ts(self) -> int:
        times = self.times
        return times if isinstance(times, int) else int.from_bytes(times[:8], "little", signed=True)

    @property
    def last_ts(self) -> int:
        times = self.times
        return times if isinstance(times, int) else int.from_bytes(times[-8:], "little", signed=True)


class LoadedPage(Page, gc=False):
    """A page read from a segment. Its columns are kept split as well, because its reader needs the texts one by one."""

    datas: list[bytes] = []


def page_datas(page: RecordTexts) -> list[bytes]:
    """The JSON text of each record. Not to be changed by the caller."""
    return page.datas if isinstance(page, LoadedPage) else page.data.split(SEPARATOR)


def page_weight(page: Page) -> int:
    """About how much memory a page takes, for caches with a limit."""
    return 2 * page.size if isinstance(page, LoadedPage) else page.size


def page_size(count: int, data: bytes, metas: bytes | None, nodes: bytes | None, tags: bytes | None) -> int:
    """What these records count as in `bytes`: texts without separators, plus a fixed cost each."""
    size = len(data) + 1 + count * (RECORD_OVERHEAD - 1)
    if metas is not None:
        size += len(metas) + 1 - count
    if nodes is not None:
        size += len(nodes) + 1 - count
    if tags is not None:
        size += len(tags) + 1 - count
    return size


def make_page(
    first_seq: int,
    count: int,
    times: int | bytes,
    data: bytes,
    metas: bytes | None = None,
    nodes: bytes | None = None,
    tags: bytes | None = None,
) -> Page:
    return Page(first_seq, count, times, data, metas, nodes, tags, page_size(count, data, metas, nodes, tags))


def page_times(page: Page) -> "array[int]":
    """The `$ts` of each record."""
    times = page.times
    if isinstance(times, int):
        return array("q", [times]) * page.count
    result = array("q")
    result.frombytes(times)
    return result


def column(text: bytes | None, count: int) -> list[bytes]:
    """One entry per record; empty where the record has no value."""
    return [b""] * count if text is None else text.split(SEPARATOR)


def record_sizes(page: RecordTexts) -> list[int]:
    """What each record counts as in `bytes`; the sum is the size of the page."""
    sizes = list(map(RECORD_OVERHEAD.__add__, map(len, page_datas(page))))
    for texts in (page.metas, page.nodes, page.tags):
        if texts is not None:
            sizes = [size + len(text) for size, text in zip(sizes, texts.split(SEPARATOR), strict=True)]
    return sizes


def fold(pages: list[Page]) -> Page:
    """One page holding the records of all; they must follow each other without a gap."""
    count = size = 0
    plain = True
    times, datas = [], []
    for page in pages:
        count += page.count
        size += page.size
        times.append(_times_bytes(page))
        datas.append(page.data)
        if page.metas is not None or page.nodes is not None or page.tags is not None:
            plain = False
    metas = nodes = tags = None
    if not plain:
        metas = joined_columns([(page.metas, page.count) for page in pages])
        nodes = joined_columns([(page.nodes, page.count) for page in pages])
        tags = joined_columns([(page.tags, page.count) for page in pages])
    return Page(pages[0].first_seq, count, b"".join(times), SEPARATOR.join(datas), metas, nodes, tags, size)


def part(page: Page, start: int, stop: int) -> Page:
    """Records `start` to `stop` (exclusive, counted within the page) as a page of their own."""
    times = page.times
    return make_page(
        page.first_seq + start,
        stop - start,
        times if isinstance(times, int) else times[start * 8 : stop * 8],
        SEPARATOR.join(page.data.split(SEPARATOR)[start:stop]),
        _part(page.metas, start, stop),
        _part(page.nodes, start, stop),
        _part(page.tags, start, stop),
    )


def split(page: Page, max_records: int) -> list[Page]:
    """The same records in pages of at most `max_records`."""
    if page.count <= max_records:
        return [page]
    times = page.times
    # Each column is taken apart once, not once per page.
    datas = page.data.split(SEPARATOR)
    metas, nodes, tags = [
        None if text is None else text.split(SEPARATOR) for text in (page.metas, page.nodes, page.tags)
    ]
    pages = []
    for start in range(0, page.count, max_records):
        stop = min(start + max_records, page.count)
        pages.append(
            make_page(
                page.first_seq + start,
                stop - start,
                times if isinstance(times, int) else times[start * 8 : stop * 8],
                SEPARATOR.join(datas[start:stop]),
                None if metas is None else _joined(metas[start:stop]),
                None if nodes is None else _joined(nodes[start:stop]),
                None if tags is None else _joined(tags[start:stop]),
            )
        )
    return pages


def _joined(texts: list[bytes]) -> bytes | None:
    return SEPARATOR.join(texts) if any(texts) else None


def _times_bytes(page: Page) -> bytes:
    times = page.times
    return times.to_bytes(8, "little", signed=True) * page.count if isinstance(times, int) else times


def joined_columns(columns: list[tuple[bytes | None, int]]) -> bytes | None:
    """Columns of neighbouring runs of records (text and number of records each) as one."""
    if all([text is None for text, _ in columns]):
        return None
    return SEPARATOR.join([SEPARATOR * (count - 1) if text is None else text for text, count in columns])


def _part(text: bytes | None, start: int, stop: int) -> bytes | None:
    if text is None:
        return None
    chosen = text.split(SEPARATOR)[start:stop]
    return SEPARATOR.join(chosen) if any(chosen) else None
