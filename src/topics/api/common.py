"""Types that several nouns share."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from topics.model.names import ROUTER_PATTERN, TOPIC_PATTERN

# Nodes whose records a reader leaves out.
MAX_NODES = 1000
Count = Annotated[int, Meta(ge=0)]
PartitionNumber = Annotated[int, Meta(ge=0, le=2**31)]
TimeMs = Annotated[int, Meta(ge=0, description="Unix time in milliseconds.")]
# The pattern is documentation only: the server checks names itself, with an error that says which name it is.
TopicName = Annotated[str, Meta(extra_json_schema={"pattern": f"^{TOPIC_PATTERN}$"})]
RouterName = Annotated[str, Meta(extra_json_schema={"pattern": f"^{ROUTER_PATTERN}$"})]


class Performance(Struct, omit_defaults=True):
    """How long the server took, in milliseconds. Which of the fields are there depends on the operation."""

    server_total_ms: Annotated[float, Meta(description="From the first byte of the request to the response.")] = 0.0
    wal_append_ms: Annotated[float, Meta(description="Writing to the log.")] | UnsetType = UNSET
    fsync_ms: Annotated[float, Meta(description="Syncing the log; 0 when the class needs no sync.")] | UnsetType = UNSET
    throttle_wait_ms: Annotated[float, Meta(description="Delay by backpressure.")] | UnsetType = UNSET
    records_scanned: Annotated[int, Meta(description="Records that the read examined.")] | UnsetType = UNSET


class Response(Struct, kw_only=True):
    """What every successful response has."""

    performance: Performance = field(default_factory=Performance)


class ErrorDetail(Struct):
    """What went wrong."""

    code: Annotated[str, Meta(description="Stable word to branch on.")]
    message: Annotated[str, Meta(description="What is wrong, for people.")]
    detail: (
        Annotated[dict[str, Any], Meta(description="Structured context; its fields depend on the code.")] | UnsetType
    ) = UNSET


class ErrorResponse(Struct):
    """The body of every response with a status of 400 and more."""

    error: ErrorDetail
    performance: Performance | UnsetType = UNSET


class Tombstone(Struct, omit_defaults=True):
    """Records gap_from..gap_to are lost: this reader has not seen them and never will."""

    gap_from: Annotated[int, Meta(description="First lost seq.")]
    gap_to: Annotated[int, Meta(description="Last lost seq.")]
    reason: Annotated[str, Meta(description="cap, ttl, mixed or recreated.")]
    missed_estimate: Annotated[int, Meta(description="How many records were lost, at most.")] = 0
    earliest_seq: Annotated[int, Meta(description="Lowest seq that can be read.")] = 0
    head_seq: Annotated[int, Meta(description="Highest seq that was assigned.")] = 0
    cause: Annotated[str | None, Meta(description="For mixed losses: restart or damage.")] = None


class Record(Struct, rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}, omit_defaults=True):
    """One record. `data` and `meta` are the JSON that was appended."""

    seq: Annotated[int, Meta(description="Position in the partition.")]
    ts: Annotated[int, Meta(description="When it was appended, in Unix milliseconds.")]
    data: Annotated[Any, Meta(description="The payload: the JSON that was appended.")] = None
    node: Annotated[str | None, Meta(description="Who appended it.")] = None
    tag: Annotated[str | None, Meta(description="For deletes and filters.")] = None
    meta: Annotated[dict[str, Any] | None, Meta(description="Small metadata beside the payload.")] = None


class PageQuery(Struct):
    """Parameters of a list."""

    prefix: Annotated[str, Meta(description="Only names that begin with this.")] = ""
    cursor: Annotated[str, Meta(description="`next_cursor` of the page before.")] = ""
    page_size: Annotated[int, Meta(ge=1, description="Entries in a page; more than 1000 count as 1000.")] = 100


KnownVersion = Annotated[int, Meta(ge=0, description="The version that the reader has.")] | None
VersionWait = Annotated[
    int, Meta(ge=0, description="Wait up to this long while the version is still the given one; at most 30,000.")
]


class VersionQuery(Struct):
    """Parameters of a list that can be waited for."""

    version: KnownVersion = None
    wait_ms: VersionWait = 0


def about(description: str, *, ge: int | None = None, le: int | None = None) -> Meta:
    """The documentation of a field, with its limits."""
    return Meta(description=description, ge=ge, le=le)
