"""A server whose records are deleted, evicted, expired and lost, and a model of what a reader must get.

`ReadWorld` sends every change both to a server (in a thread, on a disk that can lose power, with a clock that can be moved
forward) and to a `Model`. What the model says is short enough to be believed:

    live      appended, and neither deleted, evicted, expired nor lost by a power cut
    a reader  gets every live record once, in order, and one tombstone for each range that was lost against its will
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import uvloop

from tests.server.house import House
from topics.client import Client
from topics.client.calls import RecordIn
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.partition import Partition
from topics.model.records.page import RECORD_OVERHEAD
from topics.runtime.loop_runtime import LoopRuntime
from topics.segments.sealed_segments import SealedSegment
from topics.testing.http import Api

OWN = "own"
TTL_MS = 3_600_000
# More than half of a lifetime: what is two steps old has expired, what is one step old has not, however slow the test is.
AGEING_MS = TTL_MS * 6 // 10
PATIENCE_SECONDS = 30.0
# A topic with more records than this is not read one by one.
LARGE = 2000


class Item(NamedTuple):
    """What a reader gets: a record, or the news that first..last are lost (`data` is then None)."""

    first: int
    last: int
    data: Any

    @property
    def is_lost(self) -> bool:
        return self.data is None


class Known(NamedTuple):
    """A record as it was sent."""

    data: Any
    node: str | None
    tag: str
    size: int
    born_ms: int


class Model:
    """What the topic holds and what it has lost."""

    def __init__(self) -> None:
        self.head = 0
        self.known: dict[int, Known] = {}
        self.live: list[int] = []
        self.deleted: set[int] = set()
        # Lost to caps, age and power cuts.
        self.lost: set[int] = set()
        self.evict_floor = 1
        self.holes: list[tuple[int, int]] = []

    def append(self, first_seq: int, records: list[Known]) -> None:
        for seq, record in enumerate(records, first_seq):
            self.known[seq] = record
            self.live.append(seq)
        self.head = first_seq + len(records) - 1

    def delete(self, matches: Callable[[int, Known], bool]) -> None:
        gone = [seq for seq in self.live if matches(seq, self.known[seq])]
        self.deleted.update(gone)
        self._remove(gone)

    def evict(self, count: int) -> None:
        """The oldest `count` live records go."""
        gone = self.live[:count]
        if gone:
            self.evict_floor = gone[-1] + 1
            self.lost.update(gone)
            self._remove(gone)

    def expire(self, now_ms: int) -> None:
        self.evict(sum([self.known[seq].born_ms + TTL_MS <= now_ms for seq in self.live]))

    def lose(self, first: int, last: int) -> None:
        """A power cut has taken these seqs, whether records were in them or not."""
        self.lost.update(range(first, last + 1))
        self._remove([seq for seq in self.live if first <= seq <= last])
        if self.holes and self.holes[-1][1] + 1 == first:
            first = self.holes.pop()[0]
        self.holes.append((first, last))
        self.head = max(self.head, last)

    def items(self, from_seq: int = 0, to_seq: int | None = None, own: str | None = None) -> list[Item]:
        """What a reader gets that begins behind `from_seq` and leaves out the records of `own`."""
        to_seq = self.head if to_seq is None else to_seq
        found: list[Item] = []
        at = from_seq + 1
        earliest = self.live[0] if self.live else self.head + 1
        if at < self.evict_floor:
            found.append(Item(at, earliest - 1, None))
            at = earliest
        found += [Item(max(first, at), last, None) for first, last in self.holes if last >= at]
        wanted = [seq for seq in self.live if seq >= at and (own is None or self.known[seq].node != own)]
        found += [Item(seq, seq, self.known[seq].data) for seq in wanted]
        return sorted([item for item in found if item.first <= to_seq], key=lambda item: item.first)

    def _remove(self, gone: list[int]) -> None:
        without = set(gone)
        self.live = [seq for seq in self.live if seq not in without]


class MovedRuntime(LoopRuntime):
    """A loop whose clock can be set forward."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + MovedRuntime.ahead_ms


class ReadHouse(House):
    def make_runtime(self) -> LoopRuntime:
        return MovedRuntime(asyncio.get_running_loop())


class ReadServer:
    """The server of all worlds, in a thread of its own."""

    def __init__(self) -> None:
        # A small margin, so that the holes of power cuts are short beside what is around them.
        self.house = ReadHouse({"TOPICS_UNSYNCED_RECORDS": "40", "TOPICS_WAL_FILE_BYTES": "262144"})
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="read-world", daemon=True)
        self._thread.start()
        self._run(self.house.start())
        self.url = "http://{}:{}".format(*self.house.address)
        self.api = Api(self.url)
        self.client = Client(self.url)
        self._limits = self.house.broker.limits

    def close(self) -> None:
        self.api.close()
        self.client.close()
        self._run(self.house.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    def do(self, function: Callable[[], Any]) -> Any:
        """Run this on the server's loop."""

        async def run() -> Any:
            return function()

        return self._run(run())

    def until(self, function: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.do(function):
            assert time.monotonic() < deadline, "the server did not get there"

    def partition(self, topic: str) -> Partition:
        return self.house.broker.topic(topic).partitions[0]

    def limit_answers(self, **limits: int) -> None:
        """Answers of this server are bounded like this from now on; without arguments, as usual."""
        self.house.broker.limits = msgspec.structs.replace(self._limits, **limits)

    def cut_power(self, seed: int) -> None:
        def cut() -> None:
            house = self.house
            disk = house.disk.after_power_cut("random", seed=seed)
            house.runtime.stop()
            house.runtime = house.make_runtime()
            house.disk = disk
            house.recover()

        self.do(cut)

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_SECONDS)


class ReadWorld:
    """One topic, its model, and ways to change both. What happens follows from the seed."""

    def __init__(self, server: ReadServer, topic: str, seed: int, **config: Any) -> None:
        self.server = server
        self.topic = topic
        self.model = Model()
        self.chance = random.Random(seed)
        self.has_ttl = self.chance.random() < 0.5
        # A connection from before the last of them is dead.
        self.power_cuts = 0
        self._records = 0
        # Equal sizes let a byte budget end exactly where a segment does.
        self._widths = [60] if self.chance.random() < 0.7 else [1, 60, 700]
        server.client.create(topic, ttl_ms=TTL_MS if self.has_ttl else 0, **config)

    @property
    def client(self) -> Client:
        return self.server.client

    @property
    def partition(self) -> Partition:
        return self.server.partition(self.topic)

    def append(self, count: int, node: str | None = None) -> int:
        """Answers the last seq."""
        now_ms = self.server.do(self.server.house.runtime.now_ms)
        records: list[RecordIn] = []
        known: list[Known] = []
        for _ in range(count):
            self._records += 1
            tag = f"t{self._records % 7}"
            data = {"n": self._records + 1_000_000, "text": "x" * self.chance.choice(self._widths)}
            records.append(RecordIn(data, tag=tag, node=node))
            texts = [msgspec.json.encode(each) for each in (data, tag, node) if each is not None]
            known.append(Known(data, node, tag, sum(map(len, texts)) + RECORD_OVERHEAD, now_ms))
        done = self.client.append(self.topic, records, return_seqs=False)
        self.model.append(done.first_seq, known)
        self._forget_expired()
        return done.last_seq

    def delete_tag(self, tag: str) -> None:
        self._forget_expired()
        self.client.delete(self.topic, match=["tag", "Eq", tag])
        self.model.delete(lambda seq, known: known.tag == tag)

    def delete_between(self, first: int, last: int, tag: str) -> None:
        """By tag and bound, which leaves short runs of deleted records."""
        self._forget_expired()
        self.client.delete(self.topic, before_seq=last + 1, match=["tag", "Eq", tag])
        self.model.delete(lambda seq, known: seq <= last and known.tag == tag)

    def delete_before(self, before_seq: int) -> None:
        self._forget_expired()
        self.client.delete(self.topic, before_seq=before_seq)
        self.model.delete(lambda seq, known: seq < before_seq)

    def keep_newest(self, count: int) -> None:
        """A cap evicts all but the newest, and is lifted again."""
        self._forget_expired()
        self.client.create(self.topic, cap_records=count)
        self.client.create(self.topic, cap_records=0)
        self.model.evict(max(0, len(self.model.live) - count))

    def age(self) -> None:
        """Time passes: records that have seen this once before expire."""

        def forward() -> None:
            MovedRuntime.ahead_ms += AGEING_MS

        self.server.do(forward)
        self._forget_expired()

    def seal(self) -> None:
        """All records up to here are in sealed segments."""
        broker = self.server.house.broker
        topic = broker.topic(self.topic)
        self.server.do(lambda: broker.sealer.seal(topic, topic.partitions[0]))
        self.server.until(lambda: all([segment.sealed for segment in self.partition.segments if segment.live]))

    def cut_power(self) -> None:
        """The newest records of a disk topic may be lost; a range of seqs is reported to readers in any case."""
        self._forget_expired()
        # Creating a topic syncs the log, so that only what is appended now can be lost, and no delete.
        self.client.create(f"{self.topic}-sync-{self.model.head}", durability="ephemeral")
        self.append(self.chance.randrange(1, 6))
        before = self.model.head
        self.power_cuts += 1
        self.server.cut_power(self.chance.randrange(1 << 30))
        holes = self.server.do(lambda: [(hole.first, hole.last) for hole in self.partition.holes])
        known = {seq for hole in self.model.holes for seq in range(hole[0], hole[1] + 1)}
        first, last = holes[-1]
        assert last >= before, "a power cut costs the margin"
        first = next((seq for seq in range(first, last + 1) if seq not in known), last + 1)
        if first <= last:
            self.model.lose(first, last)

    def change(self, cursor: int = 0, *, power: bool = True) -> None:
        """One of all things that can happen to a topic with a reader at this cursor; `power`: a power cut too."""
        model, chance = self.model, self.chance
        action = chance.randrange(12)
        if action <= 3 or len(model.live) < 5:
            self.append(chance.choice([1, 2, 16, 40]), chance.choice([None, OWN, "other"]))
        elif action == 4:
            self.delete_tag(f"t{chance.randrange(7)}")
        elif action == 5:
            self.delete_between(1, chance.choice(model.live), f"t{chance.randrange(7)}")
        elif action == 6:
            self.delete_before(model.live[len(model.live) // 5])
        elif action == 7:
            # Some, or just the record that the reader would get next.
            behind = len([seq for seq in model.live if seq > cursor + 1])
            self.keep_newest(chance.choice([len(model.live) - len(model.live) // 4, max(1, behind)]))
        elif action == 8 and self.has_ttl:
            self.age()
        elif action == 9 and power:
            self.cut_power()
        else:
            self.seal()

    def boundaries(self) -> list[int]:
        """The last seqs of everything that records are kept in: pages, batches and segments."""

        def look() -> list[int]:
            found: set[int] = set()
            for segment in self.partition.segments:
                found.add(segment.last_seq)
                if isinstance(segment, HotSegment):
                    found.update([page.last_seq for page in segment.pages])
                elif isinstance(segment, SealedSegment):
                    found.update([batch.first_seq + batch.rows - 1 for batch in segment.open_file().batches])
            return sorted(found)

        return list(self.server.do(look))

    def _forget_expired(self) -> None:
        if self.has_ttl:
            self.model.expire(self.server.do(self.server.house.runtime.now_ms))


class Sizes:
    """Page sizes that hurt: they end right before, at and right behind the end of a record, page, batch or segment."""

    def __init__(self, world: ReadWorld, chance: random.Random) -> None:
        self._world = world
        self._chance = chance

    def page(self, cursor: int) -> tuple[int, int]:
        """A limit and a byte budget for a page behind the cursor; one of the two ends it."""
        model, chance = self._world.model, self._chance
        ends = [end for end in self._world.boundaries() if end > cursor] or [cursor + 1]
        end = chance.choice([ends[0], chance.choice(ends), ends[-1]])
        if model.head < LARGE and chance.random() < 0.3:
            end = cursor + chance.randrange(1, 4)
        passed = [seq for seq in model.live if cursor < seq <= end]
        extra = chance.choice([-1, 0, 0, 0, 1])
        if chance.random() < 0.5:
            return max(1, len(passed) + extra), 1 << 20
        return 100_000, max(1, sum([model.known[seq].size for seq in passed]) + extra)
