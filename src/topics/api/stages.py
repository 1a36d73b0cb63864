"""Stages and commits: write ahead, then make everything readable together, at most once."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated

from msgspec import Meta, Struct, field

from topics.api.common import Response, TopicName, about
from topics.api.operation import READ, WRITE, WRITE_ERRORS, Example, Name, Operation
from topics.model.records.batch import AppendBody


class StageQuery(Struct):
    topic: Annotated[TopicName, about("Topic that the records are for.")]
    partition: Annotated[int, about("Partition that the records are for.", ge=0)] = 0
    producer: Annotated[str, about("Producer that will commit the stage and renews it; at most 256 characters.")] = ""


class StageBody(AppendBody):
    """Records to be staged. Of the fields of an append, `records`, `node`, `partition` and `partition_key` count."""


class Staged(Response):
    """A stage: records that cannot be read until a commit names it."""

    stage_id: Annotated[str, about("Id of the stage.")]
    topic: Annotated[str, about("Name of the topic.")]
    count: Annotated[int, about("Number of records.")]
    bytes: Annotated[int, about("Bytes of the records.")]
    expires_at: Annotated[int, about("When the stage expires, in Unix milliseconds.")]
    ttl_ms: Annotated[int, about("How long a stage lives unless it is renewed.")] = 0


class StageDropped(Response):
    """A stage that was deleted."""

    stage_id: Annotated[str, about("Id of the stage.")]
    deleted: Annotated[bool, about("False when there was no such stage.")]


class StagesRenewed(Response):
    """Stages of a producer that live longer."""

    producer: Annotated[str, about("Name of the producer.")]
    renewed: Annotated[int, about("How many stages were renewed.")]
    expires_at: Annotated[int, about("When the stages expire, in Unix milliseconds.")]
    ttl_ms: Annotated[int, about("How long stages live.")]


class CommitWrite(AppendBody, kw_only=True):
    """Records of a commit that were not staged."""

    topic: Annotated[TopicName, about("Topic to append to.")]


class CommitBody(Struct):
    """What becomes readable together."""

    stages: Annotated[list[str], about("Stages to commit, each once.")] = []
    writes: Annotated[list[CommitWrite], about("Writes to commit with them, without idempotency keys and delays.")] = []
    producer: (
        Annotated[
            str, Meta(description="With `batch`: the commit is done once for each batch.", min_length=1, max_length=256)
        ]
        | None
    ) = None
    batch: Annotated[int, about("Number of the batch, rising for each producer.", ge=0)] | None = None
    digest: (
        Annotated[
            str,
            Meta(
                description="Text that identifies what is committed: a repeat of the batch with another digest gets 409.",
                min_length=1,
                max_length=128,
            ),
        ]
        | None
    ) = None


class Placed(Struct):
    """Where records were placed."""

    topic: Annotated[str, about("Name of the topic.")]
    partition: Annotated[int, about("Number of the partition.")]
    first_seq: Annotated[int, about("First seq.")]
    last_seq: Annotated[int, about("Last seq.")]
    count: Annotated[int, about("Number of records.")]
    stage_id: Annotated[str | None, about("Absent for `writes`.")] = None


class Committed(Response):
    """`deduped`: the producer had committed this batch before, and nothing was done."""

    deduped: Annotated[bool, about("Whether the batch was committed before: nothing was done.")]
    count: Annotated[int, about("Number of records that were appended.")]
    results: Annotated[list[Placed], about("Where the records are.")]
    producer: Annotated[str | None, about("Absent without a producer, as are `batch` and `fence`.")] = None
    batch: Annotated[int | None, about("Number of the batch.")] = None
    fence: Annotated[int | None, about("Last batch of the producer.")] = None


class Producer(Response):
    """What a producer committed last."""

    producer: Annotated[str, about("Name of the producer.")]
    batch: Annotated[int, about("Number of the batch.")]
    ts: Annotated[int, about("When it committed, in Unix milliseconds.")]
    results: Annotated[list[Placed], about("Where the records are.")] = field(default_factory=list)


OPERATIONS = (
    Operation(
        name="post_stage", noun="stages", method="POST", path="/v0/stages",
        summary="Stage records: write them without making them readable.",
        scope=WRITE, names=(Name("query", "topic", "topic", "topic"),), query=StageQuery, body=StageBody, decoded="dedicated",
        names_first=True,
        arrow_body=True, max_body_bytes=0, response=Staged, statuses=(201,),
        errors=("topic_not_found", "batch_too_large", "record_too_large", "topic_full", *WRITE_ERRORS),
        safe_to_retry=True, retry_note="A repeat makes another stage, which expires if no commit names it.",
        example=Example("/v0/stages?topic=orders", {"records": [{"data": {"id": 1}}]}, {
            "stage_id": "stage_5f0c", "topic": "orders", "count": 1, "bytes": 32, "expires_at": 1767229200000,
            "performance": {"server_total_ms": 0.3}}),
    ),
    Operation(
        name="delete_stage", noun="stages", method="DELETE", path="/v0/stages/{stage_id}",
        summary="Drop a stage.",
        scope=WRITE, names=(Name("path", "stage_id", "stage"),), response=StageDropped, errors=WRITE_ERRORS,
        example=Example("/v0/stages/stage_5f0c", response={
            "stage_id": "stage_5f0c", "deleted": True, "performance": {"server_total_ms": 0.1}}),
    ),
    Operation(
        name="post_commit", noun="stages", method="POST", path="/v0/commits",
        summary="Make stages and writes readable together, at most once for each batch of a producer.",
        scope=WRITE,
        names=(
            Name("body", "stages[]", "stage"),
            Name("body", "writes[].topic", "topic", "topic"),
            Name("body", "producer", "producer"),
        ),
        body=CommitBody, decoded="dedicated", max_body_bytes=0, response=Committed,
        errors=("topic_not_found", "stage_not_found",
            "batch_differs", "topic_full", "batch_too_large", "record_too_large", *WRITE_ERRORS),
        safe_to_retry=False, retry_note="Safe with a producer and a batch.",
        example=Example("/v0/commits", {"stages": ["stage_5f0c"], "producer": "loader", "batch": 8}, {
            "deduped": False, "count": 1,
            "results": [{"stage_id": "stage_5f0c", "topic": "orders", "partition": 0, "first_seq": 41, "last_seq": 41, "count": 1}],
            "producer": "loader", "batch": 8, "fence": 8,
            "performance": {"server_total_ms": 0.4, "wal_append_ms": 0.1, "fsync_ms": 0.0}}),
    ),
    Operation(
        name="get_producer", noun="stages", method="GET", path="/v0/producers/{producer}",
        summary="Show the last batch of a producer.",
        scope=READ, names=(Name("path", "producer", "producer"),), response=Producer, errors=("producer_not_found",),
        example=Example("/v0/producers/loader", response={
            "producer": "loader", "batch": 8, "ts": 1767225600000, "results": [], "performance": {"server_total_ms": 0.05}}),
    ),
    Operation(
        name="post_renewal", noun="stages", method="POST", path="/v0/producers/{producer}/renew",
        summary="Renew the stages that were made for a producer, as far as the key may touch their topics.",
        scope=WRITE, response=StagesRenewed,
        example=Example("/v0/producers/loader/renew", response={
            "producer": "loader", "renewed": 2, "expires_at": 1767229200000, "ttl_ms": 3600000,
            "performance": {"server_total_ms": 0.05}}),
    ),
)  # fmt: skip
