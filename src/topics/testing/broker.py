"""A broker for tests: on a disk in memory, on a clock that the test moves, one turn at a time."""

from typing import Any

from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.engine.topics.topic import Topic
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.model.storage_settings import StorageSettings
from topics.testing.clock import ManualClock
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime


class BrokerBench:
    """A broker with what a test needs around it. Calls answer when the broker has."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        settings: StorageSettings | None = None,
        limits: Limits | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        if disk is None:
            disk = FakeDisk()
            disk.make_directory("")
        self.disk = disk
        self.settings = settings or StorageSettings()
        self.limits = limits or Limits()
        self.clock = clock or ManualClock()
        self.runtime = ManualRuntime(self.clock)
        self.broker = Broker(disk, self.runtime, recover(disk, self.settings), self.limits, self.settings)
        self.broker.start()
        self.runtime.run()

    def after_kill(self) -> "BrokerBench":
        """The process is killed and another one continues with what it wrote."""
        return BrokerBench(self.disk.after_kill(), self.settings, self.limits, self.clock)

    def configure(self, name: str, **fields: Any) -> Topic:
        self._answer(lambda reply: self.broker.configure(name, ConfigChange(**fields), reply))
        return self.broker.topic(name)

    def submit(self, name: str, body: bytes) -> list[Any]:
        """A write that is only submitted: its outcome comes into the list when the test lets it."""
        outcome: list[Any] = []
        self.broker.append(name, decode_batch(body, self.limits), outcome.append)
        return outcome

    def append(self, name: str, *datas: bytes, node: str = "", tag: str = "") -> int:
        """Append these JSON texts; answers the last seq."""
        extra = (b',"node":"%b"' % node.encode() if node else b"") + (b',"tag":"%b"' % tag.encode() if tag else b"")
        records = b",".join([b'{"data":%b%b}' % (data, extra) for data in datas])
        outcome = self._answer(
            lambda reply: self.broker.append(name, decode_batch(b'{"records":[%b]}' % records, self.limits), reply)
        )
        last: int = outcome.last_seq
        return last

    def delete_records(self, name: str, before_seq: int | None = None, tag: str | None = None) -> None:
        match = None if tag is None else TagMatch(tag, False)
        self._answer(lambda reply: self.broker.delete_records(name, before_seq, match, 0, reply))

    def delete_topic(self, name: str) -> None:
        self._answer(lambda reply: self.broker.delete_topic(name, if_empty=False, reply=reply))

    def _answer(self, ask: Any) -> Any:
        answers: list[Any] = []
        ask(answers.append)
        self.runtime.run()
        (answer,) = answers
        if isinstance(answer, TopicsError):
            raise answer
        return answer
