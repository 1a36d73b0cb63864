"""The methods of `AsyncClient` that send one request. Generated from the declarations in topics.api by `make generate`; do not edit."""

from __future__ import annotations  # keeps the import quick

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import UNSET, UnsetType

from topics.client import calls
from topics.client.call import Call
from topics.client.values import (
    Acked,
    Appended,
    ArchivedTo,
    ArchiveGone,
    ArchiveInfo,
    ArchiveList,
    ChangesSent,
    Claimed,
    Committed,
    CommitWrite,
    ConfigChange,
    Configured,
    ConnectionList,
    Consumed,
    Deleted,
    Disconnected,
    Dropped,
    Extended,
    GroupAcked,
    GroupList,
    Heads,
    Health,
    JobStatus,
    LastCommit,
    Left,
    LoggedIn,
    Nacked,
    OffsetStart,
    Overview,
    Page,
    PipelineGone,
    PipelineInfo,
    PipelineList,
    PipelineOrders,
    QueuedJobs,
    Ready,
    Redriven,
    Root,
    RouteList,
    RouterDropped,
    RouterInfo,
    RouterPage,
    SeekTarget,
    SeqRanges,
    Sought,
    SqlResult,
    Staged,
    StageDropped,
    StagesRenewed,
    Start,
    TableGone,
    TableInfo,
    TablePage,
    TopicInfo,
    TopicPage,
    TopicSearch,
    WatchSession,
    WhoAmI,
)

T = TypeVar("T")


class AsyncOperations:
    """One method for each operation of the API. `AsyncClient` sends the requests."""

    async def run(self, call: Call[T]) -> T:
        """Send the call and decode its response."""
        raise NotImplementedError

    # Topics and records

    async def list_topics(
        self, *, prefix: str | None = None, cursor: str | None = None, page_size: int | None = None, touch: bool = False
    ) -> TopicPage:
        """List topics by name.

        A key with prefixes sees the topics that it may touch.

        prefix: Only names that begin with this.
        cursor: `next_cursor` of the page before.
        page_size: Entries in a page; more than 1000 count as 1000. Default 100.
        touch: Count this as a read of the listed topics.

        Example:

            await client.list_topics(prefix="chat.")
        """
        return await self.run(calls.list_topics(prefix=prefix, cursor=cursor, page_size=page_size, touch=touch))

    async def create(
        self,
        topic: str,
        *,
        type: Literal["log", "queue"] | None = None,
        ttl_ms: int | None = None,
        cap_records: int | None = None,
        cap_bytes: int | None = None,
        discard: Literal["old", "reject"] | None = None,
        durable: bool | None = None,
        durability: Literal["ephemeral", "memory", "disk", "fsync"] | None = None,
        priority: int | None | UnsetType = UNSET,
        auto_priority: bool | None = None,
        auto_create: bool | None = None,
        idempotency_window_ms: int | None = None,
        dedupe_node: bool | None = None,
        lease_ms: int | None = None,
        claim_jitter_ms: int | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | None | UnsetType = UNSET,
        leases_durable: bool | None = None,
        partitions: int | None = None,
        dry_run: bool = False,
    ) -> Configured:
        """Create a topic, or change the named fields of its configuration.

        A body that is absent creates a topic with defaults.

        type: `queue` for jobs with leases. Fixed when the topic is created.
        ttl_ms: Records expire this long after their append; 0 for never.
        cap_records: Most records that are kept; 0 for no cap.
        cap_bytes: Most bytes that are kept; 0 for no cap.
        discard: At a cap, drop the oldest records or reject the write (422 `topic_full`).
        durable: Short for `durability` fsync (true) or disk (false).
        durability: Where a write is stored when it is acknowledged. Can be changed.
        priority: Fixed priority, clamped to -1000..1000; null for the automatic one.
        auto_priority: Derive the priority from the last read, if none is fixed.
        auto_create: Whether a write may create the topic.
        idempotency_window_ms: How long idempotency keys are remembered.
        dedupe_node: Whether reads may leave out records by `node`.
        lease_ms: Queues: default lease of a claim, clamped to 100..86400000.
        claim_jitter_ms: Queues: claims wait this long and share the jobs evenly; at most 5000.
        max_deliveries: Queues: deliveries before a job becomes a dead letter; 0 for no limit.
        dead_letter: Queues: topic for jobs over `max_deliveries`; null for none.
        leases_durable: Queues: leases survive a restart.
        partitions: Number of logs. Fixed when the topic is created; not in `config`.
        dry_run: Answer what the change would drop, and change nothing.

        Example:

            await client.create("jobs", type="queue", max_deliveries=5, dead_letter="jobs.dead")
        """
        return await self.run(
            calls.create(
                topic,
                type=type,
                ttl_ms=ttl_ms,
                cap_records=cap_records,
                cap_bytes=cap_bytes,
                discard=discard,
                durable=durable,
                durability=durability,
                priority=priority,
                auto_priority=auto_priority,
                auto_create=auto_create,
                idempotency_window_ms=idempotency_window_ms,
                dedupe_node=dedupe_node,
                lease_ms=lease_ms,
                claim_jitter_ms=claim_jitter_ms,
                max_deliveries=max_deliveries,
                dead_letter=dead_letter,
                leases_durable=leases_durable,
                partitions=partitions,
                dry_run=dry_run,
            )
        )

    async def info(self, topic: str, *, touch: bool = True) -> TopicInfo:
        """Show the state of a topic, named by its name or its alias.

        touch: Count this as a read, for the automatic priority.

        Example:

            await client.info("chat.messages")
        """
        return await self.run(calls.info(topic, touch=touch))

    async def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        """Delete a topic with all its records, groups, routes and routers.

        A key with prefixes gets 403 when a router connects the topic with one that it may not touch.

        if_empty: Answer 409 `topic_not_empty` instead of deleting records.

        Example:

            await client.drop("chat.messages")
        """
        return await self.run(calls.drop(topic, if_empty=if_empty))

    async def append(
        self,
        topic: str,
        records: Sequence[Any],
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        create: bool | None = None,
        config: ConfigChange | Mapping[str, Any] | None = None,
        disable_backpressure: bool = False,
        partition: int | None = None,
        partition_key: str | None = None,
        return_seqs: bool = True,
    ) -> Appended:
        """Append records, all or none.

        Creates the topic if it does not exist, unless `create` is false. `config` then requires the scope admin.

        records: Payloads, or `RecordIn` for records with a tag, node or meta; 1 to 10,000.
        node: Who writes: default for the records. Up to 128 bytes.
        idempotency_key: A repeat with the same key appends nothing and answers as the first. Up to 256 characters. Made up if it is not given, so that a retry appends nothing twice.
        create: Whether to create the topic if it does not exist; false answers 404 instead.
        config: Configuration for a topic that this write creates; requires `admin`. Ignored if the topic exists.
        disable_backpressure: Wait under load instead of getting 429.
        partition: Partition to append to.
        partition_key: Text whose hash selects the partition; not together with `partition`.
        return_seqs: Whether the response lists all seqs.

        Example:

            await client.append("chat.messages", [RecordIn({"text": "hello"}, tag="room-1")])
        """
        return await self.run(
            calls.append(
                topic,
                records,
                node=node,
                idempotency_key=idempotency_key,
                create=create,
                config=config,
                disable_backpressure=disable_backpressure,
                partition=partition,
                partition_key=partition_key,
                return_seqs=return_seqs,
            )
        )

    async def append_arrow(
        self, topic: str, stream: bytes, *, return_seqs: bool = True, partition: int | None = None
    ) -> Appended:
        """Append records, all or none, from an Arrow IPC stream.

        stream: Arrow IPC stream.
        return_seqs: Whether the response lists all seqs.
        partition: Partition for an Arrow body.

        Example:

            import pyarrow as pa

            rows = pa.table({"data": ['{"sku": "MUG"}']})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            await client.append_arrow("orders", sink.getvalue().to_pybytes())
        """
        return await self.run(calls.append_arrow(topic, stream, return_seqs=return_seqs, partition=partition))

    async def diff(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int | None = None,
        node: str | Sequence[str] | None = None,
        include_tags: bool = True,
        include_meta: bool = True,
        wait_ms: int | None = None,
        max_batch_bytes: int | None = None,
        from_ts: int | None = None,
        epoch: int | None = None,
        to_seq: int | None = None,
        partition: int | None = None,
    ) -> Page:
        """Read records after a cursor, at once or as soon as there are some.

        from_seq: Read records after this seq; 0 from the beginning.
        limit: Most records in the page; 0 for the default of 256, at most 1000.
        node: Leave out records of these nodes; at most 1000.
        include_tags: Include `$tag`.
        include_meta: Include `meta`.
        wait_ms: Wait this long for records if there are none; at most 30,000.
        max_batch_bytes: Bytes of the page; 0 for the default of 1 MiB, at most 8 MiB.
        from_ts: Begin at the first record at or after this Unix time in ms.
        epoch: `epoch` of an earlier page: a topic created again answers a tombstone.
        to_seq: Last seq to read. Allows pages of up to 10,000 records.
        partition: Partition to read.

        Example:

            await client.diff("chat.messages", 12, wait_ms=1000)
        """
        return await self.run(
            calls.diff(
                topic,
                from_seq,
                limit=limit,
                node=node,
                include_tags=include_tags,
                include_meta=include_meta,
                wait_ms=wait_ms,
                max_batch_bytes=max_batch_bytes,
                from_ts=from_ts,
                epoch=epoch,
                to_seq=to_seq,
                partition=partition,
            )
        )

    async def diff_arrow(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        limit: int | None = None,
        node: str | Sequence[str] | None = None,
        include_tags: bool = True,
        include_meta: bool = True,
        max_batch_bytes: int | None = None,
        from_ts: int | None = None,
        epoch: int | None = None,
        to_seq: int | None = None,
        match: Any = None,
        partition: int | None = None,
    ) -> bytes:
        """The page as an Arrow IPC stream; its cursor fields are in the metadata of the schema.

        from_seq: Read records after this seq; 0 from the beginning.
        limit: Most records in the page; 0 for the default of 256, at most 1000.
        node: Leave out records of these nodes; at most 1000.
        include_tags: Include `$tag`.
        include_meta: Include `meta`.
        max_batch_bytes: Bytes of the page; 0 for the default of 1 MiB, at most 8 MiB.
        from_ts: Begin at the first record at or after this Unix time in ms.
        epoch: `epoch` of an earlier page: a topic created again answers a tombstone.
        to_seq: Last seq to read. Allows pages of up to 10,000 records.
        match: Only records whose tag matches, as in a delete. Answered at once; `node` has no effect then.
        partition: Partition to read.

        Example:

            await client.diff_arrow("chat.messages", to_seq=1000)
        """
        return await self.run(
            calls.diff_arrow(
                topic,
                from_seq,
                limit=limit,
                node=node,
                include_tags=include_tags,
                include_meta=include_meta,
                max_batch_bytes=max_batch_bytes,
                from_ts=from_ts,
                epoch=epoch,
                to_seq=to_seq,
                match=match,
                partition=partition,
            )
        )

    async def delete(
        self,
        topic: str,
        *,
        before_seq: int | None = None,
        match: Any | UnsetType = UNSET,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Deleted:
        """Delete records for good, by seq, by tag, or both.

        before_seq: Records with a smaller seq.
        match: Records by tag: a text, `["tag","Eq",text]` or `["tag","Glob","prefix*"]`.
        partition: Partition to delete from.
        dry_run: Answer how many records match, and delete nothing.

        Example:

            await client.delete("chat.messages", match=["tag", "Eq", "room-1"])
        """
        return await self.run(
            calls.delete(topic, before_seq=before_seq, match=match, partition=partition, dry_run=dry_run)
        )

    async def get_ranges(self, topic: str, *, partition: int | None = None) -> SeqRanges:
        """Show which seqs of a partition are live, were lost, or were deleted.

        partition: Partition to describe.

        Example:

            await client.get_ranges("chat.messages")
        """
        return await self.run(calls.get_ranges(topic, partition=partition))

    async def search_topics(
        self,
        *,
        q: str | None = None,
        type: Literal["", "log", "queue"] | None = None,
        sort: Literal["topic", "rate", "count", "bytes", "lag", "lost", "last_write_ts"] = "topic",
        order: Literal["asc", "desc"] = "asc",
        offset: int | None = None,
        limit: int | None = None,
    ) -> TopicSearch:
        """Search all topics by name and sort them by name, rate, size, lag or losses.

        A key with prefixes sees the topics that it may touch. The order is kept for a few seconds, so that pages fit together.

        q: Only topics whose name contains this.
        type: Only topics of this type.
        sort: Order of the topics; equal ones by name.
        offset: How many topics to pass over.
        limit: Most topics in the response; at most 500. Default 100.

        Example:

            await client.search_topics(q="chat", sort="rate", order="desc", limit="20")
        """
        return await self.run(calls.search_topics(q=q, type=type, sort=sort, order=order, offset=offset, limit=limit))

    async def heads(self, known: Mapping[str, Mapping[int, int]], *, wait_ms: int | None = None) -> Heads:
        """Show how far the partitions of many topics are; waits, if wanted, until one is further.

        known: By topic and partition, the last seq that is known; at most 10,000 topics.
        wait_ms: Wait this long until one is further; at most 30,000.

        Example:

            await client.heads({"orders": {0: 12, 1: 40}}, wait_ms=500)
        """
        return await self.run(calls.heads(known, wait_ms=wait_ms))

    # Queues

    async def claim(
        self,
        topic: str,
        node: str,
        max: int = 1,
        *,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        partition: int | None = None,
    ) -> Claimed:
        """Lease jobs of a queue, at once or as soon as there are some.

        node: Name of the worker; 1 to 128 bytes.
        max: Most jobs to lease; at most 1000.
        lease_ms: Lease of these jobs, clamped to 100..86400000; default that of the queue.
        wait_ms: Wait this long for jobs if there are none; at most 30,000.
        partition: Partition to claim from.

        Example:

            await client.claim("jobs", "worker-1", 10)
        """
        return await self.run(calls.claim(topic, node, max, lease_ms=lease_ms, wait_ms=wait_ms, partition=partition))

    async def ack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[str] | None = None,
        partition: int | None = None,
    ) -> Acked:
        """Finish jobs: they are deleted.

        node: Name of the worker; 1 to 128 bytes.
        seqs: 1 to 1000 jobs.
        lease_ids: `lease_id` of each job, in the same order: jobs with another lease are skipped.
        partition: Partition of the jobs.

        Example:

            await client.ack("jobs", "worker-1", [41])
        """
        return await self.run(calls.ack(topic, node, seqs, lease_ids=lease_ids, partition=partition))

    async def nack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[str] | None = None,
        partition: int | None = None,
        delay_ms: int | None = None,
        reason: str | None = None,
    ) -> Nacked:
        """Return jobs to the queue, at once or after a delay.

        node: Name of the worker; 1 to 128 bytes.
        seqs: 1 to 1000 jobs.
        lease_ids: `lease_id` of each job, in the same order: jobs with another lease are skipped.
        partition: Partition of the jobs.
        delay_ms: They become claimable after this long; at most 24 hours.
        reason: Why: `$dead_letter_reason` in the `meta` of a dead letter. Cut after 1000 characters, kept in memory.

        Example:

            await client.nack("jobs", "worker-1", [41], delay_ms=5000)
        """
        return await self.run(
            calls.nack(topic, node, seqs, lease_ids=lease_ids, partition=partition, delay_ms=delay_ms, reason=reason)
        )

    async def extend(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        lease_ms: int,
        *,
        lease_ids: Sequence[str] | None = None,
        partition: int | None = None,
    ) -> Extended:
        """Extend the leases of jobs.

        node: Name of the worker; 1 to 128 bytes.
        seqs: 1 to 1000 jobs.
        lease_ms: The leases end this long from now, clamped to 100..86400000.
        lease_ids: `lease_id` of each job, in the same order: jobs with another lease are skipped.
        partition: Partition of the jobs.

        Example:

            await client.extend("jobs", "worker-1", [41], 60000)
        """
        return await self.run(calls.extend(topic, node, seqs, lease_ms, lease_ids=lease_ids, partition=partition))

    async def list_jobs(
        self, topic: str, *, state: Literal["ready", "delayed", "in_flight"] = "ready", limit: int | None = None
    ) -> QueuedJobs:
        """Show jobs that are ready, delayed or leased, without leasing them.

        state: Which jobs.
        limit: Most jobs in the response; at most 500. Default 100.

        Example:

            await client.list_jobs("jobs", state="in_flight")
        """
        return await self.run(calls.list_jobs(topic, state=state, limit=limit))

    async def redrive(
        self,
        topic: str,
        *,
        queue: str | None = None,
        seqs: Sequence[int] | None = None,
        match: Any = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Move dead letters back to the queues they came from.

        `topic` is the dead-letter topic. Each job is in exactly one of the two at any time, also after a crash. It gets a new seq at the end of its queue and counts as never delivered. One request moves at most 10,000 jobs.

        queue: Only those that came from this queue.
        seqs: Only these, at most 10,000.
        match: Only those whose tag matches, as in a delete.
        dry_run: Answer how many would be moved, and move nothing.

        Example:

            await client.redrive("jobs.dead", queue="jobs", dry_run=True)
        """
        return await self.run(calls.redrive(topic, queue=queue, seqs=seqs, match=match, dry_run=dry_run))

    # Live streams

    async def create_watch(
        self,
        topics: Mapping[str, Start | Mapping[str, Any]],
        *,
        node: str | Sequence[str] | None = None,
        limit: int | None = None,
        max_batch_bytes: int | None = None,
        include_meta: bool = True,
        include_tags: bool = False,
        include_data: bool = True,
        consistency: Literal["eventual", "strong"] = "eventual",
        cursor: str | None = None,
        heartbeat_ms: int | None = None,
        event_names: Literal["sse", "websocket"] = "sse",
        lenient: bool = False,
    ) -> WatchSession:
        """Make a watch session for up to 256 topics.

        topics: Topics with where to begin; 1 to 256.
        node: Leave out records of these nodes; at most 1000.
        limit: Most records in an event; 0 for the default of 256, at most 1000.
        max_batch_bytes: Bytes of an event; at most 8 MiB. Default 262144.
        include_meta: Include `meta`.
        include_tags: Include `$tag`.
        include_data: Include `data`.
        consistency: strong: events only after the records are synced.
        cursor: Id of an event of an earlier session: the topics it names begin there.
        heartbeat_ms: Interval of heartbeats, clamped to 1000..60000. Default 15000.
        event_names: Names of the events: `caught-up` (sse) or `caught_up` (websocket).
        lenient: Leave out topics that do not exist, instead of 404.

        Example:

            await client.create_watch({"chat.messages": {"tail": True}})
        """
        return await self.run(
            calls.create_watch(
                topics,
                node=node,
                limit=limit,
                max_batch_bytes=max_batch_bytes,
                include_meta=include_meta,
                include_tags=include_tags,
                include_data=include_data,
                consistency=consistency,
                cursor=cursor,
                heartbeat_ms=heartbeat_ms,
                event_names=event_names,
                lenient=lenient,
            )
        )

    async def list_connections(self) -> ConnectionList:
        """List watch streams, WebSockets, work streams and idle watch sessions.

        A key with prefixes sees the connections all of whose topics it may touch.

        Example:

            await client.list_connections()
        """
        return await self.run(calls.list_connections())

    async def delete_connection(self, connection: str) -> Disconnected:
        """End a live connection or an idle watch session.

        A client that still runs connects again. Jobs of a work stream return to their queue.

        Example:

            await client.delete_connection("c7")
        """
        return await self.run(calls.delete_connection(connection))

    # Consumer groups

    async def consume(
        self,
        topic: str,
        group: str,
        *,
        start: Literal["Earliest", "Latest", "earliest", "latest", "EARLIEST", "LATEST"]
        | OffsetStart
        | Mapping[str, Any]
        | None = None,
        limit: int | None = None,
        partition: int | None = None,
        timeout_seconds: int | None = None,
        consumer: str | None = None,
        received: Mapping[int, int] | None = None,
    ) -> Consumed:
        """Fetch the next messages of a consumer group, at once or as soon as there are some.

        A poll delivers again what is not acknowledged, unless `received` says that the member has it.

        topic: Name or alias of the topic.
        group: Name of the consumer group; 1 to 255 characters.
        start: Where a group without a position begins. Default Earliest.
        limit: Most messages; default 100, at most 1000.
        partition: Partition to read; default the member's own, or 0.
        timeout_seconds: Wait this long for messages; default and limit are settings.
        consumer: Name of the member: members share the partitions. 1 to 255 characters.
        received: By partition, the last offset that the member has: delivery continues after it, also before it is acknowledged. Counts until the session ends or the group is moved.

        Example:

            await client.consume("orders", "billing", limit=10)
        """
        return await self.run(
            calls.consume(
                topic,
                group,
                start=start,
                limit=limit,
                partition=partition,
                timeout_seconds=timeout_seconds,
                consumer=consumer,
                received=received,
            )
        )

    async def ack_group(
        self, topic: str, group: str, upto_offset: int, *, partition: int | None = None, consumer: str | None = None
    ) -> GroupAcked:
        """Acknowledge all messages of a partition up to an offset.

        topic: Name or alias of the topic.
        group: Name of the consumer group; 1 to 255 characters.
        upto_offset: All messages up to this offset.
        partition: Partition of the messages.
        consumer: Member that polled them: 409 when it does not own the partition any more, or when a live member owns it and this is absent.

        Example:

            await client.ack_group("orders", "billing", 1, partition=0)
        """
        return await self.run(calls.ack_group(topic, group, upto_offset, partition=partition, consumer=consumer))

    async def seek_group(
        self,
        topic: str,
        group: str,
        to: Literal["Earliest", "Latest", "earliest", "latest", "EARLIEST", "LATEST"] | SeekTarget | Mapping[str, Any],
        *,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Sought:
        """Move the position of a consumer group.

        topic: Name or alias of the topic.
        group: Name of the consumer group; 1 to 255 characters.
        to: Where the group continues.
        partition: Partition to move; default all.
        dry_run: Answer what would happen, and change nothing.

        Example:

            await client.seek_group("orders", "billing", "Earliest")
        """
        return await self.run(calls.seek_group(topic, group, to, partition=partition, dry_run=dry_run))

    async def list_groups(
        self, *, topic: str | None = None, group: str | None = None, q: str | None = None, limit: int | None = None
    ) -> GroupList:
        """List consumer groups with their members, partitions and lag.

        A key with prefixes sees the groups of topics that it may touch.

        topic: Only groups of this topic; its name or its alias.
        group: Only this group.
        q: Only groups whose name, or whose topic's name, contains this.
        limit: Most groups in the response; at most 1000. Default 100.

        Example:

            await client.list_groups(topic="orders")
        """
        return await self.run(calls.list_groups(topic=topic, group=group, q=q, limit=limit))

    async def leave_group(self, topic: str, group: str, consumer: str) -> Left:
        """End the session of a member; its partitions go to the others.

        topic: Name or alias of the topic.
        group: Name of the consumer group; 1 to 255 characters.
        consumer: Name of the member.

        Example:

            await client.leave_group("orders", "billing", "c1")
        """
        return await self.run(calls.leave_group(topic, group, consumer))

    # SQL

    async def run_sql(
        self, statement: str, *, params: Sequence[str | int | float | bool | None] | None = None
    ) -> SqlResult:
        """Run one SQL statement.

        A statement requires the scope of the operation that it corresponds to, and the key must be allowed to touch every name in it. See docs/sql.md for the statements and the system tables.

        statement: The statement. Parameters are written as `?`.
        params: Values of the parameters, in order; bound, never pasted.

        Example:

            await client.run_sql("SELECT topic_id, bytes FROM system.topics WHERE topic_id = ?", params=["orders"])
        """
        return await self.run(calls.run_sql(statement, params=params))

    # Routers

    async def list_routers(
        self,
        *,
        prefix: str | None = None,
        cursor: str | None = None,
        page_size: int | None = None,
        source: str | None = None,
        dest: str | None = None,
        details: bool = False,
    ) -> RouterPage:
        """List routers by name.

        prefix: Only names that begin with this.
        cursor: `next_cursor` of the page before.
        page_size: Entries in a page; more than 1000 count as 1000. Default 100.
        source: Only routers from this topic.
        dest: Only routers to this topic.
        details: Also list the lag and the state of each router.

        Example:

            await client.list_routers(source="orders")
        """
        return await self.run(
            calls.list_routers(
                prefix=prefix, cursor=cursor, page_size=page_size, source=source, dest=dest, details=details
            )
        )

    async def put_router(
        self,
        router: str,
        source: str,
        dest: str,
        *,
        preserve_node: bool | None = None,
        preserve_tag: bool | None = None,
        create_dest: bool = True,
        filter: Any | UnsetType = UNSET,
        allow_cycle: bool | None = None,
        guarantee: Literal["at_least_once", "exactly_once"] | None = None,
        from_: Literal["latest", "earliest"] = "latest",
    ) -> RouterInfo:
        """Create a router, or change the named options of one.

        source: Topic to read. Cannot change.
        dest: Topic to write. Cannot change; must differ from the source.
        preserve_node: Copies keep `$node`. Default true.
        preserve_tag: Copies keep `$tag`. Default true.
        create_dest: Create the dest if it does not exist.
        filter: Forward records by tag, as in a delete; null for all.
        allow_cycle: Allow a cycle of routers. Default false.
        guarantee: Default at_least_once.
        from_: A new router also forwards what the source holds: earliest.

        Example:

            await client.put_router("orders->audit", "orders", "audit")
        """
        return await self.run(
            calls.put_router(
                router,
                source,
                dest,
                preserve_node=preserve_node,
                preserve_tag=preserve_tag,
                create_dest=create_dest,
                filter=filter,
                allow_cycle=allow_cycle,
                guarantee=guarantee,
                from_=from_,
            )
        )

    async def router(self, router: str) -> RouterInfo:
        """Show a router.

        Example:

            await client.router("orders->audit")
        """
        return await self.run(calls.router(router))

    async def drop_router(self, router: str) -> RouterDropped:
        """Delete a router. What it has forwarded stays.

        Example:

            await client.drop_router("orders->audit")
        """
        return await self.run(calls.drop_router(router))

    # Stages and commits

    async def stage(
        self,
        topic: str,
        records: Sequence[Any],
        *,
        node: str | None = None,
        partition: int | None = None,
        partition_key: str | None = None,
        producer: str | None = None,
    ) -> Staged:
        """Stage records: write them without making them readable.

        topic: Topic that the records are for.
        records: Payloads, or `RecordIn` for records with a tag, node or meta; 1 to 10,000.
        node: Who writes: default for the records. Up to 128 bytes.
        partition: Partition to append to.
        partition_key: Text whose hash selects the partition; not together with `partition`.
        producer: Producer that will commit the stage and renews it; at most 256 characters.

        Example:

            await client.stage("orders", [{"id": 1}])
        """
        return await self.run(
            calls.stage(topic, records, node=node, partition=partition, partition_key=partition_key, producer=producer)
        )

    async def stage_arrow(
        self, topic: str, stream: bytes, *, partition: int | None = None, producer: str | None = None
    ) -> Staged:
        """Stage records: write them without making them readable, from an Arrow IPC stream.

        topic: Topic that the records are for.
        stream: Arrow IPC stream.
        partition: Partition that the records are for.
        producer: Producer that will commit the stage and renews it; at most 256 characters.

        Example:

            import pyarrow as pa

            rows = pa.table({"data": ['{"sku": "MUG"}']})
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            await client.stage_arrow("orders", sink.getvalue().to_pybytes())
        """
        return await self.run(calls.stage_arrow(topic, stream, partition=partition, producer=producer))

    async def drop_stage(self, stage_id: str) -> StageDropped:
        """Drop a stage.

        Example:

            await client.drop_stage("stage_5f0c")
        """
        return await self.run(calls.drop_stage(stage_id))

    async def commit(
        self,
        stages: Sequence[str] = (),
        *,
        writes: Sequence[CommitWrite | Mapping[str, Any]] = (),
        producer: str | None = None,
        batch: int | None = None,
        digest: str | None = None,
    ) -> Committed:
        """Make stages and writes readable together, at most once for each batch of a producer.

        stages: Stages to commit, each once.
        writes: Writes to commit with them, without idempotency keys and delays.
        producer: With `batch`: the commit is done once for each batch.
        batch: Number of the batch, rising for each producer.
        digest: Text that identifies what is committed: a repeat of the batch with another digest gets 409.

        Example:

            await client.commit(["stage_5f0c"], producer="loader", batch=8)
        """
        return await self.run(calls.commit(stages, writes=writes, producer=producer, batch=batch, digest=digest))

    async def get_producer(self, producer: str) -> LastCommit:
        """Show the last batch of a producer.

        Example:

            await client.get_producer("loader")
        """
        return await self.run(calls.get_producer(producer))

    async def renew_stages(self, producer: str) -> StagesRenewed:
        """Renew the stages that were made for a producer, as far as the key may touch their topics.

        Example:

            await client.renew_stages("loader")
        """
        return await self.run(calls.renew_stages(producer))

    # Tables and routes

    async def list_tables(
        self,
        *,
        prefix: str | None = None,
        cursor: str | None = None,
        page_size: int | None = None,
        version: int | None = None,
        wait_ms: int | None = None,
    ) -> TablePage:
        """List tables by name; waits, if wanted, until one changes.

        prefix: Only names that begin with this.
        cursor: `next_cursor` of the page before.
        page_size: Entries in a page; more than 1000 count as 1000. Default 100.
        version: The version that the reader has.
        wait_ms: Wait up to this long while the version is still the given one; at most 30,000.

        Example:

            await client.list_tables()
        """
        return await self.run(
            calls.list_tables(prefix=prefix, cursor=cursor, page_size=page_size, version=version, wait_ms=wait_ms)
        )

    async def table(self, table: str) -> TableInfo:
        """Show a table.

        Example:

            await client.table("shop.orders")
        """
        return await self.run(calls.table(table))

    async def put_table(
        self,
        table: str,
        kind: Literal["push", "delta", "postgres"] = "push",
        location: str | None = None,
        *,
        key_columns: Sequence[str] = (),
        columns: Mapping[str, str] | Sequence[str] | None = None,
    ) -> TableInfo:
        """Make a table known, or replace what is known about it.

        Only keys without prefixes may set a new location.

        kind: Where its changes come from.
        location: URI of a Delta table or DSN of a PostgreSQL, without a password.
        key_columns: Columns of the key; at most 64.
        columns: Columns with their types, or their names only; at most 2000.

        Example:

            await client.put_table("shop.orders", key_columns=["id"], columns={"id": "bigint"})
        """
        return await self.run(calls.put_table(table, kind, location, key_columns=key_columns, columns=columns))

    async def drop_table(self, table: str) -> TableGone:
        """Forget a table; its change topic stays.

        Example:

            await client.drop_table("shop.orders")
        """
        return await self.run(calls.drop_table(table))

    async def send_changes(
        self, table: str, changes: Sequence[Any], *, source: str | None = None, key_columns: Sequence[str] = ()
    ) -> ChangesSent:
        """Send change events of a table; each is kept once, by its position.

        changes: Events such as `{"op": "insert", "key": {"id": 1}, "after": {"id": 1}}`, or those of Debezium.
        source: Name of the source, for events without one.
        key_columns: Key columns, for events that do not name their key.

        Example:

            await client.send_changes("shop.orders", [{"op": "insert", "key": {"id": 1}, "after": {"id": 1}, "position": 17}])
        """
        return await self.run(calls.send_changes(table, changes, source=source, key_columns=key_columns))

    async def routes(
        self, version: int | None = None, wait_ms: int | None = None, *, table: str | None = None, op: str | None = None
    ) -> RouteList:
        """List the routes from tables to topics; waits, if wanted, until one changes.

        version: The version that the reader has.
        wait_ms: Wait up to this long while the version is still the given one; at most 30,000.
        table: Only routes of this table.
        op: Only routes of Insert, Update or Delete.

        Example:

            await client.routes(table="shop.orders")
        """
        return await self.run(calls.routes(version, wait_ms, table=table, op=op))

    # Archives

    async def get_archive(self, topic: str) -> ArchiveInfo:
        """Show the archive of a topic.

        Example:

            await client.get_archive("orders")
        """
        return await self.run(calls.get_archive(topic))

    async def set_archive(
        self,
        topic: str,
        uri: str,
        *,
        freshness_ms: int | None = None,
        compact_interval_ms: int | None = None,
        vacuum_hours: int | None = None,
    ) -> ArchiveInfo:
        """Copy the records of a topic to a Delta table.

        Keys with prefixes may name locations within the archive roots of the server (TOPICS_ARCHIVE_ROOTS).

        uri: URI or path of a Delta table, without a password.
        freshness_ms: How old a record may be before it is in the table; 1000 to 600000. Default 10000.
        compact_interval_ms: How often small files are merged; at least 1000, 0 for never. Default 600000.
        vacuum_hours: Age at which unused files are removed; 0 for never. Default 168.

        Example:

            await client.set_archive("orders", "s3://lake/orders")
        """
        return await self.run(
            calls.set_archive(
                topic,
                uri,
                freshness_ms=freshness_ms,
                compact_interval_ms=compact_interval_ms,
                vacuum_hours=vacuum_hours,
            )
        )

    async def clear_archive(self, topic: str) -> ArchiveGone:
        """Stop copying a topic; the table stays.

        Example:

            await client.clear_archive("orders")
        """
        return await self.run(calls.clear_archive(topic))

    async def archive_progress(
        self, topic: str, partitions: Sequence[ArchivedTo | Mapping[str, Any]], *, table_version: int | None = None
    ) -> ArchiveInfo:
        """Report how far the table of a topic is; answers how far the server knows it to be.

        partitions: Each partition at most once.
        table_version: Version of the table.

        Example:

            await client.archive_progress("orders", [{"partition": 0, "epoch": 7, "next_seq": 42}], table_version=3)
        """
        return await self.run(calls.archive_progress(topic, partitions, table_version=table_version))

    async def archives(self, version: int | None = None, wait_ms: int | None = None) -> ArchiveList:
        """List the archives of all topics; waits, if wanted, until one is set, changed or cleared.

        version: The version that the reader has.
        wait_ms: Wait up to this long while the version is still the given one; at most 30,000.

        Example:

            await client.archives()
        """
        return await self.run(calls.archives(version, wait_ms))

    # Pipelines

    async def list_pipelines(self) -> PipelineList:
        """List the pipelines that have reported since the server was started.

        Example:

            await client.list_pipelines()
        """
        return await self.run(calls.list_pipelines())

    async def pipeline(self, pipeline: str) -> PipelineInfo:
        """Show a pipeline.

        Example:

            await client.pipeline("main")
        """
        return await self.run(calls.pipeline(pipeline))

    async def report_pipeline(
        self,
        pipeline: str,
        state: Literal["starting", "running", "stopping", "stopped"],
        jobs: Sequence[JobStatus | Mapping[str, Any]] = (),
        *,
        master: str | None = None,
        started_ts: int | None = None,
    ) -> PipelineOrders:
        """Report how a pipeline is doing; the response says whether it is asked to stop.

        jobs: At most 2000.
        master: Spark master.
        started_ts: When this run started, in Unix milliseconds.

        Example:

            await client.report_pipeline("main", "running", [], started_ts=1767225600000)
        """
        return await self.run(calls.report_pipeline(pipeline, state, jobs, master=master, started_ts=started_ts))

    async def drop_pipeline(self, pipeline: str) -> PipelineGone:
        """Forget a pipeline; one that still runs is back with its next report.

        Example:

            await client.drop_pipeline("main")
        """
        return await self.run(calls.drop_pipeline(pipeline))

    async def stop_pipeline(self, pipeline: str) -> PipelineOrders:
        """Ask a pipeline to stop; does not wait for it.

        Example:

            await client.stop_pipeline("main")
        """
        return await self.run(calls.stop_pipeline(pipeline))

    # The server

    async def request_token(self, password: str, *, username: str | None = None) -> LoggedIn:
        """Exchange a user's name and password for a token.

        password: Password of the user.
        username: Required, under one of its three names.

        Example:

            await client.request_token("...", username="ada")
        """
        return await self.run(calls.request_token(password, username=username))

    async def health(self) -> Health:
        """Say that the process is alive.

        Example:

            await client.health()
        """
        return await self.run(calls.health())

    async def ready(self) -> Ready:
        """Say whether the server serves: 503 while the log is replayed.

        Example:

            await client.ready()
        """
        return await self.run(calls.ready())

    async def metrics(self) -> dict[str, Any]:
        """Metrics, as Prometheus text or as JSON.

        Example:

            await client.metrics()
        """
        return await self.run(calls.metrics())

    async def get_whoami(self) -> WhoAmI:
        """Say who the caller is, and what its key may do.

        Example:

            await client.get_whoami()
        """
        return await self.run(calls.get_whoami())

    async def get_overview(self) -> Overview:
        """Show rates, resources and what needs attention.

        A key with prefixes gets the warnings about names that it may touch.

        Example:

            await client.get_overview()
        """
        return await self.run(calls.get_overview())

    async def get_root(self) -> Root:
        """The console for browsers; for `Accept: application/json`, what this server is. Needs no credential.

        Example:

            await client.get_root()
        """
        return await self.run(calls.get_root())

    async def openapi(self) -> dict[str, Any]:
        """This API as an OpenAPI 3.1 document. Needs no credential: it describes the API, not the data.

        Example:

            await client.openapi()
        """
        return await self.run(calls.openapi())
