"""A topic's configuration: every field, its default, its range, and how a change is merged.

`ConfigChange` is what a client sent: absent fields are UNSET, and types are strict. `TopicConfig` is what a topic
has: complete and valid. Clamped fields are clamped, out-of-range types are refused before they come here.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from topics.model.errors import Conflict, InvalidRequest
from topics.model.names import check_topic_name

# The decoder cannot hold an upper bound this large; `check_u64` does.
U64 = Annotated[int, Meta(ge=0)]
U64_MAX = 2**64 - 1
MIN_LEASE_MS = 100
MAX_LEASE_MS = 86_400_000
I32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
TopicType = Literal["log", "queue"]
Durability = Literal["ephemeral", "memory", "disk", "fsync"]
Discard = Literal["old", "reject"]


def _about(description: str, *, ge: int | None = None, le: int | None = None) -> Meta:
    return Meta(description=description, ge=ge, le=le)


class ConfigChange(Struct):
    """The fields of a topic's configuration that a request names. Unknown fields are ignored."""

    type: Annotated[TopicType, _about("`queue` for jobs with leases. Fixed when the topic is created.")] | UnsetType = (
        UNSET
    )
    ttl_ms: Annotated[int, _about("Records expire this long after their append; 0 for never.", ge=0)] | UnsetType = (
        UNSET
    )
    cap_records: Annotated[int, _about("Most records that are kept; 0 for no cap.", ge=0)] | UnsetType = UNSET
    cap_bytes: Annotated[int, _about("Most bytes that are kept; 0 for no cap.", ge=0)] | UnsetType = UNSET
    discard: (
        Annotated[Discard, _about("At a cap, drop the oldest records or reject the write (422 `topic_full`).")]
        | UnsetType
    ) = UNSET
    durable: Annotated[bool, _about("Short for `durability` fsync (true) or disk (false).")] | UnsetType = UNSET
    durability: (
        Annotated[Durability, _about("Where a write is stored when it is acknowledged. Can be changed.")] | UnsetType
    ) = UNSET
    priority: (
        Annotated[I32 | None, _about("Fixed priority, clamped to -1000..1000; null for the automatic one.")] | UnsetType
    ) = UNSET
    auto_priority: Annotated[bool, _about("Derive the priority from the last read, if none is fixed.")] | UnsetType = (
        UNSET
    )
    auto_create: Annotated[bool, _about("Whether a write may create the topic.")] | UnsetType = UNSET
    idempotency_window_ms: Annotated[int, _about("How long idempotency keys are remembered.", ge=0)] | UnsetType = UNSET
    dedupe_node: Annotated[bool, _about("Whether reads may leave out records by `node`.")] | UnsetType = UNSET
    lease_ms: (
        Annotated[int, _about("Queues: default lease of a claim, clamped to 100..86400000.", ge=0)] | UnsetType
    ) = UNSET
    claim_jitter_ms: (
        Annotated[int, _about("Queues: claims wait this long and share the jobs evenly; at most 5000.", ge=0)]
        | UnsetType
    ) = UNSET
    max_deliveries: (
        Annotated[int, _about("Queues: deliveries before a job becomes a dead letter; 0 for no limit.", ge=0)]
        | UnsetType
    ) = UNSET
    dead_letter: (
        Annotated[str | None, _about("Queues: topic for jobs over `max_deliveries`; null for none.")] | UnsetType
    ) = UNSET
    leases_durable: Annotated[bool, _about("Queues: leases survive a restart.")] | UnsetType = UNSET
    partitions: (
        Annotated[int, _about("Number of logs. Fixed when the topic is created; not in `config`.", ge=1, le=1024)]
        | UnsetType
    ) = UNSET


class TopicConfig(Struct, frozen=True):
    """What a topic is configured to be; field order is the order in answers."""

    type: TopicType = "log"
    ttl_ms: Annotated[int, _about("Records expire this long after their append; 0 for never.")] = 0
    cap_records: Annotated[int, _about("Most records that are kept; 0 for no cap.")] = 0
    cap_bytes: Annotated[int, _about("Most bytes that are kept; 0 for no cap.")] = 0
    discard: Discard = "old"
    durable: Annotated[bool, _about("Whether an acknowledged write survives a power cut.")] = False
    durability: Durability = "disk"
    priority: Annotated[int | None, _about("Fixed priority; null for the automatic one.")] = None
    auto_priority: Annotated[bool, _about("Whether the priority is derived from the last read, if none is fixed.")] = (
        True
    )
    auto_create: Annotated[bool, _about("Whether a write may create the topic.")] = True
    idempotency_window_ms: Annotated[int, _about("How long idempotency keys are remembered.")] = 120_000
    dedupe_node: Annotated[bool, _about("Whether reads may leave out records by `node`.")] = True
    lease_ms: Annotated[int, _about("Queues: default lease of a claim.")] = 30_000
    claim_jitter_ms: Annotated[int, _about("Queues: claims wait this long and share the jobs evenly.")] = 0
    max_deliveries: Annotated[int, _about("Queues: deliveries before a job becomes a dead letter; 0 for no limit.")] = 0
    dead_letter: Annotated[str | None, _about("Queues: topic for jobs over `max_deliveries`; null for none.")] = None
    leases_durable: Annotated[bool, _about("Queues: whether leases survive a restart.")] = False


DEFAULT_CONFIG = TopicConfig()


def clamp(value: int, low: int, high: int) -> int:
    return low if value < low else high if value > high else value


def check_u64(name: str, value: int) -> int:
    if value > U64_MAX:
        raise InvalidRequest(f"{name} is larger than 64 bits hold")
    return value


def merged(topic: str, base: TopicConfig, change: ConfigChange, *, exists: bool) -> TopicConfig:
    """`base` with the named fields changed, clamped and checked.

    Raises Conflict when `type` of an existing topic would change, InvalidRequest for a bad `dead_letter`.
    """
    fields = {name: value for name in CONFIG_FIELDS if (value := getattr(change, name)) is not UNSET}
    for name, value in fields.items():
        if isinstance(value, int):
            check_u64(name, value)
    if exists and fields.get("type", base.type) != base.type:
        raise Conflict(
            f'topic "{topic}" is a {base.type}; its type cannot change',
            detail={"topic": topic, "type": base.type},
        )
    if "durability" not in fields and "durable" in fields:
        fields["durability"] = "fsync" if fields["durable"] else "disk"
    fields["durable"] = fields.get("durability", base.durability) == "fsync"
    if fields.get("priority") is not None:
        fields["priority"] = clamp(fields["priority"], -1000, 1000)
    if "lease_ms" in fields:
        fields["lease_ms"] = clamp(fields["lease_ms"], MIN_LEASE_MS, MAX_LEASE_MS)
    if "claim_jitter_ms" in fields:
        fields["claim_jitter_ms"] = clamp(fields["claim_jitter_ms"], 0, 5000)
    dead_letter = fields.get("dead_letter")
    if dead_letter is not None:
        check_topic_name(dead_letter, "dead_letter topic")
        if dead_letter == topic:
            raise InvalidRequest("dead_letter must name another topic", detail={"dead_letter": dead_letter})
    return msgspec.structs.replace(base, **fields)


CONFIG_FIELDS = TopicConfig.__struct_fields__
