"""Append many records in batches that the server accepts."""

from collections.abc import Iterable, Iterator

from topics.client import Appended, Client, RecordIn
from topics.model.errors import TopicsError

MAX_BATCH_RECORDS = 1000
MAX_BATCH_BYTES = 1 << 20
# Refusals after which the command tries fewer records at a time.
TOO_LARGE = ("batch_too_large", "payload_too_large")


def append_batches(
    client: Client,
    topic: str,
    batches: Iterable[list[RecordIn]],
    *,
    node: str | None = None,
    partition: int | None = None,
    partition_key: str | None = None,
) -> Iterator[Appended]:
    """Append the batches in order and yield the result of each request. A batch that is too large is halved."""
    max_records = MAX_BATCH_RECORDS
    for whole in batches:
        waiting = whole
        while waiting:
            batch = waiting[:max_records]
            try:
                yield client.append(
                    topic, batch, node=node, partition=partition, partition_key=partition_key, return_seqs=False
                )
            except TopicsError as error:
                if error.code not in TOO_LARGE or len(batch) == 1:
                    raise
                max_records = (len(batch) + 1) // 2
                continue
            waiting = waiting[len(batch) :]
