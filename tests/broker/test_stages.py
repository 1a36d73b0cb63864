"""A commit is wholly there or not at all, on all its topics, and the fence never disagrees with the data."""

import itertools
from typing import Any

import msgspec
import pytest

from topics.broker.broker import Broker
from topics.broker.checkpoint import StorageSettings
from topics.broker.recovery import recover
from topics.broker.stages import CommitRequest, Committed, Write, commit, drop_stages, stage
from topics.engine.render import USUAL
from topics.model.batch import Batch, decode_batch
from topics.model.config import ConfigChange
from topics.model.errors import Forbidden, NotFound, Throttled, TopicFull, TopicsError
from topics.model.limits import Limits
from topics.testing.disk import FakeDisk, PowerCut
from topics.testing.runtime import ManualRuntime

LIMITS = Limits()


def settings(shards: int) -> StorageSettings:
    return StorageSettings(
        shards=shards,
        segment_bytes=4000,
        wal_file_bytes=16 << 10,
        checkpoint_bytes=1500,
        hot_bytes=20_000,
        margin=100,
    )


class Site:
    """A broker on a fake disk."""

    def __init__(self, disk: FakeDisk, shards: int = 1, limits: Limits = LIMITS) -> None:
        self.runtime = ManualRuntime()
        self.broker = Broker(disk, self.runtime, recover(disk, settings(shards)), limits, settings(shards))
        self.broker.start()
        self.runtime.run()

    def outcome(self, act: Any) -> Any:
        got: list[Any] = []
        act(got.append)
        for _ in range(50):
            self.runtime.run()
            if got:
                break
            self.runtime.clock.advance(1)
        (outcome,) = got
        if isinstance(outcome, TopicsError):
            raise outcome
        return outcome

    def create(self, name: str, **config: Any) -> None:
        change = ConfigChange(**config)
        self.outcome(lambda reply: self.broker.configure(name, change, reply))

    def append(self, name: str, text: str) -> None:
        self.outcome(lambda reply: self.broker.append(name, batch_of(text), reply))

    def stage(self, stage_id: str, name: str, *texts: str) -> str:
        return self.stage_parts(stage_id, name, [batch_of(*texts)])

    def stage_parts(self, stage_id: str, name: str, batches: list[Batch]) -> str:
        topic = self.broker.topic(name)
        self.outcome(lambda reply: stage(self.broker, stage_id, topic, batches, reply))
        return stage_id

    def commit(self, producer: str | None, batch: int, *stages: str, **writes: str) -> Committed:
        request = CommitRequest(
            list(stages), [Write(name, batch_of(text)) for name, text in writes.items()], producer, batch
        )
        committed: Committed = self.outcome(lambda reply: commit(self.broker, request, reply))
        return committed

    def texts(self, name: str, partition: int = 0) -> list[str]:
        topic = self.broker.state.topics.get(name)
        if topic is None:
            return []
        log = topic.partitions[partition]
        texts: list[str] = []
        at = 0
        while at < log.head_seq:
            # A read ends where records were lost; the next one is told and goes on behind.
            read = log.read(at, 10_000, 1 << 20, USUAL)
            texts += [record["data"] for record in msgspec.json.decode(b"[" + read.records + b"]")]
            at = read.next_from_seq
        return texts

    def fence(self, producer: str) -> int:
        fence = self.broker.state.stages.fences.get(producer)
        return 0 if fence is None else fence.batch


def batch_of(*texts: str) -> Any:
    return decode_batch(msgspec.json.encode({"records": [{"data": text} for text in texts]}), LIMITS)


def disk_with_root(**options: Any) -> FakeDisk:
    disk = FakeDisk(**options)
    disk.make_directory("")
    return disk


def script(site: Site, acked: list[int]) -> None:
    site.create("disk")
    site.create("synced", durability="fsync")
    site.create("memory", durability="memory")
    for number in range(1, 5):
        site.append("disk", f"own {number}")
        one = site.stage(f"a{number}", "disk", f"{number}.1", f"{number}.2")
        two = site.stage(f"b{number}", "synced", f"{number}.1", f"{number}.2")
        three = site.stage(f"c{number}", "memory", f"{number}.1", f"{number}.2")
        site.stage(f"left{number}", "disk", "never seen")
        site.commit("p", number, one, two, three)
        acked.append(number)
        site.append("synced", f"own {number}")


def check(site: Site, acked: list[int]) -> None:
    fence = site.fence("p")
    assert fence >= max(acked, default=0), "an acknowledged commit is forgotten"
    for name in ("disk", "synced", "memory"):
        committed = [text for text in site.texts(name) if not text.startswith("own")]
        expected = [f"{number}.{record}" for number in range(1, fence + 1) for record in (1, 2)]
        assert committed == expected, f"{name} disagrees with the fence {fence}"


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("survive", "seed"), [("none", 0), ("all", 0), ("random", 1), ("random", 2)])
def test_commit_is_whole_or_absent_after_a_power_cut_at_any_step(shards: int, survive: Any, seed: int) -> None:
    for step in itertools.count(1):
        disk = disk_with_root(seed=seed)
        disk.cut_at = disk.steps + step
        acked: list[int] = []
        try:
            script(Site(disk, shards), acked)
        except PowerCut:
            pass
        if not disk.was_cut:
            break
        after = disk.after_power_cut(survive=survive, seed=seed)
        site = Site(after, shards)
        check(site, acked)
        # The producer tries its batches again, as it must: each is there once in the end.
        if len(site.broker.state.topics) == 3:
            for number in range(1, 5):
                for prefix, name in (("a", "disk"), ("b", "synced"), ("c", "memory")):
                    if f"{prefix}{number}" not in site.broker.state.stages.stages:
                        site.stage(f"{prefix}{number}", name, f"{number}.1", f"{number}.2")
                site.commit("p", number, f"a{number}", f"b{number}", f"c{number}")
            check(site, [1, 2, 3, 4])
            check(Site(after.after_kill(), shards), [1, 2, 3, 4])
    assert step > 50


@pytest.mark.parametrize("shards", [1, 3])
def test_stages_and_fences_survive_a_kill(shards: int) -> None:
    disk = disk_with_root()
    site = Site(disk, shards)
    acked: list[int] = []
    script(site, acked)
    again = Site(disk.after_kill(), shards)
    check(again, acked)
    assert set(again.broker.state.stages.stages) == {f"left{number}" for number in range(1, 5)}
    assert again.broker.state.stages.bytes == site.broker.state.stages.bytes


def test_repeated_batch_changes_nothing_and_tells_the_first_result() -> None:
    site = Site(disk_with_root())
    site.create("t")
    first = site.commit("p", 5, site.stage("s1", "t", "one"))
    repeat = site.commit("p", 5, site.stage("s2", "t", "two"))
    assert (repeat.deduped, repeat.placed) == (True, first.placed)
    older = site.commit("p", 4, "unknown stage")
    assert (older.deduped, older.placed, older.batch) == (True, [], 5)
    assert site.texts("t") == ["one"]
    assert site.broker.state.stages.stages == {}, "stages of a repeat are given up"


def by(prefixes: tuple[str, ...] | None, batch: int, **writes: str) -> CommitRequest:
    """A commit of the producer `p` with a key that has these prefixes."""
    return CommitRequest([], [Write(name, batch_of(text)) for name, text in writes.items()], "p", batch, prefixes)


def test_who_owns_a_producer_survives_a_kill_with_and_without_a_snapshot() -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.outcome(lambda reply: commit(site.broker, by(("a",), 1), reply))
    site.outcome(lambda reply: commit(site.broker, by((), 2), reply))
    killed = disk.after_kill()
    site = Site(killed)
    with pytest.raises(Forbidden):
        commit(site.broker, by(("b",), 3), lambda outcome: None)
    site.outcome(site.broker.stop)
    site = Site(killed.after_kill())
    with pytest.raises(Forbidden):
        commit(site.broker, by(("b",), 3), lambda outcome: None)
    assert not site.outcome(lambda reply: commit(site.broker, by(("a",), 3), reply)).deduped


def test_a_producer_nobody_owns_is_for_those_who_may_touch_all_that_its_last_batch_placed() -> None:
    """One that was used while the server asked for no keys, or by a build that did not know of owners."""
    site = Site(disk_with_root())
    site.create("ab")
    site.create("ac")
    site.outcome(lambda reply: commit(site.broker, by(None, 1, ab="x", ac="y"), reply))
    with pytest.raises(Forbidden):
        commit(site.broker, by(("ab",), 2), lambda outcome: None)
    site.outcome(lambda reply: commit(site.broker, by(("a",), 2), reply))
    with pytest.raises(Forbidden):
        commit(site.broker, by(("b",), 3), lambda outcome: None)
    site.outcome(lambda reply: commit(site.broker, by(None, 3), reply))
    with pytest.raises(Forbidden):
        commit(site.broker, by(("b",), 4), lambda outcome: None)


def test_of_two_who_take_a_new_producer_at_once_the_second_is_refused() -> None:
    site = Site(disk_with_root())
    site.create("t")
    got: list[Any] = []
    commit(site.broker, by(("a",), 1, t="x"), got.append)
    commit(site.broker, by(("b",), 1, t="y"), got.append)
    site.runtime.run()
    assert [type(each) for each in got] == [Committed, Forbidden]
    assert site.texts("t") == ["x"]


def test_commit_with_an_unknown_stage_changes_nothing() -> None:
    site = Site(disk_with_root())
    site.create("t")
    site.stage("s1", "t", "one")
    with pytest.raises(NotFound) as refused:
        site.commit("p", 1, "s1", "gone")
    assert refused.value.code == "stage_not_found"
    assert site.texts("t") == []
    assert site.fence("p") == 0
    site.commit("p", 1, "s1")
    assert site.texts("t") == ["one"]


def test_commit_to_a_full_topic_is_refused_on_every_topic() -> None:
    site = Site(disk_with_root())
    site.create("free")
    site.create("full", cap_records=2, discard="reject")
    site.append("full", "own")
    site.stage("s1", "free", "1")
    site.stage("s2", "full", "1", "2")
    with pytest.raises(TopicFull):
        site.commit("p", 1, "s1", "s2")
    assert site.texts("free") == []
    assert site.texts("full") == ["own"]
    assert site.fence("p") == 0


def test_writes_over_several_topics_become_readable_together() -> None:
    site = Site(disk_with_root(), shards=2)
    site.create("one")
    site.create("two", durability="fsync")
    committed = site.commit(None, 0, one="x", two="y")
    assert [(each.topic, each.first_seq, each.count) for each in committed.placed] == [("one", 1, 1), ("two", 1, 1)]
    assert (site.texts("one"), site.texts("two")) == (["x"], ["y"])


def test_seqs_of_a_commit_that_came_first_into_a_log_are_not_used_again_after_a_power_cut() -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("one")
    site.commit(None, 0, one="x")
    again = Site(disk.after_power_cut("none"))
    assert again.broker.topic("one").partitions[0].next_seq > 1
    assert again.texts("one") == ["x"]


def test_records_of_a_stage_go_to_the_partitions_they_name() -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("t", partitions=3)
    parts = {0: batch_of("b"), 1: batch_of("d"), 2: batch_of("a", "c")}
    for number, part in parts.items():
        part.partition = number
    site.stage_parts("s", "t", list(parts.values()))
    site.commit("p", 1, "s")
    for each in (site, Site(disk.after_kill())):
        assert [each.texts("t", number) for number in range(3)] == [["b"], ["d"], ["a", "c"]]


def test_stage_expires_and_gives_its_bytes_back() -> None:
    site = Site(disk_with_root())
    site.create("t")
    site.stage("old", "t", "one")
    site.runtime.clock.advance(LIMITS.stage_ttl_ms)
    site.stage("new", "t", "two")
    assert list(site.broker.state.stages.stages) == ["new"]
    assert site.broker.state.stages.expired_total == 1


def test_stage_expires_even_if_nobody_stages_again() -> None:
    site = Site(disk_with_root())
    site.create("t")
    site.stage("orphan", "t", "one")
    site.runtime.clock.advance(LIMITS.stage_ttl_ms)
    site.runtime.run()
    assert (site.broker.state.stages.stages, site.broker.state.stages.bytes) == ({}, 0)


def test_staged_bytes_are_limited_and_freed_by_a_drop() -> None:
    limits = Limits(max_staged_bytes=100)
    site = Site(disk_with_root(), limits=limits)
    site.create("t")
    site.stage("one", "t", "x" * 40)
    with pytest.raises(Throttled) as refused:
        site.stage("two", "t", "x" * 40)
    assert refused.value.detail == {"limit": "max_staged_bytes", "max": 100}
    assert drop_stages(site.broker, ["one", "unknown"]) == 1
    site.stage("two", "t", "x" * 40)


def test_stage_of_a_deleted_topic_cannot_be_committed() -> None:
    site = Site(disk_with_root())
    site.create("t")
    site.stage("s", "t", "one")
    site.outcome(lambda reply: site.broker.delete_topic("t", if_empty=False, reply=reply))
    site.create("t")
    with pytest.raises(NotFound):
        site.commit("p", 1, "s")
    assert site.texts("t") == []


def test_staged_records_of_an_ephemeral_topic_never_reach_the_disk() -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("t", durability="ephemeral")
    site.commit("p", 1, site.stage("s", "t", "secret-payload"))
    assert site.texts("t") == ["secret-payload"]
    for directory in ("wal/shard-00", "snapshots", "segments"):
        for name in disk.list(directory):
            assert b"secret-payload" not in bytes(disk.open(f"{directory}/{name}").map())
    again = Site(disk.after_kill())
    assert again.texts("t") == []
    assert again.broker.topic("t").partitions[0].head_seq == 1
    assert again.fence("p") == 1
