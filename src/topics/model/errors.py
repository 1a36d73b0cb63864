"""Every error that a caller can get, as one tree.

`code` is the stable word clients branch on; `detail` is structured context. Which HTTP status a code becomes is
decided in one table in the server; nothing here knows HTTP.

    TopicsError
    ├── InvalidRequest           the request can never succeed as it is
    │   ├── BatchTooLarge
    │   └── RecordTooLarge
    ├── NotFound                 topic_not_found, router_not_found, not_found
    ├── Conflict                 topic_exists_incompatible, topic_not_empty, not_a_queue, router_cycle ...
    ├── TopicFull                a `discard: reject` topic has no room now
    ├── Unauthorized             no key, or none that is known
    ├── Forbidden                the key may not do this, or not to this name
    ├── Throttled                a limit is reached or the server is overloaded; retry later
    ├── Unavailable              not_ready, shutting_down, read_only, storage_full
    └── CorruptStorage           bytes on disk are not what was written there
"""

from typing import Any


class TopicsError(Exception):
    """An error for the caller, with a stable code.

    Example:

        try:
            client.info("no-such-topic")
        except TopicsError as error:
            print(error.code, error.message, error.detail)
    """

    code = "internal"

    def __init__(self, message: str, *, code: str | None = None, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        if code is not None:
            self.code = code


class InvalidRequest(TopicsError):
    """The request is malformed or out of range. Sending it again unchanged fails again.

    Example:

        try:
            client.append("orders", [])
        except InvalidRequest as error:
            print(error.message)
    """

    code = "invalid_request"


class BatchTooLarge(InvalidRequest):
    """More records, seqs or bytes in one request than the limit allows. Send less at a time.

    Example:

        try:
            client.append("orders", [0] * 20_000)
        except BatchTooLarge as error:
            print(error.detail)
    """

    code = "batch_too_large"


class RecordTooLarge(InvalidRequest):
    """One record is over the size limit. Store the payload elsewhere and send a reference.

    Example:

        try:
            client.append("orders", ["x" * 9_000_000])
        except (RecordTooLarge, BatchTooLarge) as error:
            print(error.code)
    """

    code = "record_too_large"


class NotFound(TopicsError):
    """The named thing does not exist and was not created on the way.

    Example:

        try:
            client.info("no-such-topic")
        except NotFound as error:
            print(error.code)
    """

    code = "topic_not_found"


class Conflict(TopicsError):
    """The request contradicts what exists. Look at `detail`, then change the request or the thing.

    Example:

        try:
            client.claim("orders", "worker-1")
        except Conflict as error:
            print(error.code)
    """

    code = "topic_exists_incompatible"


class TopicFull(TopicsError):
    """The topic refuses new records rather than dropping old ones. Consume or delete, then retry.

    Example:

        client.create("small", cap_records=1, discard="reject")
        try:
            client.append("small", [1])
            client.append("small", [2])
        except TopicFull as error:
            print(error.message)
    """

    code = "topic_full"


class Unauthorized(TopicsError):
    """No credential was presented, or one that is not known. Send `Authorization: Bearer <key>`.

    Example:

        try:
            client.login("ada", "a wrong password")
        except (Unauthorized, TopicsError) as error:
            print(error.code)
    """

    code = "unauthorized"


class Forbidden(TopicsError):
    """The caller is known but may not do this, or not to this name. Another key may.

    Example:

        try:
            client.create("orders")
        except Forbidden as error:
            print("this key may not do that:", error.message)
    """

    code = "forbidden"


class Throttled(TopicsError):
    """A resource cap is reached or the server is under pressure. Retry after `retry_after_ms`.

    Example:

        try:
            client.with_options(retry=NO_RETRY).append("orders", [1])
        except Throttled as error:
            print("later, in ms:", error.retry_after_ms)
    """

    code = "throttled"

    def __init__(self, message: str, *, retry_after_ms: int = 1000, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message, detail=detail)
        self.retry_after_ms = retry_after_ms


class Unavailable(TopicsError):
    """The server cannot do this now: starting, stopping, or its disk failed. Nothing was acknowledged.

    Example:

        try:
            client.with_options(retry=NO_RETRY).ready()
        except Unavailable as error:
            print(error.code)
    """

    code = "not_ready"


class CorruptStorage(TopicsError):
    """Bytes that were once safe have changed or cannot be read. Names the file and the offset; restore it from a copy.

    `records` is the range of seqs that cannot be served because of it, where the damage is limited to one.
    """

    code = "corrupt_storage"

    def __init__(
        self,
        path: str,
        offset: int,
        what: str,
        *,
        records: tuple[int, int] | None = None,
        topic: str | None = None,
        partition: int = 0,
    ) -> None:
        message = f"{path} at byte {offset}: {what}"
        detail: dict[str, Any] = {"file": path, "offset": offset}
        if records is not None:
            detail |= {"first_seq": records[0], "last_seq": records[1]}
            if topic is not None:
                detail |= {"topic": topic, "partition": partition}
                message = f'records {records[0]} to {records[1]} of topic "{topic}", partition {partition}, are damaged: {message}'
        super().__init__(message, detail=detail)
        self.path = path
        self.offset = offset
        self.what = what
        self.records = records


def not_a_queue(topic: str) -> Conflict:
    return Conflict(f'topic "{topic}" is not a queue', code="not_a_queue", detail={"topic": topic})


def topic_not_found(topic: str) -> NotFound:
    return NotFound(f'topic "{topic}" does not exist', detail={"topic": topic})
