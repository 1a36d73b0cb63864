"""The API from the other side: the same calls, sync (`Client`) and async (`AsyncClient`), typed.

    with Client("http://127.0.0.1:4000") as client:
        client.append("orders", [{"id": 1}, {"id": 2}])
        for item in client.read("orders"):
            match item:
                case Record():
                    print(item.seq, item.data)
                case Tombstone():
                    print("lost", item.gap_from, item.gap_to)

`calls.py` says what each call sends and how its answer is read, without touching a socket; `retry.py` when it is sent
again; `sync.py` and `asynchronous.py` do the sending. A retried append never doubles: it carries an idempotency key.
Loss is a value among the records, not an exception, so that no loop can pass over it unseen.
"""

from typing import TYPE_CHECKING, Any

from topics.client.errors import ServerUnreachable
from topics.client.retry import RetryPolicy
from topics.client.sync import Client
from topics.client.values import (
    Acked,
    Appended,
    ArchivedTo,
    ArchiveInfo,
    CaughtUp,
    Claimed,
    Committed,
    Consumed,
    Job,
    JobStatus,
    Message,
    Page,
    PipelineInfo,
    Record,
    RouterInfo,
    SqlResult,
    Tombstone,
    TopicDeleted,
    TopicInfo,
    TopicSummary,
    WatchedRecord,
    WatchedTombstone,
)

if TYPE_CHECKING:
    from topics.client.asynchronous import AsyncClient

__all__ = [
    "Acked",
    "Appended",
    "ArchiveInfo",
    "ArchivedTo",
    "AsyncClient",
    "CaughtUp",
    "Claimed",
    "Client",
    "Committed",
    "Consumed",
    "Job",
    "JobStatus",
    "Message",
    "Page",
    "PipelineInfo",
    "Record",
    "RetryPolicy",
    "RouterInfo",
    "ServerUnreachable",
    "SqlResult",
    "Tombstone",
    "TopicDeleted",
    "TopicInfo",
    "TopicSummary",
    "WatchedRecord",
    "WatchedTombstone",
]


def __getattr__(name: str) -> Any:
    """AsyncClient when it is first asked for: it brings asyncio, 60 ms that commands and Spark's workers need not wait for."""
    if name == "AsyncClient":
        from topics.client.asynchronous import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
