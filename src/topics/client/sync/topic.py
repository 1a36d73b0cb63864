"""A handle for one topic. Generated from topics.client.asynchronous by `make generate`; do not edit."""

from __future__ import annotations  # keeps the import quick

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from msgspec import UNSET, UnsetType

from topics.client.items import Watched
from topics.client.values import Appended, Configured, Deleted, Dropped, Record, RecordIn, Tombstone, TopicInfo

if TYPE_CHECKING:
    from topics.client.sync.client import Client

T = TypeVar("T")
_turns = itertools.count()


class Topic:
    """One topic of a client: `client.topic("orders")`.

    Records without a partition and a key are spread over the partitions of the topic.

    Example:

        orders = client.topic("orders")
        orders.append({"sku": "AEROPRESS"}, tag="customer-7")
        for item in orders.read():
            print(item)
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} of {self._client.url}>"

    def append(
        self,
        data: Any,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
        delay_ms: int | None = None,
        partition: int | None = None,
        partition_key: str | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append one record. `data` is any value that is JSON: also Structs and dataclasses.

        tag: For deletes and filters.
        node: Who writes it.
        meta: Small metadata beside the payload.
        delay_ms: Queues: the job can be claimed after this long.
        partition: Partition to append to, or
        partition_key: text that selects it; records with the same key keep their order.
        idempotency_key: A repeat with the same key appends nothing. Made up if it is not given.

        Example:

            appended = client.topic("orders").append({"sku": "AEROPRESS"}, tag="customer-7")
            print(appended.first_seq)
        """
        record = RecordIn(data, tag=tag, node=node, delay_ms=delay_ms)
        if meta is not None:
            record.meta = meta
        return self.append_many(
            [record], partition=partition, partition_key=partition_key, idempotency_key=idempotency_key
        )

    def append_many(
        self,
        records: Sequence[Any],
        *,
        node: str | None = None,
        partition: int | None = None,
        partition_key: str | None = None,
        idempotency_key: str | None = None,
    ) -> Appended:
        """Append payloads, or `RecordIn` for records with a tag, node or meta: all of them or none, to one partition.

        Example:

            client.topic("orders").append_many([{"sku": "FILTERS"}, RecordIn({"sku": "MUG"}, tag="customer-7")])
        """
        if partition is None and partition_key is None:
            count = self._client.partition_count(self.name)
            if count > 1:
                partition = next(_turns) % count
        return self._client.append(
            self.name,
            records,
            node=node,
            partition=partition,
            partition_key=partition_key,
            idempotency_key=idempotency_key,
        )

    @overload
    def read(
        self,
        from_seq: int = 0,
        *,
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[Any] | Tombstone]: ...

    @overload
    def read(
        self,
        from_seq: int = 0,
        *,
        type: type[T],
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[T] | Tombstone]: ...

    def read(
        self,
        from_seq: int = 0,
        *,
        type: Any = None,
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[Any] | Tombstone]:
        """Records after `from_seq`, to the last one. See `Client.read`.

        Example:

            for item in client.topic("orders").read(type=dict[str, str]):
                print(item)
        """
        return self._client.read(
            self.name,
            from_seq,
            type=type,
            limit=limit,
            node=node,
            from_ts=from_ts,
            partition=partition,
        )

    @overload
    def follow(
        self,
        from_seq: int = 0,
        *,
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[Any] | Tombstone]: ...

    @overload
    def follow(
        self,
        from_seq: int = 0,
        *,
        type: type[T],
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[T] | Tombstone]: ...

    def follow(
        self,
        from_seq: int = 0,
        *,
        type: Any = None,
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[Any] | Tombstone]:
        """Records after `from_seq`, then those that are appended, without an end. See `Client.read`.

        Example:

            for item in client.topic("orders").follow(from_seq=0):
                print(item)
                break
        """
        return self._client.read(
            self.name,
            from_seq,
            type=type,
            follow=True,
            limit=limit,
            node=node,
            from_ts=from_ts,
            partition=partition,
        )

    def watch(self, *, from_seq: int | None = None, partition: int | None = None) -> Iterator[Watched]:
        """Everything new on the topic as events, from `from_seq` or from now on. See `Client.watch`.

        Example:

            for item in client.topic("orders").watch(from_seq=0):
                print(item)
                break
        """
        start: Mapping[str, Any] = {"tail": True} if from_seq is None else {"from_seq": from_seq}
        return self._client.watch({self.name: {**start, "partition": partition or 0}})

    def delete(
        self, *, before_seq: int | None = None, match: Any | UnsetType = UNSET, partition: int | None = None
    ) -> Deleted:
        """Delete records for good: those below `before_seq`, or with a tag that matches, or both.

        Without `partition` in all partitions: `deleted` is their sum, the seqs are those of partition 0.
        That also needs the scope read. An error leaves the partitions after it as they are; repeating the call is safe.

        Example:

            client.topic("orders").delete(match="customer-7")
        """
        if partition is not None:
            return self._client.delete(self.name, before_seq=before_seq, match=match, partition=partition)
        info = self._client.info(self.name, touch=False)
        total = self._client.delete(self.name, before_seq=before_seq, match=match)
        for number in range(1, len(info.partitions)):
            done = self._client.delete(self.name, before_seq=before_seq, match=match, partition=number)
            total.deleted += done.deleted
            total.count, total.bytes = done.count, done.bytes
        return total

    def info(self, *, touch: bool = True) -> TopicInfo:
        """The state of the topic. Raises NotFound.

        Example:

            print((client.topic("orders").info()).count)
        """
        return self._client.info(self.name, touch=touch)

    def configure(
        self,
        *,
        type: Literal["log", "queue"] | None = None,
        ttl_ms: int | None = None,
        cap_records: int | None = None,
        cap_bytes: int | None = None,
        discard: Literal["old", "reject"] | None = None,
        durability: Literal["ephemeral", "memory", "disk", "fsync"] | None = None,
        lease_ms: int | None = None,
        max_deliveries: int | None = None,
        dead_letter: str | None | UnsetType = UNSET,
        partitions: int | None = None,
    ) -> Configured:
        """Create the topic, or change the named fields of its configuration. `Client.create` has more of them.

        Example:

            client.topic("orders").configure(durability="fsync")
        """
        return self._client.create(
            self.name,
            type=type,
            ttl_ms=ttl_ms,
            cap_records=cap_records,
            cap_bytes=cap_bytes,
            discard=discard,
            durability=durability,
            lease_ms=lease_ms,
            max_deliveries=max_deliveries,
            dead_letter=dead_letter,
            partitions=partitions,
        )

    def drop(self, *, if_empty: bool = False) -> Dropped:
        """Delete the topic with all its records, groups, routes and routers.

        Example:

            client.topic("orders").drop()
        """
        return self._client.drop(self.name, if_empty=if_empty)
