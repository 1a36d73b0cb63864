"""A task of a routing query: rows of the query become messages, are staged, and are committed.

Python handles a row by itself only where SQL could not make its payload or partition (`event` is set), and for rows that are
counted and not sent.

A batch for which the server has no stage space is run again in portions: tasks then commit PORTION_CHANGES changes at a time, without
stages. The producer of a portion is one partition of the change topic, its fence the seq of the last change that was committed. Every
task reads that fence first, so what was committed in portions is not sent again by a later attempt of either kind. The changes of a
partition must be in one task then: with two, the later changes could be committed first, and the fence would reject the earlier ones.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from topics.client import Client, RetryPolicy
from topics.model.partitioning import hashed_partition
from topics.spark.routing import codes
from topics.spark.routing.commit import StagesFull, add_refused, commit, drop_stages
from topics.spark.routing.message_sink import TaskResult
from topics.spark.routing.payloads import NoPayload, Payloads
from topics.spark.routing.report import Refused, TaskReport, decode_report, encode_report
from topics.spark.routing.staging import Staging
from topics.spark.routing.targets import Targets, decode_targets

if TYPE_CHECKING:
    import pyarrow as pa

RETRY_ATTEMPTS = 12
# Changes that are committed together when a batch is committed in portions. A change of it would let two attempts of one task
# commit overlapping portions.
PORTION_CHANGES = 100


def worker_client(url: str, token: str | None) -> Client:
    return Client(url, token, timeout_s=60.0, retry=RetryPolicy(attempts=RETRY_ATTEMPTS))


def producer_of(query_id: str) -> str:
    return f"route-{query_id}"


def portion_producer(query_id: str, partition: int) -> str:
    return f"route-{query_id}-{partition}"


def run_task(
    url: str,
    token: str | None,
    targets: str,
    batches: Iterator[Any],
    *,
    portions: bool,
    ids: tuple[str, int] | None = None,
) -> TaskResult:
    """Run a task. `ids` are the ids of query and batch where Spark does not know them."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    query_id: str | None
    batch: str | int | None
    if ids is not None:
        query_id, batch = ids
    else:
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch is None:
        raise RuntimeError("Spark did not say which query and batch this task belongs to")
    with worker_client(url, token) as client:
        task = RoutingTask(client, decode_targets(targets), query_id, context.partitionId())
        try:
            return task.run(batches, int(batch), portions=portions)
        except StagesFull as error:
            return TaskResult(query_id, b"", committed=False, stages_full=str(error))


def check_stages(results: list[TaskResult]) -> None:
    """Raise StagesFull if the server had no space for the stages of a task."""
    for result in results:
        if result.stages_full is not None:
            raise StagesFull(result.stages_full)


def commit_batch(url: str, token: str | None, results: list[TaskResult], producer: str, batch: int) -> list[bytes]:
    """Commit what the tasks of a batch staged and handed back. Returns their reports, with the result of the commit."""
    reports = sorted([decode_report(result.report) for result in results], key=lambda report: report.task)
    with worker_client(url, token) as client:
        commit_reports(client, reports, producer, batch)
    return [encode_report(report) for report in reports]


def commit_reports(client: Client, reports: list[TaskReport], producer: str, batch: int) -> None:
    """Commit the pieces of all reports together; the first report has the result."""
    pieces = [piece for report in reports for piece in report.pieces]
    if not pieces:
        return
    outcome = commit(client, pieces, producer, batch)
    for report in reports:
        report.pieces = []
    if not outcome.deduped:
        reports[0].messages += outcome.messages
    for route, refused in outcome.refused.items():
        add_refused(reports[0].refused, {route: refused.count}, refused.message)


def drop_batch(url: str, token: str | None, reports: list[bytes]) -> None:
    """Free the stages of tasks whose batch is not committed."""
    pieces = [piece for report in reports for piece in decode_report(report).pieces]
    if any([piece.stage is not None for piece in pieces]):
        with worker_client(url, token) as client:
            drop_stages(client, pieces)


class RoutingTask:
    def __init__(self, client: Client, targets: Targets, query_id: str, task: int) -> None:
        self._client = client
        self._targets = targets
        self._query_id = query_id
        versions = {index: target.version for index, target in enumerate(targets.targets)}
        self._report = TaskReport(task, versions=versions)
        self._fences: dict[int, int] = {}

    def run(self, batches: Iterator[Any], batch: int, *, portions: bool) -> TaskResult:
        staging = Staging(self._client)
        tasks = 0
        try:
            for rows in batches:
                if rows.num_rows:
                    tasks = rows.column(8)[0].as_py()
                    self._add(rows, staging, portions=portions)
            staging.finish()
        except BaseException:
            staging.drop()
            raise
        report = self._report
        report.pieces = staging.pieces
        self._add_refused(staging.refused)
        if tasks == 1:
            commit_reports(self._client, [report], producer_of(self._query_id), batch)
        return TaskResult(self._query_id, encode_report(report), committed=tasks == 1)

    def _add(self, rows: Any, staging: Staging, *, portions: bool) -> None:
        for partition, some in self._by_source(rows):
            messages = self._messages(self._not_committed(partition, some), staging)
            if portions:
                self._commit_portions(partition, messages)
                continue
            for topic, each in _by_topic(messages, self._targets):
                staging.add(topic, each)

    def _by_source(self, rows: Any) -> Iterator[tuple[int, Any]]:
        """The rows of each partition of the change topic, in order."""
        import pyarrow.compute as pc

        numbers = rows.column(5)
        found = pc.unique(numbers).to_pylist()
        if len(found) == 1:
            yield found[0], rows
            return
        for number in found:
            yield number, rows.filter(pc.equal(numbers, number))

    def _not_committed(self, partition: int, rows: Any) -> Any:
        """The rows without the changes that were committed in portions by an earlier attempt."""
        import pyarrow.compute as pc

        fence = self._fences.get(partition)
        if fence is None:
            known = self._client.last_commit(portion_producer(self._query_id, partition))
            fence = self._fences[partition] = -1 if known is None else known.batch
        if fence < 0 or rows.column(6)[0].as_py() > fence:
            return rows
        return rows.filter(pc.greater(rows.column(6), fence))

    def _messages(self, rows: Any, staging: Staging) -> "pa.Table":
        """The messages among the rows: data, meta, partition, route, src_seq. Counts the other rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        routes = rows.column(0)
        if rows.num_rows and pc.min(routes).as_py() < 0:
            is_message = pc.greater(routes, 0)
            self._count(rows.filter(pc.invert(is_message)))
            rows = rows.filter(is_message)
        data, partitions = rows.column(2), rows.column(1)
        if data.null_count or partitions.null_count:
            rows, data, partitions = self._made_in_python(rows, staging)
        return pa.table(
            {
                "data": data,
                "meta": rows.column(3),
                "partition": partitions.cast(pa.int64()),
                "route": pc.subtract(rows.column(0), 1),
                "src_seq": rows.column(6),
            }
        )

    def _made_in_python(self, rows: Any, staging: Staging) -> tuple[Any, Any, Any]:
        """The rows with the payloads and partitions that SQL did not make, without those that cannot be made."""
        import pyarrow as pa

        data, partitions = rows.column(2).to_pylist(), rows.column(1).to_pylist()
        events, routes = rows.column(4), rows.column(0)
        kept = []
        for index, (text, place) in enumerate(zip(data, partitions, strict=True)):
            if text is None or place is None:
                number = routes[index].as_py() - 1
                target = self._targets.targets[number]
                try:
                    payloads = Payloads(events[index].as_py())
                    if text is None:
                        data[index] = payloads.get(target.mode, target.key_columns).decode()
                    if place is None:
                        partitions[index] = hashed_partition(payloads.key_text(), target.partitions)
                except (NoPayload, msgspec.MsgspecError) as error:
                    staging.refuse(number, str(error))
                    continue
            kept.append(index)
        chosen = pa.array(kept, pa.int64())
        return (
            rows.take(chosen),
            pa.array([data[index] for index in kept], pa.string()),
            pa.array([partitions[index] for index in kept], pa.int32()),
        )

    def _count(self, rows: Any) -> None:
        report, targets = self._report, self._targets
        for code, partition, seq, epoch in zip(
            *[rows.column(index).to_pylist() for index in (0, 5, 6, 7)], strict=True
        ):
            kind = codes.EVENT_KINDS.get(code)
            if kind is not None:
                report.events[kind] = report.events.get(kind, 0) + 1
                continue
            is_missing = -code > codes.MISSING
            counts = report.missing if is_missing else report.failed
            for route in targets.conditions[-code - 1 - (codes.MISSING if is_missing else 0)]:
                target = targets.targets[route]
                # A change that is older than the route cannot fail it.
                if target.routes_change(epoch, partition, seq):
                    counts[target.version] = counts.get(target.version, 0) + 1

    def _commit_portions(self, partition: int, messages: "pa.Table") -> None:
        """Commit the messages of one partition of the change topic in portions, each with the seq of its last change as fence."""
        seqs = messages.column("src_seq").to_pylist()
        start = 0
        while start < len(seqs):
            end = start
            # A portion ends at a fixed place, so that two attempts of one task never commit overlapping ones.
            while end < len(seqs) and seqs[end] // PORTION_CHANGES == seqs[start] // PORTION_CHANGES:
                end += 1
            staging = Staging(self._client)
            for topic, each in _by_topic(messages.slice(start, end - start), self._targets):
                staging.add(topic, each)
            staging.keep_all()
            producer = portion_producer(self._query_id, partition)
            outcome = commit(self._client, staging.pieces, producer, seqs[end - 1])
            if not outcome.deduped:
                self._report.messages += outcome.messages
            self._add_refused(staging.refused)
            self._add_refused(outcome.refused)
            start = end

    def _add_refused(self, refused: dict[int, Refused]) -> None:
        for route, each in refused.items():
            add_refused(self._report.refused, {route: each.count}, each.message)


def _by_topic(messages: "pa.Table", targets: Targets) -> Iterator[tuple[str, Any]]:
    """The messages of each topic, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not messages.num_rows:
        return
    names = [target.topic for target in targets.targets]
    known = list(dict.fromkeys(names))
    numbers = {name: index for index, name in enumerate(known)}
    topic_of = pa.array([numbers[name] for name in names], pa.int32())
    topics = topic_of.take(messages.column("route").combine_chunks())
    order = pc.sort_indices(topics)
    runs = pc.run_end_encode(topics.take(order))
    ordered = messages.take(order)
    start = 0
    for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield known[number], ordered.slice(start, end - start)
        start = end
