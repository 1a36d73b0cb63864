"""A scenario whose operations write every kind of fact."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.broker.groups.groups import ack as ack_group
from topics.broker.groups.groups import drop_group
from topics.broker.routers.routers import WantedRouter
from topics.broker.tables.archives import clear_archive, report_progress, set_archive
from topics.broker.tables.tables import drop_table, put_table
from topics.broker.transactions.stages import commit, drop_stages, stage
from topics.engine.partitions.partition import Partition
from topics.engine.transactions.commit_request import CommitRequest
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.facts import PACKED, Lost, Repaired
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.model.router import RouterChange
from topics.model.storage_settings import StorageSettings
from topics.model.tables.archive import ArchivedTo, ArchiveOptions
from topics.model.tables.change import Defaults, decode_changes
from topics.model.tables.route import Route
from topics.model.tables.table import Table
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

SETTINGS = StorageSettings(
    wal_file_bytes=64 << 10, segment_bytes=1 << 20, hot_bytes=1 << 22, checkpoint_bytes=1 << 30, margin=1000
)
LIMITS = Limits()


class Scenario:
    """A broker on a fake disk. `steps` runs the operations one by one; nothing is in flight between two of them.

    `after_turn` is called with the scenario after every turn of the loop, while operations are in flight.
    """

    def __init__(self, after_turn: "Callable[[Scenario], None]" = lambda _: None) -> None:
        self.after_turn = after_turn
        self.disk = FakeDisk()
        self.disk.make_directory("")
        self.runtime = ManualRuntime()
        self.broker = Broker(self.disk, self.runtime, recover(self.disk, SETTINGS), LIMITS, SETTINGS)
        self.broker.start()
        self.run()

    def run(self) -> None:
        """Run until nothing is scheduled."""
        for _ in range(5000):
            called = self.runtime.single_turn()
            if self.runtime.waiting_aside:
                self.runtime.finish_one()
            elif not called:
                return
            self.after_turn(self)
        raise AssertionError("the broker schedules work without end")

    def ask(self, operation: Callable[..., None], *arguments: Any, **options: Any) -> Any:
        outcomes: list[Any] = []
        operation(*arguments, **options, reply=outcomes.append)
        self.run()
        (outcome,) = outcomes
        if isinstance(outcome, TopicsError):
            raise outcome
        return outcome

    def configure(self, name: str, **fields: Any) -> None:
        self.ask(self.broker.configure, name, ConfigChange(**fields))

    def append(self, name: str, *records: dict[str, Any], **fields: Any) -> None:
        body = msgspec.json.encode({"records": [*records], **fields})
        self.ask(self.broker.append, name, decode_batch(body, LIMITS))

    def claim(self, name: str, count: int) -> list[int]:
        results: list[Any] = []
        self.broker.queues.claim(name, 0, "node", count, 60_000, 0, results.append)
        self.run()
        (result,) = results
        if isinstance(result, TopicsError):
            raise result
        return [] if result.delivery is None else list(result.delivery.seqs)

    def partition(self, name: str) -> Partition:
        return self.broker.topic(name).partitions[0]

    def steps(self) -> Iterator[str]:
        """Run the operations. Yields the name of each after it."""
        broker, ask = self.broker, self.ask
        self.configure("log", durability="disk")
        yield "create a topic"
        self.configure("log", idempotency_window_ms=60_000)
        yield "configure it"
        ask(broker.set_alias, "log", "alias")
        yield "set an alias"
        self.append("log", *[{"data": n, "tag": f"t{n}", "node": "n"} for n in range(12)], idempotency_key="k")
        yield "append"
        ask(broker.delete_records, "log", None, TagMatch("t5", False), 0)
        yield "delete by tag"
        ask(broker.delete_records, "log", None, TagMatch("t1", True), 0)
        yield "delete by prefix"
        ask(broker.delete_records, "log", 2, None, 0)
        yield "delete below a seq"
        ask(broker.commit_facts, [Lost(broker.topic("log").id, 0, 13, 15, 4)])
        yield "lose records"
        broker.sealer.seal(broker.topic("log"), self.partition("log"))
        self.run()
        yield "seal"
        self.append("log", {"data": "hot"})
        broker.sealer.packer.pack([self.partition("log")])
        self.run()
        yield "pack"
        ask(broker.commit_facts, [Repaired(broker.topic("log").id, 0, 16, 16, PACKED, [], [(16, 16)])])
        yield "repair"
        self.configure("capped", cap_records=3)
        self.append("capped", *[{"data": n} for n in range(5)])
        yield "evict"
        self.configure("ephemeral", durability="ephemeral")
        self.append("ephemeral", {"data": 1}, {"data": 2})
        yield "append to an ephemeral topic"
        yield from self._queue()
        yield from self._groups_and_stages()
        yield from self._routers()
        yield from self._tables()
        ask(broker.delete_topic, "alone", if_empty=False)
        yield "delete a topic"

    def _queue(self) -> Iterator[str]:
        broker, ask = self.broker, self.ask
        self.configure("queue", type="queue", leases_durable=True, max_deliveries=1, dead_letter="dead")
        self.append("queue", *[{"data": n} for n in range(6)], {"data": "later", "delay_ms": 5000})
        yield "append jobs with a delay"
        assert self.claim("queue", 4) == [1, 2, 3, 4]
        yield "claim"
        acked: list[Any] = []
        broker.queues.ack("queue", 0, "node", [1], None, acked.append)
        self.run()
        yield "ack"
        ask(broker.queues.nack, "queue", 0, "node", [2], None, 0)
        yield "nack"
        ask(broker.queues.nack, "queue", 0, "node", [3], None, 9000)
        yield "nack with a delay"
        ask(broker.queues.extend, "queue", 0, "node", [4], None, 90_000)
        yield "extend"
        assert self.claim("queue", 1) == [5]
        yield "move a dead letter"

    def _groups_and_stages(self) -> Iterator[str]:
        broker, ask = self.broker, self.ask
        topic = broker.topic("log")
        self.append("log", {"data": "for groups"})
        ask(ack_group, broker, topic, "group", self.partition("log"), 17)
        yield "move a group"
        ask(ack_group, broker, topic, "second", self.partition("log"), 17)
        ask(drop_group, broker, topic, "group")
        yield "drop a group"
        batch = decode_batch(b'{"records":[{"data":"staged","tag":"s"}]}', LIMITS)
        ask(stage, broker, "first", topic, [batch], producer="producer")
        yield "stage records"
        ask(stage, broker, "second", topic, [batch])
        drop_stages(broker, ["first"])
        self.run()
        yield "drop a stage"
        ask(commit, broker, CommitRequest(["second"], [], "producer", 7, prefixes=("lo",), digest="d"))
        yield "commit a stage"

    def _routers(self) -> Iterator[str]:
        broker, ask = self.broker, self.ask
        ask(broker.routers.put, WantedRouter("router", "log", "copies", from_earliest=True))
        yield "create a router"
        ask(broker.routers.put, WantedRouter("router", "log", "copies", RouterChange(preserve_tag=False)))
        self.append("log", {"data": "forwarded", "tag": "x"})
        yield "configure a router"
        ask(broker.routers.put, WantedRouter("other", "log", "alone"))
        ask(broker.routers.delete, "other")
        yield "delete a router"

    def _tables(self) -> Iterator[str]:
        broker, ask = self.broker, self.ask
        event = b'[{"op":"update","key":{"id":1},"after":{"id":1},"position":10}]'
        ask(broker.changes.append, "table", decode_changes(event, Defaults(1), 1000))
        yield "append changes"
        ask(put_table, broker, Table("table", "push", None, ("id",), {}, 1))
        yield "register a table"
        ask(put_table, broker, Table("other", "push", None, ("id",), {}, 1))
        ask(drop_table, broker, "table")
        yield "drop a table"
        ask(broker.change_routes, "log", lambda _, version: [Route("table", "Insert", "Full", version)])
        yield "set routes"
        ask(set_archive, broker, "log", ArchiveOptions("s3://lake/log"))
        yield "set an archive"
        ask(report_progress, broker, "log", [ArchivedTo(0, broker.topic("log").epoch, 5)], 3)
        yield "report progress of an archive"
        ask(set_archive, broker, "capped", ArchiveOptions("s3://lake/capped"))
        ask(clear_archive, broker, "capped")
        yield "clear an archive"
