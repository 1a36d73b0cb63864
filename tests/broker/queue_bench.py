"""A broker with a queue on a disk in memory: each call is one request, answered before it returns."""

import json
from typing import Any

from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.broker.queues.claims import Claim, ClaimResult
from topics.broker.queues.queues import QueueStats
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.engine.queues.lease_facts import AckResult
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings
from topics.testing.clock import ManualClock
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.runtime import ManualRuntime

Job = dict[str, Any]


class QueueBench:
    def __init__(
        self,
        disk: FakeDisk | None = None,
        clock: ManualClock | None = None,
        settings: StorageSettings | None = None,
        limits: Limits | None = None,
    ) -> None:
        if disk is None:
            disk = FakeDisk()
            disk.make_directory("")
        self.disk = disk
        self.clock = clock or ManualClock()
        self.settings = settings or StorageSettings(wal_file_bytes=64 << 10, margin=1000)
        self.limits = limits or Limits()
        self.runtime = ManualRuntime(self.clock)
        self.broker = Broker(disk, self.runtime, recover(disk, self.settings), self.limits, self.settings)
        self.broker.start()
        self.runtime.run()

    def after_kill(self) -> "QueueBench":
        return QueueBench(self.disk.after_kill(), self.clock, self.settings, self.limits)

    def after_power_cut(self) -> "QueueBench":
        return QueueBench(self.disk.after_power_cut(survive="none"), self.clock, self.settings, self.limits)

    def pass_time(self, ms: int) -> None:
        """Time passes and what it triggers has happened."""
        self.clock.advance(ms)
        self.runtime.run()

    def configure(self, name: str = "q", **fields: Any) -> None:
        fields.setdefault("type", "queue")
        self._answer(lambda reply: self.broker.configure(name, ConfigChange(**fields), reply))

    def append(self, *datas: Any, name: str = "q", **fields: Any) -> list[int]:
        """One write; `fields` go into every record."""
        records = [{"data": data, **fields} for data in datas]
        body = json.dumps({"records": records}).encode()
        outcome = self._answer(lambda reply: self.broker.append(name, decode_batch(body, self.limits), reply))
        return list(range(outcome.first_seq, outcome.first_seq + outcome.count))

    def start_claim(
        self, most: int = 1, node: str = "w", lease_ms: int | None = None, wait_ms: int = 0, name: str = "q"
    ) -> tuple[list[ClaimResult | TopicsError], Claim | None]:
        """A claim that is only begun; its answer comes into the list."""
        answers: list[ClaimResult | TopicsError] = []
        claim = self.broker.queues.claim(name, 0, node, most, lease_ms, wait_ms, answers.append)
        return answers, claim

    def claim(self, most: int = 1, node: str = "w", lease_ms: int | None = None, name: str = "q") -> list[Job]:
        answers, _ = self.start_claim(most, node, lease_ms, name=name)
        self.runtime.run()
        return jobs_of(answers)

    def ack(self, *seqs: int, node: str = "w", lease_ids: list[str] | None = None, name: str = "q") -> AckResult:
        return self._answer(lambda reply: self.broker.queues.ack(name, 0, node, list(seqs), lease_ids, reply))

    def nack(self, *seqs: int, node: str = "w", delay_ms: int = 0, name: str = "q") -> AckResult:
        return self._answer(lambda reply: self.broker.queues.nack(name, 0, node, list(seqs), None, delay_ms, reply))

    def extend(self, *seqs: int, lease_ms: int, node: str = "w", name: str = "q") -> AckResult:
        return self._answer(lambda reply: self.broker.queues.extend(name, 0, node, list(seqs), None, lease_ms, reply))

    def counters(self, name: str = "q") -> tuple[int, int, int]:
        found: QueueStats = self.broker.queues.stats(self.broker.topic(name))
        return found.ready, found.in_flight, found.dead_lettered

    def records(self, name: str = "q") -> list[Job]:
        """What a reader of the log sees."""
        if name not in self.broker.state.topics:
            return []
        partition = self.broker.topic(name).partitions[0]
        found: list[Job] = []
        from_seq = 0
        while from_seq < partition.head_seq:
            # A read ends where records were lost; the next one gets a tombstone and continues after them.
            read = read_records(partition, from_seq, 10_000, 1 << 30, View(tags=True))
            found += json.loads(b"[%b]" % bytes(read.records))
            from_seq = read.next_from_seq
        return found

    def checkpoint(self) -> None:
        """Seal and snapshot now."""
        worked: list[bool] = []
        self.broker.checkpointer.checkpoint(done=worked.append)
        self.runtime.run()
        self.pass_time(1)
        assert worked == [True]

    def _answer(self, ask: Any) -> Any:
        answers: list[Any] = []
        ask(answers.append)
        self.runtime.run()
        (answer,) = answers
        if isinstance(answer, TopicsError):
            raise answer
        return answer


def jobs_of(answers: list[ClaimResult | TopicsError]) -> list[Job]:
    (answer,) = answers
    if isinstance(answer, TopicsError):
        raise answer
    jobs: list[Job] = json.loads(b"[%b]" % b",".join(answer.jobs))
    assert len(jobs) == answer.count
    return jobs


def seqs_of(jobs: list[Job]) -> list[int]:
    return [job["$seq"] for job in jobs]
