"""The body of a large append, decoded in steps.

To decode 64 MiB at once takes half a second. The records of a large body are cut at record boundaries into pieces of about
128 KiB, and each piece is decoded by itself:

- A boundary is guessed. Records of one writer look alike: the text between the first two, such as `},{"data":`, is the
  text between any two. The piece before a guessed boundary is decoded as a list of records. If that succeeds the guess
  was right, because a list of whole records before a comma has no other reading.
- The first and the last record, records larger than a piece, and all records of a piece whose boundary was guessed wrong
  are found one by one with the JSON decoder (see `json_walk`).

Records are counted as they are decoded: a body with a million of them is refused after the first ten thousand. The result
is the batch that `decode_batch` makes of the same body. Three things are refused here and not there: more than 64 KiB of
white space in a row, a record of more than twice `max_record_bytes` plus 1 MiB with all its fields, and another field of
more than 1 MiB.
"""

import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from topics.model.limits import Limits
from topics.model.records.batch import (
    PLAIN_OVERHEAD,
    AppendBody,
    AppendRecord,
    Batch,
    PlainRecord,
    check_key,
    check_record_size,
    check_text,
    decode_batch,
    node_of,
    record_columns,
    record_delays,
    take_fields,
)
from topics.model.records.json_walk import JsonWalk, ValueTooLong
from topics.model.records.page import SEPARATOR, Page, joined_columns, page_size
from topics.model.records.surrogates import cover_halves
from topics.model.steps import Steps

# A shorter body is decoded in one step, which takes 5 ms at most.
LARGE_BODY_BYTES = 256 << 10
# Size of a piece, and number of records of a page.
PIECE_BYTES = 128 << 10
PAGE_RECORDS = 256
# A larger batch stays in pages; the pages of a smaller one are joined.
MAX_JOINED_BYTES = 2 << 20
# Size of a field beside `records`.
MAX_FIELD_BYTES = 1 << 20
# Length of the text between two records, up to the first colon of the second.
MAX_BOUNDARY_BYTES = 256
# Places that are tried as the end of a piece.
MAX_GUESSES = 4
# Lone surrogates are searched in one step, in a body that the decoder refuses: only in one with at most this many bytes and
# backslashes.
MAX_COVERED_BYTES = 2 << 20
MAX_COVERED_ESCAPES = 20_000

B = TypeVar("B", bound=AppendBody)

_INDEX = re.compile(r"`\$\[(\d+)\]")
_decode_plain = msgspec.json.Decoder(list[PlainRecord]).decode
_decode_rich = msgspec.json.Decoder(list[AppendRecord]).decode
_append_bodies = msgspec.json.Decoder(AppendBody)


def decode_large(body: bytes, limits: Limits, others: list[bytes] | None = None) -> Steps[Batch]:
    """The batch of an append body. Raises InvalidRequest, BatchTooLarge or RecordTooLarge.

    `others` receives the text of each field beside `records`, also when something is raised: as far as it was read.
    """
    walk = JsonWalk(body)
    others = [] if others is None else others
    try:
        fields, batch = yield from read_write(walk, _append_bodies, limits, others)
        walk.finish()
    except InvalidRequest as refused:
        if type(refused) is not InvalidRequest or not _may_have_lone_surrogates(body):
            raise
        # The decoder does not take lone surrogates, which `data` and `meta` may hold.
        batch = decode_batch(body, limits)
        covered = cover_halves(body)
        others[:] = _other_fields(body if covered is None else covered.body)
        return batch
    if fields.idempotency_key is not None:
        check_key(fields.idempotency_key, limits)
    take_fields(batch, fields)
    return batch


def read_write(
    walk: JsonWalk, decoder: "msgspec.json.Decoder[B]", limits: Limits, others: list[bytes]
) -> Steps[tuple[B, Batch]]:
    """Pass an object with `records`: its other fields as the decoder's type, and the records as a batch.

    `others` receives the texts of the other fields.
    """
    text = walk.text
    records: _Records | None = None
    walk.enter(b"{")
    more = not walk.is_empty(b"}")
    while more:
        walk.peek()
        start = walk.position
        key = walk.key()
        if key == "records" and walk.peek() == b"[":
            # The last one of a repeated field counts, as with the decoders.
            records = _Records(limits)
            yield from records.read(walk)
        else:
            try:
                _, end = walk.skip(MAX_FIELD_BYTES)
            except ValueTooLong:
                raise InvalidRequest(f"{key[:100]!r} takes more than {MAX_FIELD_BYTES} bytes") from None
            others.append(text[start:end])
            yield
        more = walk.next_item(b"}")
    empty = [] if records is None else [b'"records":[]']
    fields = _decoded(b"{%b}" % b",".join(others + empty), decoder)
    # Without `records` the decoder has refused it.
    assert records is not None
    batch = yield from records.batch(node_of(fields, limits))
    return fields, batch


def _other_fields(body: bytes) -> list[bytes]:
    """The texts of the fields beside `records`, of a body that is known to be an object."""
    walk = JsonWalk(body)
    others: list[bytes] = []
    walk.enter(b"{")
    more = not walk.is_empty(b"}")
    while more:
        walk.peek()
        start = walk.position
        key = walk.key()
        _, end = walk.skip(len(body))
        if key != "records":
            others.append(body[start:end])
        more = walk.next_item(b"}")
    return others


def _decoded(text: bytes, decoder: "msgspec.json.Decoder[B]") -> B:
    check_text(text)
    try:
        return decoder.decode(text)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(str(error)) from None


def _may_have_lone_surrogates(body: bytes) -> bool:
    if len(body) > MAX_COVERED_BYTES:
        return False
    return body.count(b"\\u") > 0 and body.count(b"\\") <= MAX_COVERED_ESCAPES


def plain_batch(datas: list[bytes]) -> Batch:
    """The batch of records that have only these payloads; a large one in pages."""
    pages: list[Page] = []
    start = size = 0
    for index, data in enumerate(datas):
        size += len(data)
        if size >= PIECE_BYTES or index - start + 1 == PAGE_RECORDS or index == len(datas) - 1:
            texts = SEPARATOR.join(datas[start : index + 1])
            count = index - start + 1
            pages.append(Page(0, count, 0, texts, None, None, None, len(texts) + 1 + count * PLAIN_OVERHEAD))
            start, size = index + 1, 0
    return _batch(pages, len(datas))


def _batch(pages: list[Page], count: int) -> Batch:
    size = sum([page.size for page in pages])
    batch = Batch(count, b"", None, None, None, size)
    if size > MAX_JOINED_BYTES:
        batch.pages = pages
        return batch
    batch.data = SEPARATOR.join([page.data for page in pages])
    batch.metas = joined_columns([(page.metas, page.count) for page in pages])
    batch.nodes = joined_columns([(page.nodes, page.count) for page in pages])
    batch.tags = joined_columns([(page.tags, page.count) for page in pages])
    return batch


class _Records:
    """Reads the records of one list."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._count = 0
        self._pages: list[Page] = []
        self._delays: list[int] = []
        self._delayed = False
        # Records of the next page, and the length of their texts.
        self._plain: list[PlainRecord] = []
        self._rich: list[AppendRecord] = []
        self._bytes = 0

    def read(self, walk: JsonWalk) -> Steps[None]:
        """Pass the list."""
        text = walk.text
        walk.enter(b"[")
        if walk.is_empty(b"]"):
            return
        boundary = b""
        # Up to here a guess has failed; nothing is guessed before this place is passed.
        tried = 0
        while True:
            walk.peek()
            start = walk.position
            if boundary and start >= tried:
                cut, tried = self._take_guessed(text, start, boundary)
                if cut:
                    walk.position = cut + boundary.index(b"{", 1)
                    yield
                    continue
            end = self._take_one(walk)
            yield
            if not walk.next_item(b"]"):
                break
            if not boundary:
                boundary = _boundary(text, end, walk)
        self._make_page()

    def batch(self, node: bytes) -> Steps[Batch]:
        """All records together; those without a node of their own have this one."""
        if not self._count:
            raise InvalidRequest("records must hold at least one record")
        pages = self._pages
        if node:
            for index, page in enumerate(pages):
                pages[index] = _with_node(page, node)
                yield
        batch = _batch(pages, self._count)
        batch.delays = self._delays if self._delayed else None
        return batch

    def _take_guessed(self, text: bytes, start: int, boundary: bytes) -> tuple[int, int]:
        """Take the records from `start` to a boundary. Returns where that is, or 0 and the place to try from next.

        A record may contain the text of the boundary, so several places are tried, the last one first.
        """
        stop = last = start + PIECE_BYTES
        for _ in range(MAX_GUESSES):
            cut = text.rfind(boundary, start, stop)
            if cut <= start:
                break
            if self._take_piece(text[start : cut + 1]):
                return cut, 0
            # The next one ends before this one.
            stop = cut + len(boundary) - 1
        return 0, last

    def _take_piece(self, piece: bytes) -> bool:
        """Take the records of the text, unless it is not a list of whole records. Returns whether it is."""
        if not piece.isascii():
            try:
                piece.decode()
            except UnicodeDecodeError:
                return False
        try:
            self._decode(piece)
        except (msgspec.MsgspecError, RecursionError):
            return False
        return True

    def _decode(self, piece: bytes) -> None:
        """Take all records of the text, which are separated by commas. Raises what the decoder raises."""
        listed = b"[%b]" % piece
        try:
            self._add_plain(_decode_plain(listed), len(piece))
        except msgspec.ValidationError:
            self._add_rich(_decode_rich(listed), len(piece))

    def _take_one(self, walk: JsonWalk) -> int:
        """Pass one record, which may be large, and take it. Returns where it ends."""
        most = 2 * self._limits.max_record_bytes + MAX_FIELD_BYTES
        try:
            start, end = walk.skip(most)
        except ValueTooLong:
            raise RecordTooLarge(
                f"records[{self._count}] takes more than {most} bytes; data and meta may take {self._limits.max_record_bytes}",
                detail={"index": self._count, "max": self._limits.max_record_bytes},
            ) from None
        piece = walk.text[start:end]
        if not piece.isascii():
            check_text(piece)
        try:
            self._decode(piece)
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None
        except msgspec.MsgspecError as error:
            raise InvalidRequest(_INDEX.sub(f"`$.records[{self._count}]", str(error))) from None
        return end

    def _add_plain(self, records: list[PlainRecord], size: int) -> None:
        if self._rich:
            self._make_page()
        if size > self._limits.max_record_bytes:
            for index, record in enumerate(records, self._count):
                check_record_size(index, len(record.data), self._limits)
        self._plain += records
        self._added(len(records), size)

    def _add_rich(self, records: list[AppendRecord], size: int) -> None:
        if self._plain:
            self._make_page()
        self._rich += records
        self._added(len(records), size)

    def _added(self, count: int, size: int) -> None:
        self._count += count
        self._bytes += size
        most = self._limits.max_batch_records
        if self._count > most:
            raise BatchTooLarge(f"more than {most} records in one write", detail={"max": most})
        if self._bytes >= PIECE_BYTES or len(self._plain) + len(self._rich) >= PAGE_RECORDS:
            self._make_page()

    def _make_page(self) -> None:
        first = self._count - len(self._plain) - len(self._rich)
        for start in range(0, len(self._plain), PAGE_RECORDS):
            data = SEPARATOR.join([record.data for record in self._plain[start : start + PAGE_RECORDS]])
            count = min(PAGE_RECORDS, len(self._plain) - start)
            self._pages.append(Page(0, count, 0, data, None, None, None, len(data) + 1 + count * PLAIN_OVERHEAD))
        for start in range(0, len(self._rich), PAGE_RECORDS):
            self._make_rich_page(self._rich[start : start + PAGE_RECORDS], first + start)
        self._delays += [0] * (self._count - len(self._delays))
        self._plain = []
        self._rich = []
        self._bytes = 0

    def _make_rich_page(self, records: Sequence[AppendRecord], first: int) -> None:
        data, metas, nodes, tags = record_columns(records, first, b"", self._limits)
        count = len(records)
        size = page_size(count, data, metas, nodes, tags)
        self._pages.append(Page(0, count, 0, data, metas, nodes, tags, size))
        delays = record_delays(records)
        if delays is not None:
            self._delayed = True
            self._delays += [0] * (first - len(self._delays)) + delays


def _boundary(text: bytes, end: int, walk: JsonWalk) -> bytes:
    """The text from the end of a record to the first colon of the next one; empty when that is no boundary."""
    walk.peek()
    start = text.rfind(b"}", 0, end)
    colon = text.find(b":", walk.position, walk.position + MAX_BOUNDARY_BYTES)
    boundary = text[start : colon + 1]
    return boundary if colon > 0 and len(boundary) <= MAX_BOUNDARY_BYTES and b"{" in boundary[1:] else b""


def _with_node(page: Page, node: bytes) -> Page:
    """The page with this node for the records that have none."""
    if page.nodes is None:
        nodes = SEPARATOR.join([node] * page.count)
    else:
        nodes = SEPARATOR.join([each or node for each in page.nodes.split(SEPARATOR)])
    size = page_size(page.count, page.data, page.metas, nodes, page.tags)
    return Page(0, page.count, 0, page.data, page.metas, nodes, page.tags, size)
