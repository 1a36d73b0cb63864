"""Copies: records of one log made ready for another, without taking them apart where that can be helped.

    select   which records of a partition come next: live ones, up to a number and a size
    gather   their texts, as columns; a whole page of the source is taken as it is, its bytes are shared
    shape    what a router changes about them

The first needs the log as it is now. The other two are also done in recovery, from what a fact says was selected, and
give the same copies to the byte.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw, Struct

from topics.engine.partitions.partition import Partition
from topics.engine.partitions.segment import PAGE_RECORDS
from topics.model.errors import CorruptStorage
from topics.model.records.match import TagMatch
from topics.model.records.page import SEPARATOR, Page, joined_columns, page_size, record_sizes

# What a router changes about the records it copies; bits.
CLEAR_NODE = 1
CLEAR_TAG = 2
STAMP = 4

# The largest number of seqs that one selection spans: limits the bits that say which were chosen.
SPAN = 4096
STAMP_NAME = b'"_topics_router"'

Find = Callable[[int], Page | None]


class Selection(Struct):
    """Live records among first..last, all of which has been looked at."""

    first: int
    last: int
    seqs: Sequence[int]


class Columns(Struct, gc=False):
    """Texts of some records, as pages hold them."""

    count: int
    data: bytes
    metas: bytes | None
    nodes: bytes | None
    tags: bytes | None
    size: int

    def page(self, first_seq: int, ts: int) -> Page:
        return Page(first_seq, self.count, ts, self.data, self.metas, self.nodes, self.tags, self.size)


def select(partition: Partition, after: int, bound: int, max_records: int, max_bytes: int) -> Selection:
    """The next live records behind `after` and up to `bound`; at least one if there is one within the span.

    `first` is the first of them. Nothing is left to look at up to `last`.
    """
    seq = partition.next_live(after + 1)
    if seq is None or seq > bound:
        return Selection(after + 1, bound, ())
    first = seq
    bound = min(bound, first + SPAN - 1)
    seqs: list[int] = []
    size = 0
    while seq is not None and seq <= bound:
        segment = partition.segment_at(seq)
        try:
            page = segment.page_at(seq)
        except CorruptStorage:
            if not seqs:
                raise
            # Copy the records before the damaged ones first.
            return Selection(first, seqs[-1], _run(seqs))
        last = min(page.last_seq, bound)
        flags = segment.flags_between(seq, last)
        found: list[int] = (
            list(range(seq, last + 1)) if flags is None else [at for at, gone in enumerate(flags, seq) if not gone]
        )
        fits = len(found)
        if size + page.size > max_bytes:
            sizes = record_sizes(page)
            fits = 0
            for at in found:
                size += sizes[at - page.first_seq]
                if size > max_bytes and (seqs or fits):
                    break
                fits += 1
        else:
            size += page.size
        fits = min(fits, max_records - len(seqs))
        seqs += found[:fits]
        if fits < len(found) or len(seqs) >= max_records or size > max_bytes:
            return Selection(first, seqs[-1], _run(seqs))
        seq = partition.next_live(last + 1)
    return Selection(first, bound, _run(seqs))


def chosen_bits(selection: Selection, seqs: Sequence[int]) -> bytes | None:
    """Which of first..last `seqs` are; None when they are all of them."""
    count = selection.last - selection.first + 1
    if len(seqs) == count:
        return None
    bits = bytearray((count + 7) // 8)
    for seq in seqs:
        position = seq - selection.first
        bits[position >> 3] |= 1 << (position & 7)
    return bytes(bits)


def chosen_seqs(first: int, last: int, bits: bytes | None) -> Sequence[int]:
    """The seqs that `chosen_bits` encoded."""
    if bits is None:
        return range(first, last + 1)
    return [seq for seq in range(first, last + 1) if bits[(seq - first) >> 3] >> ((seq - first) & 7) & 1]


def gather(find: Find, seqs: Sequence[int]) -> list[Columns | int]:
    """The records' texts in runs of about a page. A number is a run of that many records that `find` does not find."""
    result: list[Columns | int] = []
    parts: list[Columns] = []
    count = 0
    at = 0
    while at < len(seqs):
        page = find(seqs[at])
        if page is None:
            if parts:
                result.append(joined(parts))
                parts, count = [], 0
            missing = 1 if not result or not isinstance(result[-1], int) else result.pop() + 1  # type: ignore[operator]
            result.append(missing)
            at += 1
            continue
        stop = bisect_right(seqs, page.last_seq, at)
        whole = Columns(page.count, page.data, page.metas, page.nodes, page.tags, page.size)
        if stop - at == page.count:
            parts.append(whole)
        else:
            parts.append(picked(whole, [seq - page.first_seq for seq in seqs[at:stop]]))
        count += stop - at
        if count >= PAGE_RECORDS:
            result.append(joined(parts))
            parts, count = [], 0
        at = stop
    if parts:
        result.append(joined(parts))
    return result


def joined(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]
    return Columns(
        sum([each.count for each in parts]),
        SEPARATOR.join([each.data for each in parts]),
        joined_columns([(each.metas, each.count) for each in parts]),
        joined_columns([(each.nodes, each.count) for each in parts]),
        joined_columns([(each.tags, each.count) for each in parts]),
        sum([each.size for each in parts]),
    )


def picked(columns: Columns, positions: Sequence[int]) -> Columns:
    """Some of the records, by their positions."""
    if len(positions) == columns.count:
        return columns
    data = _picked(columns.data, positions)
    metas, nodes, tags = [
        None if text is None else _any(_picked(text, positions))
        for text in (columns.metas, columns.nodes, columns.tags)
    ]
    return Columns(len(positions), data, metas, nodes, tags, page_size(len(positions), data, metas, nodes, tags))


def matching(columns: Columns, match: TagMatch) -> list[int]:
    """The positions of the records whose tag matches."""
    if columns.tags is None:
        return []
    text = msgspec.json.encode(match.text)
    tags = columns.tags.split(SEPARATOR)
    if not match.prefix:
        return [position for position, tag in enumerate(tags) if tag == text]
    prefix = text[:-1]
    return [position for position, tag in enumerate(tags) if tag.startswith(prefix)]


def shaped(columns: Columns, copy_flags: int) -> Columns:
    """The copies without what the router does not pass on. Does not add stamps; see `stamped`."""
    nodes = None if copy_flags & CLEAR_NODE else columns.nodes
    tags = None if copy_flags & CLEAR_TAG else columns.tags
    if nodes is columns.nodes and tags is columns.tags:
        return columns
    size = page_size(columns.count, columns.data, columns.metas, nodes, tags)
    return Columns(columns.count, columns.data, columns.metas, nodes, tags, size)


def stamp_prefix(router: str, epoch: int, partition: int) -> bytes:
    """How the key of a stamp begins; the seq in the source follows. Names need no escaping."""
    return b"%b/%d/%d/" % (router.encode(), epoch, partition)


def stamped(columns: Columns, seqs: Sequence[int], router: str, source: str, epoch: int, partition: int) -> Columns:
    """Add the router stamp to each record's meta. Deterministic: the same stamp whenever this router copies this record."""
    form = b'{"_topics_router":{"key":"%b%%d","router":"%b","source":"%b","epoch":%d,"partition":%d,"seq":%%d}' % (
        stamp_prefix(router, epoch, partition),
        router.encode(),
        source.encode(),
        epoch,
        partition,
    )
    texts = [b""] * columns.count if columns.metas is None else columns.metas.split(SEPARATOR)
    metas = SEPARATOR.join([form % (seq, seq) + _rest(meta) for seq, meta in zip(seqs, texts, strict=True)])
    size = page_size(columns.count, columns.data, metas, columns.nodes, columns.tags)
    return Columns(columns.count, columns.data, metas, columns.nodes, columns.tags, size)


def stamped_seqs(page: Page, prefix: bytes) -> list[tuple[int, int]]:
    """(seq in the source, seq here) of the records in the page that carry a stamp beginning like this."""
    if page.metas is None or STAMP_NAME not in page.metas:
        return []
    start = b'{"_topics_router":{"key":"' + prefix
    found = []
    for seq, meta in enumerate(page.metas.split(SEPARATOR), page.first_seq):
        if meta.startswith(start):
            digits = meta[len(start) : meta.index(b'"', len(start))]
            if digits.isdigit():
                found.append((int(digits), seq))
    return found


def _rest(meta: bytes) -> bytes:
    """What follows the stamp: the record's own meta without its opening brace, and without an earlier stamp."""
    if not meta:
        return b"}"
    if STAMP_NAME in meta:
        # Stamped on the way here, or by a client: the name is reserved, so the stamp of this router takes its place.
        try:
            fields = msgspec.json.decode(meta, type=dict[str, Raw])
        except msgspec.MsgspecError:
            fields = {}  # not readable for us (half a surrogate pair in a key): passed on as it is
        if fields.pop("_topics_router", None) is not None:
            meta = msgspec.json.encode(fields)
    inner = meta[1:].lstrip()
    return inner if inner.startswith(b"}") else b"," + inner


def _picked(text: bytes, positions: Sequence[int]) -> bytes:
    texts = text.split(SEPARATOR)
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions):
        return SEPARATOR.join(texts[first : last + 1])
    return SEPARATOR.join([texts[position] for position in positions])


def _any(text: bytes) -> bytes | None:
    return text if text.strip(SEPARATOR) else None


def _run(seqs: list[int]) -> Sequence[int]:
    return range(seqs[0], seqs[-1] + 1) if seqs and seqs[-1] - seqs[0] + 1 == len(seqs) else seqs
