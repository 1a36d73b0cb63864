"""A broker on a disk in memory, moved step by step: what the tests of this room share."""

from collections.abc import Callable
from typing import Any

import msgspec

from topics.broker.broker import Broker
from topics.broker.checkpoint import StorageSettings
from topics.broker.recovery import Recovered, recover
from topics.engine.render import View
from topics.model.batch import decode_batch
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.testing.disk import FakeDisk
from topics.testing.runtime import ManualRuntime

SMALL = StorageSettings(
    wal_file_bytes=16 << 10, segment_bytes=2000, hot_bytes=20_000, checkpoint_bytes=1 << 30, margin=1000
)


class House:
    """One life of a server on a disk: from recovery until the test lets it go."""

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

    def after_kill(self) -> "House":
        return House(self.disk.after_kill(), self.settings, self.limits)

    def after_power_cut(self, survive: Any = "none") -> "House":
        return House(self.disk.after_power_cut(survive=survive), self.settings, self.limits)

    def ask(self, operation: Callable[..., None], *arguments: Any, **options: Any) -> Any:
        """Do it, let everything come to rest, and answer the outcome; an error is raised."""
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
        """All records behind `from_seq`, as a reader sees them, tags included."""
        partition = self.broker.topic(name).partitions[0]
        nodes = frozenset() if without is None else frozenset([msgspec.json.encode(without)])
        found: list[dict[str, Any]] = []
        for _ in range(10_000):
            read = partition.read(from_seq, 1000, 1 << 20, View(tags=True, without_nodes=nodes))
            found += msgspec.json.decode(b"[" + bytes(read.records) + b"]")
            from_seq = read.next_from_seq
            if from_seq >= partition.head_seq:
                return found
        raise AssertionError("the reader never catches up")

    def datas(self, name: str, from_seq: int = 0) -> list[Any]:
        return [record["data"] for record in self.read(name, from_seq)]

    def wait(self, ms: int) -> None:
        """Time passes, and what it sets off comes to rest."""
        for _ in range(max(1, ms // 50)):
            self.runtime.clock.advance(min(ms, 50))
            self.runtime.run()

    def checkpoint(self) -> None:
        self.broker.keeper.checkpoint()
        self.runtime.run()
        self.wait(0)
