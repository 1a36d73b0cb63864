"""Arrow bodies: rows that become pages, column by column.

    data string (JSON text) | tag string | node string | meta string (JSON object) | partition integer | partition_key string

Only `data` must be there. The rows are checked as an append of the same records in JSON would be. What the usual body needs is
checked for whole columns in C++, where other threads run meanwhile (20,000 rows of 100 bytes: 5 ms, of which each
row has a share of 0.1 us in Python); a body with anything unusual is checked row by row, which accepts the row or names
what is wrong. Rows for several partitions are sorted by partition once and joined to one page for each.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import Any

from topics.model.errors import BatchTooLarge, InvalidRequest
from topics.model.limits import Limits
from topics.model.partitioning import hashed_partition
from topics.model.records.batch import Batch, columns_of, proven_json
from topics.model.records.large_batch import MAX_JOINED_BYTES, PAGE_RECORDS
from topics.model.records.page import RECORD_OVERHEAD, SEPARATOR, Page, page_size
from topics.wire.arrow_size import check_unfolded, check_weight

# Texts that are decoded together, and the data of a page, take about this much.
PIECE_BYTES = 1 << 20
# What must be escaped in a JSON string, so that a text without any of it is one between quotes.
_ESCAPED = r'["\\\x00-\x1f]'


def read_arrow_body(
    body: bytes, limits: Limits, max_records: int, *, partition: int = 0, partitions: int | None = None
) -> list[Batch]:
    """One batch for each partition that the rows choose, in the order of its rows; rows that choose none go to `partition`.

    `partitions` is how many there are to choose from; None when rows may not choose. Raises InvalidRequest, BatchTooLarge
    or RecordTooLarge for anything that an append of the same records as JSON would be refused for.
    """
    import pyarrow as pa

    try:
        check_weight(pa, body)
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
        texts = {
            name: _texts(pa, table, name, limits.max_body_bytes)
            for name in ("data", "tag", "node", "meta", "partition_key")
        }
        if texts["data"] is None:
            raise InvalidRequest('the Arrow stream has no column "data"')
        count = table.num_rows
        if count > max_records:
            raise BatchTooLarge(
                f"{count} records in one write; at most {max_records}", detail={"max": max_records, "count": count}
            )
        chosen = _chosen(pa, table, texts["partition_key"], partition, partitions)
        columns = _usual_columns(pa, texts, limits) or _unusual_columns(pa, texts, limits, max_records)
        return _batches(pa, columns, chosen, partition)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRequest(f"the body is not an Arrow stream: {error}") from None


def _texts(pa: Any, table: Any, name: str, max_bytes: int) -> Any:
    if name not in table.column_names:
        return None
    check_unfolded(pa, name, table.column(name), max_bytes)
    try:
        column = table.column(name).cast(pa.string())
    except pa.ArrowException:
        raise InvalidRequest(f"column {name} must hold strings") from None
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


# Columns as pages hold them: JSON texts, empty where a record has none. None for a column that is not there.


def _usual_columns(pa: Any, texts: dict[str, Any], limits: Limits) -> list[Any] | None:
    """data, metas, nodes, tags of a body that has nothing unusual about it; None when it has."""
    import pyarrow.compute as pc

    datas, metas = texts["data"], texts["meta"]
    if not len(datas) or datas.null_count or not _are_json(pa, datas):
        return None
    longest = pc.max(pc.binary_length(datas)).as_py()
    if metas is not None and metas.null_count < len(metas):
        given = metas.drop_null()
        max_length = pc.max(pc.binary_length(given)).as_py()
        longest += max_length
        if not (
            max_length <= limits.max_meta_bytes
            and pc.all(pc.starts_with(given, "{")).as_py()
            # Every key has a colon behind it, so few colons prove few keys.
            and pc.max(pc.count_substring(given, ":")).as_py() <= limits.max_meta_keys
            and _are_json(pa, given)
        ):
            return None
        metas = pc.fill_null(metas, "")
    else:
        metas = None
    if longest > limits.max_record_bytes:
        return None
    columns = [datas, metas]
    for names, max_length in ((texts["node"], limits.max_node_bytes), (texts["tag"], limits.max_tag_bytes)):
        if names is None or names.null_count == len(names):
            columns.append(None)
        elif (
            pc.max(pc.binary_length(names)).as_py() > max_length
            or pc.any(pc.match_substring_regex(names, _ESCAPED)).as_py()
        ):
            return None
        else:
            columns.append(pc.fill_null(pc.binary_join_element_wise('"', names, '"', ""), ""))
    return columns


def _are_json(pa: Any, texts: Any) -> bool:
    """Whether each of the texts is one JSON value and nothing else, not even a space around it."""
    import pyarrow.compute as pc

    lengths = pc.binary_length(texts)
    first = lengths.offset * 4
    measured = memoryview(lengths.buffers()[1])[first : first + len(lengths) * 4]
    # The decoder holds the interpreter lock. In pieces, so that the event loop can take it in between.
    bounds = _pieces(texts, 0, len(texts), PIECE_BYTES, len(texts))
    pieces = _joined(pa, texts, bounds, ",")
    return all(
        [
            proven_json(joined, bytes(measured[start * 4 : stop * 4]))
            for joined, (start, stop) in zip(pieces, pairwise(bounds), strict=True)
        ]
    )


def _unusual_columns(pa: Any, texts: dict[str, Any], limits: Limits, max_records: int) -> list[Any]:
    """The same, row by row. Raises InvalidRequest or RecordTooLarge."""
    lists = {name: None if column is None else column.to_pylist() for name, column in texts.items()}
    datas = lists["data"]
    assert datas is not None
    batch = columns_of(datas, lists["tag"], lists["node"], lists["meta"], limits, max_records)
    return [
        None if column is None else pa.array(column.split(SEPARATOR), pa.binary()).cast(pa.string())
        for column in (batch.data, batch.metas, batch.nodes, batch.tags)
    ]


# Partitions


def _chosen(pa: Any, table: Any, keys: Any, partition: int, partitions: int | None) -> Any:
    """The partition of each row; None when rows do not choose."""
    import pyarrow.compute as pc

    if "partition" not in table.column_names and keys is None:
        return None
    if partitions is None:
        raise InvalidRequest("one append goes to one partition; stage rows for several")
    if "partition" not in table.column_names:
        coded = pc.fill_null(keys, "").dictionary_encode()
        numbers = [hashed_partition(key, partitions) for key in coded.dictionary.to_pylist()]
        return pa.array(numbers, pa.int64()).take(coded.indices)
    try:
        column = pc.fill_null(table.column("partition").cast(pa.int64()), partition)
    except pa.ArrowException:
        raise InvalidRequest("column partition must hold whole numbers") from None
    chosen = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    bounds = pc.min_max(chosen)
    if len(chosen) and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < partitions:
        raise InvalidRequest(f"the topic has {partitions} partitions", detail={"partitions": partitions})
    return chosen


def _batches(pa: Any, columns: list[Any], chosen: Any, partition: int) -> list[Batch]:
    import pyarrow.compute as pc

    count = len(columns[0])
    numbers, ends = [partition], [count]
    if chosen is not None:
        bounds = pc.min_max(chosen)
        numbers = [bounds["min"].as_py()]
        if bounds["min"] != bounds["max"]:
            # Stable, so the rows of a partition keep their order.
            order = pc.sort_indices(chosen)
            runs = pc.run_end_encode(chosen.take(order))
            numbers, ends = runs.values.to_pylist(), runs.run_ends.to_pylist()
            columns = [None if column is None else column.take(order) for column in columns]
    # The rows of each partition, and the pages that many of them are divided into.
    bounds = [0]
    firsts = []
    for start, stop in pairwise([0, *ends]):
        firsts.append(len(bounds) - 1)
        bounds += _page_bounds(columns, start, stop)[1:]
    joined = [None if column is None else _joined(pa, column, bounds, "\0") for column in columns]
    pages = []
    for index, (start, stop) in enumerate(pairwise(bounds)):
        data, *rest = [b"" if column is None else bytes(column[index]) for column in joined]
        metas, nodes, tags = [text if text.strip(SEPARATOR) else None for text in rest]
        size = page_size(stop - start, data, metas, nodes, tags)
        pages.append(Page(0, stop - start, 0, data, metas, nodes, tags, size))
    divided = [pages[first:last] for first, last in pairwise([*firsts, len(pages)])]
    return [_batch(number, some) for number, some in zip(numbers, divided, strict=True)]


def _batch(partition: int, pages: list[Page]) -> Batch:
    count, size = sum([page.count for page in pages]), sum([page.size for page in pages])
    if len(pages) > 1:
        return Batch(count, b"", None, None, None, size, partition=partition, pages=pages)
    (page,) = pages
    return Batch(count, page.data, page.metas, page.nodes, page.tags, size, partition=partition)


def _page_bounds(columns: list[Any], start: int, stop: int) -> list[int]:
    """Where the pages of these rows begin and end: one page for a few rows."""
    length = sum([_length(column, start, stop) for column in columns if column is not None])
    if length + (stop - start) * RECORD_OVERHEAD <= MAX_JOINED_BYTES:
        return [start, stop]
    # Metas and names are smaller than the payloads they belong to, or both are small.
    return _pieces(columns[0], start, stop, PIECE_BYTES, PAGE_RECORDS)


def _pieces(texts: Any, start: int, stop: int, max_bytes: int, max_rows: int) -> list[int]:
    """Bounds of runs of rows within both limits; a row that is larger than `max_bytes` is a run of its own."""
    offsets = _offsets(texts)
    bounds = [start]
    while bounds[-1] < stop:
        first = bounds[-1]
        behind = bisect_right(offsets, offsets[first] + max_bytes, first + 1, min(first + max_rows, stop) + 1) - 1
        bounds.append(max(behind, first + 1))
    return bounds


def _length(texts: Any, start: int, stop: int) -> int:
    offsets = _offsets(texts)
    return offsets[stop] - offsets[start]


def _offsets(texts: Any) -> memoryview:
    return memoryview(texts.buffers()[1]).cast("b").cast("i")[texts.offset :]


def _joined(pa: Any, texts: Any, bounds: list[int], separator: str) -> list[memoryview]:
    """The texts from each bound to the next as one."""
    import pyarrow.compute as pc

    lists = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), texts)
    return [memoryview(text.as_buffer()) for text in pc.binary_join(lists, separator)]
