"""Bulk reads: pages of records as Arrow streams.

A read decides on the loop which runs of records it gets, which takes microseconds, and is put together aside: sealed
segments by copying columns, hot pages by taking their texts apart in C++. The cursor fields and the tombstone of the
answer stand in the schema's metadata, under the names that the JSON answer uses.

    seq int64 | ts timestamp[us, UTC] | node string | tag string | data string | meta string
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from topics.broker.reading import ReadRequest
from topics.broker.sealed import SealedSegment
from topics.engine.partition import Plan, Run
from topics.engine.render import View
from topics.engine.segment import HotSegment
from topics.model.match import TagMatch
from topics.model.page import Page, part
from topics.storage.columns import record_batch

if TYPE_CHECKING:
    from topics.broker.broker import Broker

MEDIA_TYPE = b"application/vnd.apache.arrow.stream"
LIMIT = 10_000
LIMIT_MOST = 100_000
BYTES_MOST = 32 << 20


def bulk_read(
    broker: "Broker",
    wanted: ReadRequest,
    to_seq: int | None,
    match: TagMatch | None,
    done: Callable[[bytes | None, BaseException | None], None],
) -> None:
    """The page after the cursor as an Arrow stream. Raises NotFound at once; `done` gets the bytes later."""
    topic = broker.topic(wanted.topic)
    partition = broker.partition(topic, wanted.partition)
    broker.evict(topic, partition)
    broker.touch(topic)
    from_seq = wanted.from_seq
    if wanted.from_ts is not None:
        from_seq = max(from_seq, partition.first_at_or_after(wanted.from_ts) - 1)
    recreated = wanted.epoch is not None and wanted.epoch != topic.epoch
    plan = partition.plan(from_seq, wanted.limit, wanted.budget, to_seq=to_seq, recreated=recreated)
    head = partition.head_seq
    fields = {
        "topic": topic.name,
        "partition": partition.number,
        "next_from_seq": plan.next_from_seq,
        "head_seq": head,
        "earliest_seq": partition.earliest_seq,
        "caught_up": plan.next_from_seq >= head,
        "tombstone": plan.tombstone,
        "lag": max(0, head - plan.next_from_seq),
        "epoch": topic.epoch,
        "records_scanned": plan.scanned,
    }
    metadata = {name: msgspec.json.encode(value) for name, value in fields.items()}
    view = wanted.view
    if not topic.config.dedupe_node:
        view = msgspec.structs.replace(view, without_nodes=frozenset())
    sources = [_source(run) for run in plan.runs]
    broker.runtime.run_aside("bulk", lambda: _stream(sources, plan, view, match, metadata), done)


def _source(run: Run) -> Callable[[Any], list[Any]]:
    """What gives the run's batches, with all that may change meanwhile taken now."""
    segment = run.segment
    if isinstance(segment, SealedSegment):
        file = segment.open_file()
        return lambda pa: file.rows(run.first, run.last)
    assert isinstance(segment, HotSegment)
    pages: list[Page] = []
    for page in segment.pages_between(run.first, run.last):
        start, stop = max(run.first, page.first_seq) - page.first_seq, min(run.last, page.last_seq) - page.first_seq + 1
        pages.append(page if stop - start == page.count else part(page, start, stop))
    return lambda pa: [record_batch(pa, pages)]


def _stream(
    sources: list[Callable[[Any], list[Any]]],
    plan: Plan,
    view: View,
    match: TagMatch | None,
    metadata: dict[str, bytes],
) -> bytes:
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("seq", pa.int64()),
            pa.field("ts", pa.timestamp("us", "UTC")),
            *[pa.field(name, pa.string()) for name in ("node", "tag", "data", "meta")],
        ],
        metadata=metadata,
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for source, run in zip(sources, plan.runs, strict=True):
            first = run.first
            for batch in source(pa):
                rows = batch.num_rows
                if run.flags is not None:
                    flags = run.flags[first - run.first : first - run.first + rows]
                    batch = batch.filter(pa.array([not flag for flag in flags], pa.bool_()))
                first += rows
                batch = _wanted(pa, batch, view, match)
                if batch.num_rows:
                    writer.write_batch(_shaped(pa, batch, schema, view))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _wanted(pa: Any, batch: Any, view: View, match: TagMatch | None) -> Any:
    import pyarrow.compute as pc

    if view.without_nodes and batch.column(2).null_count < batch.num_rows:
        unwanted = pa.array([msgspec.json.decode(node, type=str) for node in view.without_nodes], pa.string())
        batch = batch.filter(pc.invert(pc.is_in(batch.column(2), value_set=unwanted)))
    if match is not None:
        tags = batch.column(3)
        found = pc.starts_with(tags, match.text) if match.prefix else pc.equal(tags, match.text)
        batch = batch.filter(pc.fill_null(found, False))
    return batch


def _shaped(pa: Any, batch: Any, schema: Any, view: View) -> Any:
    columns = list(batch.columns)
    columns[1] = columns[1].cast(pa.timestamp("us", "UTC"))
    for index, shown in ((3, view.tags), (4, view.data), (5, view.metas)):
        if not shown:
            columns[index] = pa.nulls(batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=schema)
