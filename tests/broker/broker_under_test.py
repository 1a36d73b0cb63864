"""A broker on an in-memory disk that a test runs step by step. Shared by the tests of the broker package."""

from collections.abc import Callable
from typing import Any

import msgspec

from topics.broker.broker import Broker
from topics.broker.durability.recovery import Recovered, recover
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

SMALL = StorageSettings(
    wal_file_bytes=16 << 10, segment_bytes=2000, hot_bytes=20_000, checkpoint_bytes=1 << 30, margin=1000
)


class BrokerUnderTest:
    """One run of a broker on a disk: it starts with a recovery, and the next run starts with `after_kill` or `after_power_cut`."""

    def __init__(
        self, disk: FakeDisk | None = None, settings: StorageSettings = SMALL, limits: Limits | None = None
    ) -> None:
        self.settings = settings
        self.limits = limits or Limits()
        self.runtime = ManualRuntime()
        if disk is None:
            disk = FakeDisk()
            disk.make_directory("")
        self.disk = disk
        self.recovered: Recovered = recover(disk, settings)
        self.broker = Broker(disk, self.runtime, self.recovered, self.limits, settings)
        self.broker.start()
        self.runtime.run()

    def after_kill(self) -> "BrokerUnderTest":
        return BrokerUnderTest(self.disk.after_kill(), self.settings, self.limits)

    def after_power_cut(self, survive: Any = "none") -> "BrokerUnderTest":
        return BrokerUnderTest(self.disk.after_power_cut(survive=survive), self.settings, self.limits)

    def ask(self, operation: Callable[..., None], *arguments: Any, **options: Any) -> Any:
        """Run the operation and all callbacks that follow; return its outcome, or raise it if it is an error."""
        outcomes: list[Any] = []
        operation(*arguments, **options, reply=outcomes.append)
        self.runtime.run()
        assert len(outcomes) == 1
        if isinstance(outcomes[0], TopicsError):
            raise outcomes[0]
        return outcomes[0]

    def configure(self, name: str, **fields: Any) -> Any:
        return self.ask(self.broker.configure, name, ConfigChange(**fields))

    def append(self, name: str, *datas: Any, **fields: Any) -> Any:
        records = [each if isinstance(each, dict) and "data" in each else {"data": each} for each in datas]
        body = msgspec.json.encode({"records": records, **fields})
        return self.ask(self.broker.append, name, decode_batch(body, self.limits))

    def read(self, name: str, from_seq: int = 0, *, without: str | None = None) -> list[dict[str, Any]]:
        """All records after `from_seq`, as a reader sees them, with their tags."""
        partition = self.broker.topic(name).partitions[0]
        nodes = frozenset() if without is None else frozenset([msgspec.json.encode(without)])
        found: list[dict[str, Any]] = []
        for _ in range(10_000):
            read = read_records(partition, from_seq, 1000, 1 << 20, View(tags=True, without_nodes=nodes))
            found += msgspec.json.decode(b"[" + bytes(read.records) + b"]")
            from_seq = read.next_from_seq
            if from_seq >= partition.head_seq:
                return found
        raise AssertionError("the reader never catches up")

    def datas(self, name: str, from_seq: int = 0) -> list[Any]:
        return [record["data"] for record in self.read(name, from_seq)]

    def wait(self, ms: int) -> None:
        """Advance the clock in steps of at most 50 ms and run all callbacks after each step."""
        for _ in range(max(1, ms // 50)):
            self.runtime.clock.advance(min(ms, 50))
            self.runtime.run()

    def checkpoint(self) -> None:
        self.broker.checkpointer.checkpoint()
        self.runtime.run()
        self.wait(0)
