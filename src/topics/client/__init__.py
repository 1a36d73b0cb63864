"""The Python client: `Client` for ordinary programs, `AsyncClient` for asyncio, with the same methods.

    from topics.client import Client

    client = Client("http://127.0.0.1:4000")
    orders = client.topic("orders")
    orders.append({"sku": "AEROPRESS"}, tag="customer-7")
    for item in orders.read():                        # Record or Tombstone
        print(item)

Loss is a value among the records, not an exception, so that no loop passes over it unseen. A retried write appends nothing
twice: it has an idempotency key. docs/python.md is the guide.

    values.py, calls.py    generated from `topics.api`: what calls answer, and their requests
    asynchronous/          the async client; sync/ is generated from it, except where asyncio and threads differ
    transport/             where the server is, requests and responses as bytes, retries
    call.py, batching.py, jobs.py, messages.py, events.py    the same for both, without I/O
"""

from typing import TYPE_CHECKING, Any

from topics.client.call import Call
from topics.client.errors import (
    PayloadMismatch,
    ServerUnreachable,
    SessionLost,
    UndecodablePayload,
    WatchFailed,
    WrongAnswer,
)
from topics.client.items import (
    CaughtUp,
    LostMessages,
    Message,
    TopicDeleted,
    TopicDescription,
    Watched,
    WatchedRecord,
    WatchedTombstone,
)
from topics.client.jobs import Retry
from topics.client.sync.client import Client
from topics.client.sync.topic import Topic
from topics.client.transport.retry import NO_RETRY, RetryPolicy
from topics.client.values import *  # noqa: F403
from topics.client.values import __all__ as _values
from topics.model.errors import (
    BatchTooLarge,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    RecordTooLarge,
    Throttled,
    TopicFull,
    TopicsError,
    Unauthorized,
    Unavailable,
)

if TYPE_CHECKING:
    from topics.client.asynchronous.client import AsyncClient
    from topics.client.asynchronous.consumer import AsyncConsumer
    from topics.client.asynchronous.producer import AsyncProducer, AsyncSent
    from topics.client.asynchronous.topic import AsyncTopic
    from topics.client.asynchronous.worker import AsyncWorker
    from topics.client.sync.consumer import Consumer
    from topics.client.sync.producer import Producer, Sent
    from topics.client.sync.worker import Worker

__all__ = [
    "NO_RETRY",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncSent",
    "AsyncTopic",
    "AsyncWorker",
    "BatchTooLarge",
    "Call",
    "CaughtUp",
    "Client",
    "Conflict",
    "Consumer",
    "Forbidden",
    "InvalidRequest",
    "LostMessages",
    "Message",
    "NotFound",
    "PayloadMismatch",
    "Producer",
    "RecordTooLarge",
    "Retry",
    "RetryPolicy",
    "Sent",
    "ServerUnreachable",
    "SessionLost",
    "Throttled",
    "Topic",
    "TopicDeleted",
    "TopicDescription",
    "TopicFull",
    "TopicsError",
    "Unauthorized",
    "Unavailable",
    "UndecodablePayload",
    "WatchFailed",
    "Watched",
    "WatchedRecord",
    "WatchedTombstone",
    "Worker",
    "WrongAnswer",
    *_values,
]
_LAZY = {
    "AsyncClient": "asynchronous.client",
    "AsyncConsumer": "asynchronous.consumer",
    "AsyncProducer": "asynchronous.producer",
    "AsyncSent": "asynchronous.producer",
    "AsyncTopic": "asynchronous.topic",
    "AsyncWorker": "asynchronous.worker",
    "Consumer": "sync.consumer",
    "Producer": "sync.producer",
    "Sent": "sync.producer",
    "Worker": "sync.worker",
}


def __getattr__(name: str) -> Any:
    """Import a class when it is first used: asyncio alone takes 50 ms that commands and Spark's workers need not wait."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"topics.client.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
