"""A broker on a disk that may fail, and a model of what it has promised.

`World` sends writes, deletes and configuration to a broker and notes in a `Promises` what was acknowledged, what was
refused and what is still open. `verify` boots a broker on what an end left of the disk and compares. It holds for every
history and every end:

    acknowledged and safe as the topic's class says   is there, byte for byte
    acknowledged and lost, where the class allows it  is reported to readers, is the newest part of the log, and its seqs
                                                      are not used again
    open when the end came                            is there as a whole or not at all
    refused, or deleted for good                      is not there
    anything else                                     is not there
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from topics.broker.broker import Broker
from topics.broker.durability.recovery import Recovered, recover
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.model.config import ConfigChange, TopicConfig, merged
from topics.model.errors import TopicsError
from topics.model.facts import RESTART
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.model.records.page import RECORD_OVERHEAD
from topics.model.steps import finish
from topics.model.storage_settings import StorageSettings
from topics.storage.fs import FileSystem
from topics.testing.clock import ManualClock
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.disk.survival import InFlight
from topics.testing.runtime import ManualRuntime

End = Literal["power", "kill", "clean"]
LIMITS = Limits()
EVERYTHING = View(tags=True)

# So small that a short history seals, rotates, takes snapshots, reaches the margin, and writes batches in the thread.
SMALL = StorageSettings(
    wal_file_bytes=4096,
    reserve_bytes=4096,
    segment_bytes=900,
    hot_bytes=3000,
    checkpoint_bytes=5000,
    cache_bytes=4096,
    margin=12,
    max_loop_write_bytes=400,
)


class Text(NamedTuple):
    """One record as it was sent: JSON texts, empty where absent."""

    data: bytes
    tag: bytes = b""
    node: bytes = b""
    meta: bytes = b""

    @property
    def size(self) -> int:
        return RECORD_OVERHEAD + len(self.data) + len(self.tag) + len(self.node) + len(self.meta)

    def body(self) -> bytes:
        fields = [b'"data":' + self.data]
        fields += [
            b'"%b":%b' % pair for pair in ((b"tag", self.tag), (b"node", self.node), (b"meta", self.meta)) if pair[1]
        ]
        return b"{" + b",".join(fields) + b"}"

    def shown(self, seq: int, ts: int) -> bytes:
        text = b'{"$seq":%d,"$ts":%d' % (seq, ts)
        for name, value in ((b"$node", self.node), (b"$tag", self.tag), (b"data", self.data), (b"meta", self.meta)):
            if value:
                text += b',"%b":%b' % (name, value)
        return text + b"}"


class Write:
    """One append and what became of it."""

    def __init__(self, topic: str, texts: Sequence[Text], key: str | None) -> None:
        self.topic = topic
        self.texts = list(texts)
        self.key = key
        self.state: Literal["open", "acked", "refused", "unknown"] = "open"
        self.topic_id = 0
        self.first_seq = 0
        self.ts = 0
        self.durability = ""


class Known:
    """What is known of one instance of a topic."""

    def __init__(self, topic_id: int, name: str, config: TopicConfig) -> None:
        self.topic_id = topic_id
        self.name = name
        self.configs = [config]
        self.deleting = False
        self.deleted = False
        self.acked: dict[int, tuple[Write, int]] = {}
        # Seqs an acknowledged delete has taken; firmly when its topic was of class fsync.
        self.gone: set[int] = set()
        self.gone_firmly: set[int] = set()
        self.going: set[int] = set()
        # As a reader could have seen them when nothing was under way.
        self.head_seq = 0
        self.evict_floor = 1
        self.earliest_seq = 1
        self.was_capped = False
        self.was_ephemeral = config.durability == "ephemeral"
        self.always_fsync = config.durability == "fsync"

    @property
    def config(self) -> TopicConfig:
        return self.configs[0]


class Promises:
    """Everything that was sent, and what was answered."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.topics: dict[int, Known] = {}
        # Seq and count of the last acknowledged write with a key.
        self.keys: dict[tuple[int, str], tuple[int, int]] = {}
        # Names whose creation is open.
        self.creating: set[str] = set()
        self.highest_topic_id = 0

    def named(self, name: str) -> Known | None:
        """The instance that was acknowledged last and not yet deleted."""
        living = [known for known in self.topics.values() if known.name == name and not known.deleted]
        return max(living, key=lambda known: known.topic_id) if living else None


class World:
    """A broker over a file system, driven step by step."""

    def __init__(
        self,
        fs: FileSystem,
        settings: StorageSettings = SMALL,
        promises: Promises | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.fs = fs
        self.settings = settings
        self.promises = promises or Promises()
        self.clock = clock or ManualClock()
        self.errors: list[TopicsError] = []
        self.boot()

    def boot(self) -> None:
        self.runtime = ManualRuntime(self.clock)
        self.recovered: Recovered = recover(self.fs, self.settings)
        self.broker = Broker(self.fs, self.runtime, self.recovered, LIMITS, self.settings)
        self.broker.start()
        self.run()

    def run(self) -> None:
        self.runtime.run()
        self.look()

    def look(self) -> None:
        """Note what a reader can see now; only called when nothing is under way."""
        for topic in self.broker.state.by_id.values():
            known = self.promises.topics.get(topic.id)
            if known is not None:
                partition = topic.partitions[0]
                known.head_seq = partition.head_seq
                known.evict_floor = partition.evict_floor
                known.earliest_seq = partition.earliest_seq

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.run()

    def append(self, topic: str, texts: Sequence[Text], *, key: str | None = None, config: str | None = None) -> Write:
        write = Write(topic, texts, key)
        self.promises.writes.append(write)
        body = b'{"records":[%b]' % b",".join([text.body() for text in texts])
        if key is not None:
            body += b',"idempotency_key":"%b"' % key.encode()
        if config is not None:
            body += b',"config":%b' % config.encode()
        known = self.promises.named(topic)
        creating = known is None or known.deleting
        if creating:
            self.promises.creating.add(topic)

        def reply(outcome: Any) -> None:
            if creating and not _is_unknown(outcome):
                self.promises.creating.discard(topic)
            if isinstance(outcome, TopicsError):
                self.errors.append(outcome)
                write.state = "unknown" if _is_unknown(outcome) else "refused"
                return
            if outcome.deduped:
                self.promises.writes.remove(write)
                assert key is not None
                # Unknown when the first write with the key was still open at the end of an earlier life.
                first = self.promises.keys.get((outcome.topic.id, key))
                assert first is None or first == (outcome.first_seq, outcome.count)
                write.state, write.first_seq = "acked", outcome.first_seq
                return
            self.acked(write, outcome)

        try:
            self.broker.append(topic, decode_batch(body + b"}", LIMITS), reply)
        except TopicsError as error:
            reply(error)
        return write

    def acked(self, write: Write, outcome: Any) -> None:
        known = self.know(outcome.topic)
        write.state = "acked"
        write.topic_id = outcome.topic.id
        write.first_seq = outcome.first_seq
        write.ts = outcome.group.reservation.ts
        write.durability = outcome.topic.config.durability
        assert outcome.count == len(write.texts)
        if write.key is not None:
            self.promises.keys[outcome.topic.id, write.key] = (outcome.first_seq, outcome.count)
        for index in range(outcome.count):
            seq = outcome.first_seq + index
            assert seq not in known.acked, f"seq {seq} was handed out twice"
            known.acked[seq] = (write, index)

    def configure(self, topic: str, **fields: Any) -> None:
        change = msgspec.convert(fields, ConfigChange)
        known = self.promises.named(topic)
        if known is None:
            self.promises.creating.add(topic)

        def reply(outcome: Any) -> None:
            if not _is_unknown(outcome):
                self.promises.creating.discard(topic)
            if isinstance(outcome, TopicsError):
                self.errors.append(outcome)
                return
            mine = self.know(outcome.topic)
            mine.configs = [outcome.topic.config]
            mine.was_capped |= bool(outcome.topic.config.cap_records or outcome.topic.config.cap_bytes)
            mine.was_ephemeral |= outcome.topic.config.durability == "ephemeral"
            mine.always_fsync &= outcome.topic.config.durability == "fsync"

        if known is not None:
            known.configs.append(merged(topic, known.config, change, exists=True))
            known.was_ephemeral |= known.configs[-1].durability == "ephemeral"
        try:
            self.broker.configure(topic, change, reply)
        except TopicsError as error:
            reply(error)

    def delete_topic(self, topic: str) -> None:
        known = self.promises.named(topic)
        if known is not None:
            known.deleting = True

        def reply(outcome: Any) -> None:
            if isinstance(outcome, TopicsError):
                self.errors.append(outcome)
            elif known is not None:
                known.deleted = True

        self.broker.delete_topic(topic, if_empty=False, reply=reply)

    def delete(self, topic: str, *, before_seq: int | None = None, match: TagMatch | None = None) -> None:
        known = self.promises.named(topic)
        if known is None:
            return
        seqs = {
            seq
            for seq, (write, index) in known.acked.items()
            if (before_seq is None or seq < before_seq)
            and (match is None or match.matches(_string(write.texts[index].tag)))
        }
        known.going |= seqs

        def reply(outcome: Any) -> None:
            if isinstance(outcome, TopicsError):
                self.errors.append(outcome)
                return
            known.gone |= seqs
            if outcome.topic.config.durability == "fsync":
                known.gone_firmly |= seqs

        try:
            self.broker.delete_records(topic, before_seq, match, 0, reply)
        except TopicsError as error:
            reply(error)

    def checkpoint(self) -> None:
        self.broker.checkpointer.checkpoint()

    def stop(self) -> bool:
        outcome: list[bool] = []
        self.broker.stop(outcome.append)
        self.runtime.run()
        return outcome == [True]

    def know(self, topic: Any) -> Known:
        known = self.promises.topics.get(topic.id)
        if known is None:
            known = self.promises.topics[topic.id] = Known(topic.id, topic.name, topic.config)
            known.was_capped = bool(topic.config.cap_records or topic.config.cap_bytes)
            self.promises.highest_topic_id = max(topic.id, self.promises.highest_topic_id)
        return known


class Found(NamedTuple):
    """One partition as a reader that starts at the beginning finds it."""

    texts: dict[int, bytes]
    tombstones: list[tuple[int, int]]


def read_all(partition: Partition) -> Found:
    texts: dict[int, bytes] = {}
    tombstones: list[tuple[int, int]] = []
    from_seq = 0
    for _ in range(10_000):
        read = read_records(partition, from_seq, 7, 1 << 20, EVERYTHING)
        if read.tombstone is not None:
            tombstones.append((read.tombstone.gap_from, read.tombstone.gap_to))
        for text in split_records(read.records):
            texts[json.loads(text)["$seq"]] = text
        assert read.next_from_seq > from_seq or (from_seq == partition.head_seq and not read.count)
        from_seq = read.next_from_seq
        if from_seq == partition.head_seq:
            return Found(texts, tombstones)
    raise AssertionError("the reader never reaches the head")


def split_records(records: bytes) -> list[bytes]:
    if not records:
        return []
    parts = records.split(b',{"$seq":')
    return [parts[0], *[b'{"$seq":' + part for part in parts[1:]]]


def dump(broker: Broker) -> dict[str, Any]:
    """All that can be seen of the state, to be compared with another."""
    result: dict[str, Any] = {}
    for name, topic in broker.state.topics.items():
        partitions = []
        for partition in topic.partitions:
            found = read_all(partition)
            partitions.append(
                (
                    partition.head_seq,
                    partition.next_seq,
                    partition.evict_floor,
                    partition.evict_reasons,
                    partition.delete_below,
                    partition.earliest_seq,
                    partition.count,
                    partition.bytes,
                    [(hole.first, hole.last, hole.reasons) for hole in partition.holes],
                    found,
                )
            )
        result[name] = (topic.id, topic.config, sorted(topic.dedupe.all()), partitions)
    result[""] = (sorted(broker.state.topics), broker.state.names, broker.state.next_topic_id)
    return result


def verify(
    disk: FakeDisk, promises: Promises, clock: ManualClock, end: End, settings: StorageSettings = SMALL
) -> World:
    """Boot on `disk` and compare with the promises. Answers the world after it, with promises of its own."""
    world = World(disk, settings, Promises(), ManualClock(clock.now_ms()))
    compare(world.broker, promises, end)
    settle(world, promises)
    return world


def compare(broker: Broker, promises: Promises, end: End) -> None:
    state = broker.state
    by_data = {text.data: (write, index) for write in promises.writes for index, text in enumerate(write.texts)}
    for known in promises.topics.values():
        topic = state.by_id.get(known.topic_id)
        if known.deleted:
            assert topic is None, f"topic {known.name} ({known.topic_id}) came back"
        elif not known.deleting:
            assert topic is not None, f"topic {known.name} ({known.topic_id}) is gone"
        if topic is not None:
            assert topic.name == known.name
            assert topic.config in known.configs, f"{topic.config} is none of {known.configs}"
            compare_topic(known, topic.partitions[0], by_data, end)
    for topic in state.by_id.values():
        if topic.id not in promises.topics:
            assert topic.name in promises.creating, f"topic {topic.name} ({topic.id}) was never asked for"
            for text in read_all(topic.partitions[0]).texts.values():
                write, _ = by_data[data_of(text)]
                assert write.state in ("open", "unknown")
                assert write.topic == topic.name
        assert state.totals.records == sum([each.count for each in state.by_id.values()])
        assert state.totals.bytes == sum([each.bytes for each in state.by_id.values()])
    assert state.next_topic_id > promises.highest_topic_id, "a topic id would be used again"


def compare_topic(known: Known, partition: Partition, by_data: dict[bytes, tuple[Write, int]], end: End) -> None:
    found = read_all(partition)
    where = f"topic {known.name} ({known.topic_id}) after {end}"
    assert partition.head_seq >= max(known.acked, default=0), f"{where}: acknowledged seqs would be used again"
    assert partition.next_seq == partition.head_seq + 1
    assert partition.evict_floor <= partition.earliest_seq
    _compare_found(known, found, by_data, end, where)
    _compare_missing(known, partition, found, end, where)
    _compare_counts(partition, found, by_data, where)
    if end != "power" or known.always_fsync:
        assert partition.evict_floor >= known.evict_floor, f"{where}: the evict floor went back"
        assert partition.earliest_seq >= known.earliest_seq, f"{where}: earliest_seq went back"
        assert partition.head_seq >= known.head_seq, f"{where}: head_seq went back"


def _compare_found(known: Known, found: Found, by_data: dict[bytes, tuple[Write, int]], end: End, where: str) -> None:
    for seq, text in found.texts.items():
        assert data_of(text) in by_data, f"{where}: seq {seq} was never written: {text!r}"
        write, index = by_data[data_of(text)]
        if write.state == "acked":
            assert (write.topic_id, write.first_seq + index) == (known.topic_id, seq), f"{where}: seq {seq} has moved"
            assert text == write.texts[index].shown(seq, write.ts), f"{where}: seq {seq} has changed"
        else:
            assert write.state != "refused", f"{where}: seq {seq} was refused"
            assert write.topic == known.name
            first_seq = seq - index
            shown = json.loads(text)["$ts"]
            for each, sent in enumerate(write.texts):
                # Nothing could delete a part of a write that was never acknowledged; a cap can take its front.
                if first_seq + each >= seq:
                    assert found.texts.get(first_seq + each) == sent.shown(first_seq + each, shown), (
                        f"{where}: torn write"
                    )
    assert not known.gone_firmly & found.texts.keys(), f"{where}: deleted records came back"
    if end != "power":
        assert not known.gone & found.texts.keys(), f"{where}: deleted records came back"


def _compare_missing(known: Known, partition: Partition, found: Found, end: End, where: str) -> None:
    lost: list[int] = []
    for seq, (write, _) in known.acked.items():
        if seq in found.texts or seq in known.gone or seq in known.going:
            continue
        tombstones = any([first <= seq <= last for first, last in found.tombstones])
        if seq < partition.evict_floor and not partition.evict_reasons & RESTART:
            assert known.was_capped or any([config.ttl_ms or config.cap_records for config in known.configs]), (
                f"{where}: seq {seq} was evicted without a reason"
            )
            assert tombstones, f"{where}: the eviction of seq {seq} is not reported"
            continue
        lost.append(seq)
        assert tombstones, f"{where}: the loss of seq {seq} is not reported"
        if seq < partition.evict_floor:
            assert known.was_ephemeral or known.was_capped, f"{where}: seq {seq} is gone with a restart"
            continue
        assert (end, write.durability != "fsync") == ("power", True), f"{where}: seq {seq} is lost"
    above = [seq for seq in found.texts if lost and seq > min(lost) and min(lost) >= partition.evict_floor]
    assert not above, f"{where}: {lost} are lost but {above} are there: not a prefix"


def _compare_counts(partition: Partition, found: Found, by_data: dict[bytes, tuple[Write, int]], where: str) -> None:
    texts = [by_data[data_of(text)][0].texts[by_data[data_of(text)][1]] for text in found.texts.values()]
    assert partition.count == len(texts), f"{where}: count is wrong"
    assert partition.bytes == sum([text.size for text in texts]), f"{where}: bytes is wrong"
    assert partition.earliest_seq == min(found.texts, default=partition.head_seq + 1)
    tagged = [seq for seq, text in sorted(found.texts.items()) if b'"$tag":' in text]
    indexed = finish(partition.select(TagMatch("", True), partition.head_seq + 1))
    assert indexed.seqs() == tagged, f"{where}: the tag index is wrong"


def settle(world: World, promises: Promises) -> None:
    """What was open is decided now: the promises become those that the booted world must keep from here on."""
    by_data = {text.data: (write, index) for write in promises.writes for index, text in enumerate(write.texts)}
    settled = Promises()
    seen: dict[int, Write] = {}
    settled.highest_topic_id = world.broker.state.next_topic_id - 1
    settled.keys = dict(promises.keys)
    for topic in world.broker.state.by_id.values():
        old = promises.topics.get(topic.id)
        known = Known(topic.id, topic.name, topic.config)
        settled.topics[topic.id] = known
        if old is not None:
            known.was_capped, known.was_ephemeral = old.was_capped, old.was_ephemeral
            known.always_fsync = old.always_fsync and topic.config.durability == "fsync"
        partition = topic.partitions[0]
        for seq, text in read_all(partition).texts.items():
            sent, index = by_data[data_of(text)]
            write = seen.get(id(sent))
            if write is None:
                write = seen[id(sent)] = Write(sent.topic, sent.texts, sent.key)
                settled.writes.append(write)
                write.state = "acked"
                write.topic_id = topic.id
                write.first_seq = seq - index
                write.ts = json.loads(text)["$ts"]
                # From here on a reader has seen it and recovery has made it safe.
                write.durability = "ephemeral" if topic.config.durability == "ephemeral" else "fsync"
            known.acked[seq] = (write, index)
        if old is not None:
            known.gone_firmly = {seq for seq in old.acked if seq not in known.acked}
            known.gone = set(known.gone_firmly)
    world.promises = settled
    world.look()


def data_of(text: bytes) -> bytes:
    return bytes(msgspec.json.decode(text, type=_Shown).data)


class _Shown(msgspec.Struct):
    data: msgspec.Raw


def _is_unknown(outcome: Any) -> bool:
    """After a failed sync it is unknown what reached the disk."""
    return isinstance(outcome, TopicsError) and outcome.code == "read_only"


def _string(tag: bytes) -> str | None:
    return msgspec.json.decode(tag, type=str) if tag else None


class WatchedDisk(FakeDisk):
    """Calls `watcher` before every step, with the step's write in flight: each moment at which the end may come."""

    watcher: Callable[[int], None] | None = None

    def _begin(self, op: str, path: str, detail: str = "", in_flight: InFlight | None = None) -> Any:
        watcher = self.watcher
        if watcher is not None and not self.was_cut:
            self._in_flight = in_flight
            self.watcher = None
            try:
                watcher(self.steps)
            finally:
                self.watcher = watcher
                self._in_flight = None
        return super()._begin(op, path, detail, in_flight)


def watched(disk: FakeDisk) -> WatchedDisk:
    """The same disk, to be watched."""
    twin = WatchedDisk(disk.seed, capacity_bytes=disk.capacity_bytes, sector_bytes=disk.sector_bytes)
    twin.continue_from(disk)
    return twin
