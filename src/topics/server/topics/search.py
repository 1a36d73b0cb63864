"""GET /v0/topic-search: all topics, searched and sorted by the server, a page at a time.

The order of a search is made in slices and in a thread, and kept for ORDER_MS: 100,000 topics sorted by rate take about 0.2 s,
no step of it on the loop more than 2 ms, and the pages that follow take less than a millisecond. The figures in a page are
always those of now.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from topics.api.topics import MAX_SEARCH_ROWS, SearchQuery
from topics.broker.broker import Broker, Topic
from topics.model.errors import TopicsError
from topics.model.steps import Steps
from topics.server.auth.authorization import Caller
from topics.server.lag import total_lag
from topics.server.limits import at_most
from topics.server.operations import Call, handles
from topics.server.queues.counts import job_counts
from topics.server.responses import send, send_error
from topics.server.topics.order import Order
from topics.server.topics.rates import Rates

log = logging.getLogger("topics.server")

NAMES_PER_STEP = 1_000
ORDER_MS = 3_000
MAX_ORDERS = 32


@handles("search_topics")
def search_topics(call: Call[None, SearchQuery]) -> None:
    service, broker, caller, query = call.service, call.broker, call.caller, call.query
    orders = service.orders
    key = (caller.name, *caller.prefixes, query.q, query.type, query.sort, query.order)
    limit = at_most(query.limit, MAX_SEARCH_ROWS)

    def answer(order: Order) -> None:
        topics = [broker.state.topics.get(name) for name in order.page(query.offset, limit)]
        rows = [_row(broker, service.rates, caller, topic) for topic in topics if topic is not None]
        send(call.request, 200, {"total": len(order.names), "offset": query.offset, "topics": rows})

    def made(order: Order | None, error: BaseException | None) -> None:
        if order is None:
            log.error("a search of topics failed", exc_info=error)
            send_error(call.request, TopicsError("internal error"))
            return
        orders[key] = order
        answer(order)

    def begin() -> None:
        known = orders.get(key)
        if known is not None and (broker.runtime.perf() - known.made_at) * 1000 < ORDER_MS:
            answer(known)
            return
        if len(orders) >= MAX_ORDERS:
            orders.clear()
        _make(broker, service.rates, caller, query, made)

    service.rates.refresh(broker, begin)


def _make(
    broker: Broker,
    rates: Rates,
    caller: Caller,
    query: SearchQuery,
    done: Callable[[Order | None, BaseException | None], None],
) -> None:
    """Find the names and bring them into order."""
    made_at = broker.runtime.perf()

    def found(result: tuple[list[str], list[float]] | None, error: BaseException | None) -> None:
        if result is None:
            done(None, error)
            return
        names, values = result
        if query.sort == "topic":
            if query.order == "desc":
                names.reverse()
            done(Order(names, None, made_at), None)
            return
        descending = query.order == "desc"

        def sort() -> Sequence[int]:
            return _sorted_indexes(values, descending=descending)

        def sorted_(indexes: Sequence[int] | None, failure: BaseException | None) -> None:
            done(None if indexes is None else Order(names, indexes, made_at), failure)

        broker.runtime.run_in_thread("bulk", sort, sorted_)

    broker.slices.run(_find(broker, rates, caller, query), found)


def _find(broker: Broker, rates: Rates, caller: Caller, query: SearchQuery) -> Steps[tuple[list[str], list[float]]]:
    """The names that match, in order, and the value of each that they are sorted by."""
    wanted = query.q.lower()
    value_of = None if query.sort == "topic" else VALUES[query.sort]
    names: list[str] = []
    values: list[float] = []
    everything = list(broker.state.names)
    for start in range(0, len(everything), NAMES_PER_STEP):
        for name in everything[start : start + NAMES_PER_STEP]:
            if (wanted and wanted not in name.lower()) or not caller.may_touch(name):
                continue
            if query.type or value_of is not None:
                topic = broker.state.topics.get(name)
                if topic is None or (query.type and topic.config.type != query.type):
                    continue
                if value_of is not None:
                    values.append(value_of(broker, rates, topic))
            names.append(name)
        yield
    return names, values


def _sorted_indexes(values: list[float], *, descending: bool) -> Sequence[int]:
    """The positions of the values in their order; equal values keep theirs. In a thread: pyarrow sorts without the GIL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = "descending" if descending else "ascending"
    indexes = pc.array_sort_indices(pa.array(values, pa.float64()), order=order)
    return memoryview(indexes.buffers()[1]).cast("Q") if len(values) else []


def _largest_lag(broker: Broker, topic: Topic) -> tuple[int, float]:
    """Records and seconds that the group which is farthest behind has to go."""
    largest = (0, 0.0)
    for group in topic.groups.values():
        lag = total_lag(broker, topic, group)
        largest = max(largest, (lag.records, lag.seconds))
    return largest


def _lost(topic: Topic) -> int:
    """Seqs whose records were lost: all below the floor, and the holes above it."""
    lost = 0
    for partition in topic.partitions:
        lost += partition.evict_floor - 1
        for hole in partition.holes:
            lost += max(0, hole.last - max(hole.first, partition.evict_floor) + 1)
    return lost


VALUES: dict[str, Callable[[Broker, Rates, Topic], float]] = {
    "rate": lambda _broker, rates, topic: (rates.of(topic) or (0.0, 0.0))[0],
    "count": lambda _broker, _rates, topic: topic.count,
    "bytes": lambda _broker, _rates, topic: topic.bytes,
    "lag": lambda broker, _rates, topic: _largest_lag(broker, topic)[0] if topic.groups else -1,
    "lost": lambda _broker, _rates, topic: _lost(topic),
    "last_write_ts": lambda _broker, _rates, topic: topic.last_write_ts or 0,
}


def _row(broker: Broker, rates: Rates, caller: Caller, topic: Topic) -> dict[str, Any]:
    rate = rates.of(topic)
    lag = _largest_lag(broker, topic)
    row = {
        "topic": topic.name,
        "type": topic.config.type,
        "durability": topic.config.durability,
        "partitions": len(topic.partitions),
        "count": topic.count,
        "bytes": topic.bytes,
        "append_per_s": None if rate is None else rate[0],
        "remove_per_s": None if rate is None else rate[1],
        "groups": len(topic.groups),
        "lag_records": lag[0],
        "lag_seconds": lag[1],
        "lost": _lost(topic),
        "last_write_ts": topic.last_write_ts,
    }
    if topic.config.type == "queue":
        row["queue"] = job_counts(broker, caller, topic)
    return row
