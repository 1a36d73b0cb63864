"""Queues: claim jobs under a lease, then ack, nack or extend them."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from topics.api.common import Count, Record, Response, about
from topics.api.operation import (
    DELETE,
    EVENT_STREAM,
    READ,
    WRITE,
    WRITE_ERRORS,
    Example,
    MaxEntries,
    Name,
    Operation,
)
from topics.api.topics import JobCounts

QUEUE = Name("path", "topic")
QUEUE_PATH = "/v0/topics/{topic}"
MAX_REASON_CHARS = 1000
LEASE_LIMITS = "clamped to 100..86400000"
LEASE_IDS = (MaxEntries("lease_ids", "max_claim", "batch_too_large"),)
QUEUE_ERRORS = ("topic_not_found", "not_a_queue", *WRITE_ERRORS)


class ClaimBody(Struct):
    """Who claims, and how much."""

    node: Annotated[str, about("Name of the worker; 1 to 128 bytes.")]
    max: Annotated[int, about("Most jobs to lease; at most 1000.", ge=0)] = 1
    lease_ms: Annotated[int, about(f"Lease of these jobs, {LEASE_LIMITS}; default that of the queue.", ge=0)] | None = (
        None
    )
    wait_ms: Annotated[int, about("Wait this long for jobs if there are none; at most 30,000.", ge=0)] = 0
    partition: Annotated[int, about("Partition to claim from.", ge=0, le=2**31)] = 0


class AckBody(Struct):
    """Which jobs of which worker."""

    node: Annotated[str, about("Name of the worker; 1 to 128 bytes.")]
    seqs: Annotated[list[Count], about("1 to 1000 jobs.")]
    lease_ids: Annotated[
        list[str] | None, about("`lease_id` of each job, in the same order: jobs with another lease are skipped.")
    ] = None
    partition: Annotated[int, about("Partition of the jobs.", ge=0, le=2**31)] = 0


class NackBody(AckBody):
    """Jobs to return to the queue."""

    delay_ms: Annotated[int, about("They become claimable after this long; at most 24 hours.", ge=0)] = 0
    reason: Annotated[
        str | None,
        about("Why: `$dead_letter_reason` in the `meta` of a dead letter. Cut after 1000 characters, kept in memory."),
    ] = None


class ExtendBody(AckBody, kw_only=True):
    """Jobs whose leases are extended."""

    lease_ms: Annotated[int, about(f"The leases end this long from now, {LEASE_LIMITS}.", ge=0)]


class WorkQuery(Struct):
    node: Annotated[str, about("Name of the worker; 1 to 128 bytes.")]
    max: Annotated[int, about("Most jobs that the connection holds at once; 1 to 1000.", ge=0)] = 1
    lease_ms: (
        Annotated[int, about(f"Lease of each job, {LEASE_LIMITS}; default that of the queue.", ge=0)] | UnsetType
    ) = UNSET
    partition: Annotated[int, about("Partition to claim from.", ge=0)] = 0


class Job(Record, kw_only=True):
    """A leased job. Ack it before `deadline`, or extend the lease."""

    lease_id: Annotated[str, about("The lease, for ack, nack and extend.")]
    deadline: Annotated[int, about("When the lease ends, in Unix milliseconds.")]
    deliveries: Annotated[int, about("How often the job was delivered, this time included.")]
    topic: Annotated[str, about("Name of the topic.")] = ""


class Claimed(Response):
    """Leased jobs, oldest first; none when there are none to claim."""

    topic: Annotated[str, about("Name of the topic.")]
    claimed: Annotated[list[Job], about("The jobs.")]
    count: Annotated[int, about("Number of jobs.")]
    ready: Annotated[int, about("Jobs that can still be claimed.")]


class Acked(Response):
    """Finished jobs."""

    topic: Annotated[str, about("Name of the topic.")]
    skipped: Annotated[list[int], about("Jobs that this worker does not hold.")]
    acked: Annotated[int, about("Jobs that were finished.")] = 0
    ready: Annotated[int, about("Jobs that can be claimed.")] = 0
    in_flight: Annotated[int, about("Jobs that are leased.")] = 0


class Nacked(Response):
    """Returned jobs."""

    topic: Annotated[str, about("Name of the topic.")]
    skipped: Annotated[list[int], about("Jobs that this worker does not hold.")]
    nacked: Annotated[int, about("Jobs that were returned.")] = 0
    ready: Annotated[int, about("Jobs that can be claimed.")] = 0
    in_flight: Annotated[int, about("Jobs that are leased.")] = 0


class Extended(Response):
    """Jobs with longer leases."""

    topic: Annotated[str, about("Name of the topic.")]
    skipped: Annotated[list[int], about("Jobs that this worker does not hold.")]
    extended: Annotated[int, about("Leases that were extended.")] = 0
    deadlines: Annotated[dict[str, int], about("By seq, when the lease ends, in Unix milliseconds.")] = field(
        default_factory=dict
    )


class JobsQuery(Struct):
    state: Annotated[Literal["ready", "delayed", "in_flight"], about("Which jobs.")] = "ready"
    limit: Annotated[int, about("Most jobs in the response; at most 500.", ge=1)] = 100


class QueuedJob(Struct):
    """A job as an operator sees it. Looking at it leases nothing."""

    seq: Annotated[int, about("Seq of the record.")]
    partition: Annotated[int, about("Number of the partition.")]
    ts: Annotated[int, about("When it was appended, in Unix milliseconds.")]
    data: Annotated[Any, about("The payload: the JSON that was appended.")]
    deliveries: Annotated[int, about("How often it was delivered; with the current delivery, for a leased job.")]
    tag: Annotated[str | None, about("Tag of the record.")] = None
    node: Annotated[str | None, about("In flight: who holds it.")] = None
    lease_id: Annotated[str | None, about("In flight: the lease, for ack, nack and extend.")] = None
    deadline: Annotated[int | None, about("In flight: when the lease ends, in Unix milliseconds.")] = None
    due_ts: Annotated[int | None, about("Delayed: when it can be claimed, in Unix milliseconds.")] = None


class QueuedJobs(Response):
    """Jobs in one state: ready ones in the order of delivery, leased ones by deadline, delayed ones by time."""

    topic: Annotated[str, about("Name of the topic.")]
    state: Annotated[str, about("State of the listed jobs.")]
    total: Annotated[int, about("Jobs in this state.")]
    counts: JobCounts
    jobs: Annotated[list[QueuedJob], about("The jobs.")]


class RedriveBody(Struct):
    """Which dead letters: those that meet all conditions given; none for all."""

    queue: Annotated[str | None, about("Only those that came from this queue.")] = None
    seqs: Annotated[list[Count] | None, about("Only these, at most 10,000.")] = None
    match: Annotated[Any, about("Only those whose tag matches, as in a delete.")] = None
    dry_run: Annotated[bool, about("Answer how many would be moved, and move nothing.")] = False


class Redriven(Response):
    """Dead letters that are jobs again."""

    topic: Annotated[str, about("Name of the topic.")]
    moved: Annotated[int, about("Jobs that were moved, or would be.")]
    queues: Annotated[dict[str, int], about("By queue, how many went there.")]
    skipped: Annotated[int, about("Records that did not come from a queue, or whose queue is gone or full.")] = 0
    remaining: Annotated[int, about("More than one request moves: send it again.")] = 0
    dry_run: Annotated[bool, about("Whether nothing was changed.")] = False


OPERATIONS = (
    Operation(
        name="claim", noun="queues", method="POST", path=QUEUE_PATH + "/claim",
        summary="Lease jobs of a queue, at once or as soon as there are some.",
        scope=READ | WRITE, names=(QUEUE,), body=ClaimBody, body_optional=True, decoded="dedicated", response=Claimed,
        errors=(*QUEUE_ERRORS, "corrupt_storage"),
        safe_to_retry=False, retry_note="Jobs leased by a lost response return to the queue when their leases end.",
        example=Example("/v0/topics/jobs/claim", {"node": "worker-1", "max": 10}, {
            "topic": "jobs",
            "claimed": [{"$seq": 41, "lease_id": "lease_41a", "deadline": 1767225630000, "$ts": 1767225600000, "deliveries": 1,
                         "data": {"url": "s3://bucket/a.png"}}],
            "count": 1, "ready": 0, "performance": {"server_total_ms": 0.2, "throttle_wait_ms": 0.0}}),
    ),
    Operation(
        name="ack", noun="queues", method="POST", path=QUEUE_PATH + "/ack",
        summary="Finish jobs: they are deleted.",
        scope=WRITE, names=(QUEUE,), body=AckBody, max_entries=LEASE_IDS, decoded="dedicated", response=Acked,
        errors=(*QUEUE_ERRORS, "batch_too_large"),
        example=Example("/v0/topics/jobs/ack", {"node": "worker-1", "seqs": [41]}, {
            "topic": "jobs", "acked": 1, "skipped": [], "ready": 0, "in_flight": 0,
            "performance": {"fsync_ms": 0.0, "server_total_ms": 0.2}}),
    ),
    Operation(
        name="nack", noun="queues", method="POST", path=QUEUE_PATH + "/nack",
        summary="Return jobs to the queue, at once or after a delay.",
        scope=WRITE, names=(QUEUE,), body=NackBody, max_entries=LEASE_IDS, response=Nacked, errors=(*QUEUE_ERRORS, "batch_too_large"),
        example=Example("/v0/topics/jobs/nack", {"node": "worker-1", "seqs": [41], "delay_ms": 5000}, {
            "topic": "jobs", "nacked": 1, "skipped": [], "ready": 0, "in_flight": 0, "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="extend", noun="queues", method="POST", path=QUEUE_PATH + "/extend",
        summary="Extend the leases of jobs.",
        scope=WRITE, names=(QUEUE,), body=ExtendBody, max_entries=LEASE_IDS, response=Extended, errors=(*QUEUE_ERRORS, "batch_too_large"),
        example=Example("/v0/topics/jobs/extend", {"node": "worker-1", "seqs": [41], "lease_ms": 60000}, {
            "topic": "jobs", "extended": 1, "skipped": [], "deadlines": {"41": 1767225660000},
            "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="list_jobs", noun="queues", method="GET", path=QUEUE_PATH + "/jobs",
        summary="Show jobs that are ready, delayed or leased, without leasing them.",
        scope=READ, names=(Name("path", "topic", "aliased_topic"),), query=JobsQuery, response=QueuedJobs,
        errors=("topic_not_found", "not_a_queue", "corrupt_storage"),
        example=Example("/v0/topics/jobs/jobs?state=in_flight", response={
            "topic": "jobs", "state": "in_flight", "total": 1,
            "counts": {"ready": 0, "delayed": 0, "in_flight": 1, "dead_lettered": 0, "dead_letters": 0, "oldest_age_ms": 1200},
            "jobs": [{"seq": 41, "partition": 0, "ts": 1767225600000, "data": {"url": "s3://bucket/a.png"}, "deliveries": 1,
                      "node": "worker-1", "lease_id": "lease_41a", "deadline": 1767225630000}],
            "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="redrive", noun="queues", method="POST", path=QUEUE_PATH + "/redrive",
        summary="Move dead letters back to the queues they came from.",
        description="`topic` is the dead-letter topic. Each job is in exactly one of the two at any time, also after a crash. It gets a new "
        "seq at the end of its queue and counts as never delivered. One request moves at most 10,000 jobs.",
        scope=WRITE | DELETE, names=(Name("path", "topic", "topic", "topic"), Name("body", "queue", "topic", "queue")),
        body=RedriveBody, body_optional=True, max_entries=(MaxEntries("seqs", 10_000, "batch_too_large"),), response=Redriven,
        errors=("topic_not_found", "topic_full", "batch_too_large", "corrupt_storage", *WRITE_ERRORS),
        retry_note="A repeat moves only what is still there.",
        example=Example("/v0/topics/jobs.dead/redrive", {"queue": "jobs", "dry_run": True}, {
            "topic": "jobs.dead", "moved": 3, "queues": {"jobs": 3}, "skipped": 0, "remaining": 0, "dry_run": True,
            "performance": {"server_total_ms": 0.6}}),
    ),
    Operation(
        name="stream_work", noun="queues", method="GET", path=QUEUE_PATH + "/work",
        summary="Push jobs to a worker over one connection, as server-sent events.",
        description="Events are named `job`; their data is a claimed job with its topic. Jobs that the connection holds when it "
        "ends go back to the queue.",
        scope=READ | WRITE, names=(Name("path", "topic", "topic", "topic"),), query=WorkQuery, media=(EVENT_STREAM,),
        stream=True, query_token=True, errors=("topic_not_found", "not_a_queue", "not_acceptable"),
        example=Example("/v0/topics/jobs/work?node=worker-1&max=4"),
    ),
)  # fmt: skip
