"""Reading a range on a worker: pages from the server become Arrow batches in the source's schema.

    topic STRING, partition INT, seq BIGINT, ts TIMESTAMP, node STRING, tag STRING, data STRING, meta STRING, epoch BIGINT

Missing seqs are normal, because deletes leave no trace. Loss is not: for a range that the server reports as lost, the option
`onDataLoss` decides whether the read fails and names the range, emits a row (`data` is NULL and `meta` holds the tombstone),
or ignores it.
"""

import json
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw, Struct

from topics.client import Client
from topics.client.calls import Call, diff
from topics.client.range_pages import RangePage, arrow_page, check_page
from topics.model.errors import NotFound
from topics.model.records.surrogates import cover_halves
from topics.spark.connector.ranges import SeqRange

SCHEMA = "topic STRING, partition INT, seq BIGINT, ts TIMESTAMP, node STRING, tag STRING, data STRING, meta STRING, epoch BIGINT"
ARROW_LIMIT = 50_000
# Rows of a batch, the same as in Spark's own batches. With whole pages Spark would be idle while a page is read.
BATCH_ROWS = 10_000
JSON_LIMIT = 10_000
JSON_BYTES = 8 << 20


class DataLoss(Exception):
    """Records this query had not read yet are gone. Names the topic, the partition and the exact range."""


class TopicRecreated(Exception):
    """The topic was deleted and created again after the offsets were taken: they are not valid for the new instance."""


# For a range that is no longer live: the last seq that the archive has, and the archived record batches.
ArchiveLookup = Callable[[SeqRange], tuple[int, Iterator[Any]]]


def read_range(
    client: Client, wanted: SeqRange, *, transport: str, on_data_loss: str, archive: ArchiveLookup | None = None
) -> Iterator[Any]:
    """Yield the record batches of the range, in order.

    Raises TopicRecreated, DataLoss when `on_data_loss` is "fail", and IncompletePage when a page of the server does not
    account for every seq that it passes.
    """
    read_page = _arrow_page if transport == "arrow" else _json_page
    at = wanted.first - 1
    while at < wanted.last:
        try:
            page = read_page(client, wanted, at)
        except NotFound as error:
            if error.code != "topic_not_found":
                raise
            if on_data_loss != "fail":
                return
            raise DataLoss(
                f'topic "{wanted.topic}" was deleted before records {at + 1} to {wanted.last} of partition '
                f"{wanted.partition} were read. Set onDataLoss to emit or ignore to go on without it."
            ) from None
        tombstone = page.tombstone
        if tombstone is not None and (tombstone["reason"] == "recreated" or page.epoch != wanted.epoch):
            raise recreated(wanted.topic)
        check_page(wanted.topic, wanted.partition, at, wanted.last, page)
        if tombstone is not None:
            first, last = max(at + 1, tombstone["gap_from"]), min(wanted.last, tombstone["gap_to"])
            if archive is not None and first <= last:
                reached, found = archive(wanted.between(first, last))
                yield from found
                first = reached + 1
            yield from lost_rows(wanted, {**tombstone, "gap_from": first, "gap_to": last}, on_data_loss)
        for batch in page.batches:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield _with_source_columns(batch.slice(start, BATCH_ROWS), wanted)
        moved = min(page.next_from_seq, wanted.last)
        if moved <= at:
            # The range was planned up to a head that no longer exists: the server has lost its newest records.
            if on_data_loss != "fail":
                return
            raise DataLoss(
                f'topic "{wanted.topic}" partition {wanted.partition}: records {at + 1} to {wanted.last} were there when '
                "this batch was planned and are gone."
            )
        at = moved


def merged_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Merge small batches into batches of BATCH_ROWS: Spark has a fixed cost for each batch."""
    import pyarrow as pa

    waiting: list[Any] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(BATCH_ROWS)
            waiting, rows = [], 0
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(BATCH_ROWS)


def recreated(topic: str) -> TopicRecreated:
    return TopicRecreated(
        f'topic "{topic}" was deleted and created again since this query began: the positions of its checkpoint mean '
        "nothing in the new topic. Start the query with a new checkpoint."
    )


def lost_rows(wanted: SeqRange, tombstone: dict[str, Any], on_data_loss: str) -> Iterator[Any]:
    """Handle a lost range as `onDataLoss` says: raise DataLoss, yield one row, or yield nothing."""
    first, last = tombstone["gap_from"], tombstone["gap_to"]
    if last < first or on_data_loss == "ignore":
        return
    if on_data_loss == "fail":
        raise DataLoss(
            f'topic "{wanted.topic}" partition {wanted.partition}: records {first} to {last} were lost '
            f"({tombstone['reason']}) before this query read them. Set onDataLoss to emit or ignore to go on without them."
        )
    import pyarrow as pa

    meta = json.dumps({"_topics_tombstone": tombstone})
    columns = [[wanted.topic], [wanted.partition], [last], [None], [None], [None], [None], [meta], [wanted.epoch]]
    yield pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _schema(pa), strict=True)], schema=_schema(pa)
    )


def source_rows(rows: Any, wanted: SeqRange) -> Iterator[Any]:
    """Convert rows with the columns of a page to batches in the source's schema."""
    for batch in rows.select(["seq", "ts", "node", "tag", "data", "meta"]).to_batches():
        if batch.num_rows:
            yield _with_source_columns(batch, wanted)


def _arrow_page(client: Client, wanted: SeqRange, at: int) -> RangePage:
    stream = client.diff_arrow(
        wanted.topic,
        at,
        to_seq=wanted.last,
        limit=ARROW_LIMIT,
        epoch=wanted.epoch or None,
        partition=wanted.partition,
    )
    return arrow_page(stream)


class _RawRecord(Struct, rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}, gc=False):
    seq: int
    ts: int
    data: Raw
    node: str | None = None
    tag: str | None = None
    # Empty when there is none: msgspec does not support a union of Raw and None.
    meta: Raw = Raw()


class _RawPage(Struct):
    records: list[_RawRecord]
    next_from_seq: int
    tombstone: dict[str, Any] | None
    epoch: int
    from_seq: int | None = None
    records_live: int | None = None


_page_decoder = msgspec.json.Decoder(_RawPage)


def _decode_page(body: bytes) -> _RawPage:
    """Decode a page. A payload with a lone surrogate keeps its text, as in an Arrow page."""
    try:
        return _page_decoder.decode(body)
    except msgspec.DecodeError:
        covered = cover_halves(body, len(body))
        if covered is None:
            raise
    page = _page_decoder.decode(covered.body)
    for record in page.records:
        record.data = Raw(covered.uncover(bytes(record.data)))
        record.meta = Raw(covered.uncover(bytes(record.meta)))
    return page


def _json_page(client: Client, wanted: SeqRange, at: int) -> RangePage:
    import pyarrow as pa

    asked = diff(
        wanted.topic,
        at,
        to_seq=wanted.last,
        limit=JSON_LIMIT,
        max_batch_bytes=JSON_BYTES,
        epoch=wanted.epoch or None,
        partition=wanted.partition,
    )
    page = _decode_page(client.run(Call("POST", asked.path, bytes, asked.body)))
    records = page.records
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([record.seq for record in records], pa.int64()),
            pa.array([record.ts for record in records], pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            pa.array([record.node for record in records], pa.string()),
            pa.array([record.tag for record in records], pa.string()),
            _texts(pa, [record.data for record in records]),
            _texts(pa, [record.meta for record in records]),
        ],
        names=["seq", "ts", "node", "tag", "data", "meta"],
    )
    return RangePage([batch], page.next_from_seq, page.epoch, page.tombstone, page.from_seq, page.records_live)


def _texts(pa: Any, texts: list[Raw]) -> Any:
    """Return JSON texts as a column, NULL where a text is empty. No Python object per text: 0.15 us instead of 0.25 us each."""
    lengths = list(map(len, texts))
    if not any(lengths):
        return pa.nulls(len(texts), pa.string())
    ends = array("i", accumulate(lengths, initial=0))
    column = pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])
    if all(lengths):
        return column
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(pc.binary_length(column), 0), pa.scalar(None, pa.string()), column)


def _schema(pa: Any) -> Any:
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("seq", pa.int64()),
            ("ts", pa.timestamp("us", "UTC")),
            ("node", pa.string()),
            ("tag", pa.string()),
            ("data", pa.string()),
            ("meta", pa.string()),
            ("epoch", pa.int64()),
        ]
    )


def _with_source_columns(batch: Any, wanted: SeqRange) -> Any:
    import pyarrow as pa

    rows = batch.num_rows
    columns = [
        pa.repeat(pa.scalar(wanted.topic, pa.string()), rows),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
        *batch.columns,
        pa.repeat(pa.scalar(wanted.epoch, pa.int64()), rows),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_schema(pa))
