"""Bulk reads: pages of records as Arrow streams.

A read decides on the loop which runs of records it gets, which takes microseconds. A thread then encodes them: sealed segments by
copying columns, hot pages by splitting their texts in C++.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from topics.broker.core import Core
from topics.broker.topics.read import ReadRequest, begin_read, view_of
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.reading import Plan, Run, plan_read
from topics.model.errors import CorruptStorage, TopicsError
from topics.model.records.match import TagMatch
from topics.model.records.page import Page, part
from topics.segments.packed_segments import PackedSegment
from topics.segments.sealed_segments import SealedSegment
from topics.storage.segments.columns import record_batch
from topics.wire.arrow_page import MEDIA_TYPE, ArrowOptions, encode_page

__all__ = ["DEFAULT_PAGE_RECORDS", "MAX_PAGE_BYTES", "MAX_PAGE_RECORDS", "MEDIA_TYPE", "BulkPage", "bulk_read"]

DEFAULT_PAGE_RECORDS = 10_000
MAX_PAGE_RECORDS = 100_000
MAX_PAGE_BYTES = 32 << 20


class BulkPage(Struct):
    """One page as an Arrow stream; `lost` says whether its metadata holds a tombstone."""

    stream: bytes
    records: int
    lost: bool


def bulk_read(
    core: Core,
    wanted: ReadRequest,
    to_seq: int | None,
    match: TagMatch | None,
    done: Callable[[BulkPage | None, BaseException | None], None],
) -> None:
    """Read the page after the cursor as an Arrow stream. Raises NotFound at once; `done` gets the page later.

    A page ends before records that are damaged on disk. If it would begin with them, CorruptStorage is raised or passed to `done`.
    """
    cursor = begin_read(core, wanted)
    topic, partition, from_seq, recreated = cursor.topic, cursor.partition, cursor.from_seq, cursor.recreated
    plan = plan_read(partition, from_seq, wanted.limit, wanted.budget, to_seq=to_seq, recreated=recreated)
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
        "from_seq": from_seq,
        "records_live": partition.live_between(1 if recreated else from_seq + 1, plan.next_from_seq),
    }
    metadata = {name: msgspec.json.encode(value) for name, value in fields.items()}
    view = view_of(topic, wanted.view)
    options = ArrowOptions(view.without_nodes, match, view.tags, view.data, view.metas)

    def without(error: CorruptStorage) -> None:
        """Read again up to the damaged records; raise the error when they are the first ones."""
        first = plan.runs[0].first
        damaged = first if error.records is None else max(first, error.records[0])
        if damaged == first and plan.tombstone is None:
            raise error
        bulk_read(core, wanted, damaged - 1, match, done)

    def streamed(page: BulkPage | None, error: BaseException | None) -> None:
        if not isinstance(error, CorruptStorage):
            done(page, error)
            return
        try:
            without(_located(plan, error))
        except TopicsError as refused:
            done(None, refused)

    try:
        sources = [_source(run) for run in plan.runs]
    except CorruptStorage as error:
        without(error)
        return

    def work() -> BulkPage:
        stream, records = encode_page(_batches(sources, plan), metadata, options)
        return BulkPage(stream, records, plan.tombstone is not None)

    core.runtime.run_in_thread("bulk", work, streamed)


def _located(plan: Plan, error: CorruptStorage) -> CorruptStorage:
    """The same error with the records it is about, reported as damage of their segment."""
    for run in plan.runs:
        if isinstance(run.segment, SealedSegment) and error.path.startswith(run.segment.base + "."):
            return run.segment.damaged(error)
    return error


def _source(run: Run) -> Callable[[], list[Any]]:
    """A function that returns the run's record batches in a thread. Everything that may change meanwhile is copied now."""
    segment = run.segment
    if isinstance(segment, SealedSegment):
        file = segment.open_file()
        return lambda: file.rows(run.first, run.last)
    assert isinstance(segment, HotSegment | PackedSegment)
    pages: list[Page] = []
    for page in segment.pages_between(run.first, run.last):
        start, stop = max(run.first, page.first_seq) - page.first_seq, min(run.last, page.last_seq) - page.first_seq + 1
        pages.append(page if stop - start == page.count else part(page, start, stop))
    return lambda: [_record_batch(pages)]


def _record_batch(pages: list[Page]) -> Any:
    import pyarrow as pa

    return record_batch(pa, pages)


def _batches(sources: list[Callable[[], list[Any]]], plan: Plan) -> Iterator[tuple[Any, bytes | None]]:
    """Yield the record batches of the runs, each with the flags of its records."""
    for source, run in zip(sources, plan.runs, strict=True):
        start = 0
        for batch in source():
            stop = start + batch.num_rows
            yield batch, None if run.flags is None else run.flags[start:stop]
            start = stop
