"""GET /v0/topics/:topic/ranges: which seqs are live, which were lost and which were deleted."""

from typing import Any

from topics.api.topics import RangesQuery
from topics.broker.broker import Partition
from topics.engine.partitions.reading import list_ranges
from topics.model.errors import TopicsError
from topics.model.steps import Steps
from topics.server.operations import Call, handles
from topics.server.responses import send, send_error

MAX_RANGES = 200


@handles("get_ranges")
def get_ranges(call: Call[None, RangesQuery]) -> None:
    broker = call.broker
    topic = broker.topic(call.name)
    partition = broker.partition(topic, call.query.partition)
    broker.evict(topic, partition)

    def done(ranges: list[dict[str, Any]] | None, error: BaseException | None) -> None:
        if ranges is None:
            send_error(call.request, error if isinstance(error, TopicsError) else TopicsError("internal error"))
            return
        fields = {"topic": topic.name, "partition": partition.number, "head_seq": partition.head_seq}
        truncated = len(ranges) == MAX_RANGES and ranges[0]["first_seq"] > 1
        send(call.request, 200, {**fields, "ranges": ranges, "truncated": truncated})

    broker.slices.run(_described(partition), done)


def _described(partition: Partition) -> Steps[list[dict[str, Any]]]:
    """The ranges with times: that of the first record of a live one; others are older than the live one behind them."""
    ranges = yield from list_ranges(partition, MAX_RANGES)
    described: list[dict[str, Any]] = []
    next_ts: int | None = None
    for each in reversed(ranges):
        yield
        fields: dict[str, Any] = {"kind": each.kind, "first_seq": each.first_seq, "last_seq": each.last_seq}
        if each.reason is not None:
            fields["reason"] = each.reason
        if each.kind == "live" and partition.is_live(each.first_seq):
            next_ts = fields["since_ts"] = partition.ts_at(each.first_seq)
        elif next_ts is not None:
            fields["until_ts"] = next_ts
        described.append(fields)
    return described[::-1]
