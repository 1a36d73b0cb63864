"""Random histories against a model: any order of writes, deletes, expiry, sealing, checkpoints, ends and restarts.

The model is what was acknowledged (`tests/crash/world.py`), plus one thing it does not hold: what a reader sees while
nothing went wrong is exactly what was written and not deleted, evicted or expired. `make test` plays fixed histories,
`make crash` thousands of new and longer ones.
"""

import itertools

import msgspec
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.crash.history import texts
from tests.crash.world import SMALL, World, compare, dump, read_all, verify
from tests.simulation.live_and_replayed import compare as compare_with_replay
from topics.model.records.match import TagMatch
from topics.testing.disk.fake_disk import FakeDisk
from topics.testing.disk.survival import Survive

LONG = hypothesis_settings().max_examples >= 1000
TOPICS = st.sampled_from(["one", "two", "three"])
DURABILITY = st.sampled_from(["ephemeral", "memory", "disk", "fsync"])
TAGS = st.sampled_from([None, "a", "ab", "b"])
MATCHES = st.sampled_from([TagMatch("a", True), TagMatch("ab-1", False), TagMatch("b-", True), TagMatch("x", True)])


# So that records leave memory in packs, which are merged and cleaned all the time.
PACKING = msgspec.structs.replace(
    SMALL, segment_bytes=5000, hot_bytes=300, min_segment_bytes=1500, pack_bytes=1200, pack_merge_count=3
)


class LogMachine(RuleBasedStateMachine):
    small = SMALL

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()
        disk = FakeDisk(sector_bytes=128)
        disk.make_directory("")
        self.world = World(disk, self.small)

    @initialize(durability=DURABILITY, second=DURABILITY)
    def begin(self, durability: str, second: str) -> None:
        self.restart_with()
        self.world.configure("one", durability=durability)
        self.world.configure("two", durability=second, cap_records=9)
        self.world.run()

    # What clients do

    @rule(topic=TOPICS, count=st.integers(1, 5), tag=TAGS, rich=st.booleans(), size=st.sampled_from([5, 60, 200]))
    def append(self, topic: str, count: int, tag: str | None, rich: bool, size: int) -> None:
        self.world.append(topic, texts(self.numbers, count, tag=tag, rich=rich, size=size))

    @rule(topic=TOPICS, key=st.sampled_from(["k1", "k2"]))
    def append_with_key(self, topic: str, key: str) -> None:
        """In flight or not, the key is good for one write; the model checks the seqs of the answer."""
        self.world.run()
        self.world.append(topic, texts(self.numbers, 2, tag="a"), key=key)
        self.world.run()

    @rule(topic=TOPICS, match=MATCHES, before=st.none() | st.integers(1, 40))
    def delete_matching(self, topic: str, match: TagMatch, before: int | None) -> None:
        self.world.delete(topic, match=match, before_seq=before)

    @rule(topic=TOPICS, before=st.integers(1, 60))
    def delete_below(self, topic: str, before: int) -> None:
        self.world.delete(topic, before_seq=before)

    @rule(
        topic=TOPICS,
        change=st.fixed_dictionaries(
            {},
            optional={
                "durability": DURABILITY,
                "cap_records": st.sampled_from([0, 3, 12]),
                "cap_bytes": st.sampled_from([0, 2000]),
                "ttl_ms": st.sampled_from([0, 5000]),
            },
        ),
    )
    def configure(self, topic: str, change: dict[str, object]) -> None:
        self.world.run()
        self.world.configure(topic, **change)
        self.world.run()

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.world.run()
        self.world.delete_topic(topic)
        self.world.run()

    # What the server does by itself

    @rule(ms=st.sampled_from([1, 700, 3000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule()
    def settle(self) -> None:
        self.world.run()

    @rule()
    def turn(self) -> None:
        self.world.runtime.turn()

    @precondition(lambda self: self.world.runtime.waiting_aside)
    @rule()
    def finish_one_work_aside(self) -> None:
        self.world.runtime.finish_one()

    @rule(topic=TOPICS)
    def seal(self, topic: str) -> None:
        found = self.world.broker.state.topics.get(topic)
        if found is not None:
            self.world.broker.sealer.seal(found, found.partitions[0])

    @rule()
    def checkpoint(self) -> None:
        self.world.checkpoint()

    # Ends

    @rule(survive=st.sampled_from(["none", "all", "random"]), seed=st.integers(0, 1000))
    def power_cut(self, survive: Survive, seed: int) -> None:
        after = self.disk.after_power_cut(survive, seed=seed)
        settings = self.small
        self.world = verify(after, self.world.promises, self.world.clock, "power", settings)

    @rule()
    def kill(self) -> None:
        settings = self.small
        self.world = verify(self.disk.after_kill(), self.world.promises, self.world.clock, "kill", settings)

    @rule()
    def restart(self) -> None:
        self.world.run()
        assert self.world.stop()
        before = dump(self.world.broker)
        settings = self.small
        self.world = verify(self.disk.after_kill(), self.world.promises, self.world.clock, "clean", settings)
        assert self.world.recovered.frames == 0
        after = dump(self.world.broker)
        assert before.pop("")[0] == after.pop("")[0]
        for name, (_, config, *_) in before.items():
            if config.durability != "ephemeral" and not config.ttl_ms:
                assert after[name] == before[name]

    @invariant()
    def readers_see_what_was_written(self) -> None:
        """Never more than that; and what is missing was deleted, evicted or reported as lost."""
        if not self.world.runtime.waiting_aside and self.world.broker.committer.idle:
            compare(self.world.broker, self.world.promises, "clean")
            for known in self.world.promises.topics.values():
                topic = self.world.broker.state.by_id.get(known.topic_id)
                if topic is not None and not known.was_ephemeral:
                    partition = topic.partitions[0]
                    found = read_all(partition).texts
                    gone = known.gone | known.going
                    floor = partition.evict_floor
                    assert set(found) >= {seq for seq in known.acked if seq >= floor and seq not in gone}

    @invariant()
    def the_live_state_equals_the_replayed_one(self) -> None:
        world = self.world
        compare_with_replay(world.broker, self.disk, self.small, world.clock.now_ms())

    def teardown(self) -> None:
        self.world.run()
        verify(self.disk.after_kill(), self.world.promises, self.world.clock, "kill", self.world.settings)
        for survive in ("none", "random"):
            after = self.disk.after_power_cut(survive)
            verify(after, self.world.promises, self.world.clock, "power", self.world.settings)

    @property
    def disk(self) -> FakeDisk:
        assert isinstance(self.world.fs, FakeDisk)
        return self.world.fs

    def restart_with(self) -> None:
        self.world.settings = self.small
        self.world.boot()


class PackMachine(LogMachine):
    small = PACKING


TestLog = LogMachine.TestCase
TestPackedLog = PackMachine.TestCase
if not LONG:
    TestLog.settings = hypothesis_settings(max_examples=40, stateful_step_count=30)
    TestPackedLog.settings = hypothesis_settings(max_examples=40, stateful_step_count=30)
