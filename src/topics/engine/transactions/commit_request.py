"""A commit over several topics: what it asks for, its outcome, and the rules about its producer."""

from collections.abc import Sequence

from msgspec import Struct

from topics.model.errors import Conflict, Forbidden
from topics.model.facts import Fact, Fenced, Placed
from topics.model.records.batch import Batch


class Write(Struct):
    """Records that come with the commit itself."""

    topic: str
    batch: Batch


class CommitRequest(Struct):
    """What is to become readable together. `producer` and `batch` come together or not at all.

    `prefixes` are those of the key that asks, empty for every name; None where no keys are configured.
    """

    stage_ids: list[str]
    writes: list[Write]
    producer: str | None = None
    batch: int = 0
    prefixes: tuple[str, ...] | None = None
    # Identifies the contents: a repeat of the batch with other contents is refused.
    digest: str | None = None
    # What else becomes true together with it, and not without it.
    facts: list[Fact] = []


class Committed(Struct):
    """The outcome. A repeat of an older batch than the last knows no places any more."""

    placed: list[Placed]
    deduped: bool
    batch: int
    wal_ms: float = 0.0
    sync_ms: float = 0.0


def check_repeat(fence: Fenced, request: CommitRequest) -> None:
    """Raise Conflict for a repeat that carries a digest and is not known to have the same contents.

    Only the digest of the last batch is kept. A client that sends digests repeats its last batch only, so an older batch
    comes from a client that has started to count again, and to take it for a repeat would lose its records.
    """
    if request.digest is None:
        return
    detail = {"producer": fence.producer, "batch": request.batch, "fence": fence.batch}
    if request.batch < fence.batch:
        raise Conflict(
            f'batch {request.batch} of producer "{fence.producer}" is below its last batch {fence.batch}, '
            "and its contents cannot be compared any more; count on from the last batch or use another producer",
            code="batch_differs",
            detail=detail,
        )
    if fence.digest is not None and fence.digest != request.digest:
        raise Conflict(
            f'batch {request.batch} of producer "{fence.producer}" was committed before with other contents',
            code="batch_differs",
            detail=detail,
        )


def check_owner(fence: Fenced, prefixes: Sequence[str] | None) -> None:
    """Raises Forbidden unless a key with these prefixes may use and see the producer.

    A key may if it reaches every name that the owner reaches, whatever the topics of the last batch: the next batch may have
    others. A producer that was used while no keys were configured has no owner; keys that reach all topics of its last batch
    may use it.
    """
    if not prefixes:
        return
    reached = tuple(prefixes)
    if fence.prefixes is None:
        allowed = all([each.topic.startswith(reached) for each in fence.placed])
    else:
        allowed = bool(fence.prefixes) and all([prefix.startswith(reached) for prefix in fence.prefixes])
    if not allowed:
        raise Forbidden(
            "the producer belongs to a key with other prefixes; take another name", detail={"producer": fence.producer}
        )
