"""A commit is wholly there or not at all, on all its topics, and the fence never disagrees with the data."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.broker.transactions.stages import commit, drop_stages, expire_stages, stage
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import USUAL
from topics.engine.transactions.commit_request import CommitRequest, Committed, Write
from topics.model.config import ConfigChange
from topics.model.errors import Conflict, Forbidden, NotFound, Throttled, TopicFull, TopicsError, Unavailable
from topics.model.facts import Fenced
from topics.model.limits import Limits
from topics.model.records.batch import Batch, decode_batch
from topics.model.storage_settings import StorageSettings
from topics.testing.disk.fake_disk import FakeDisk, PowerCut
from topics.testing.runtime import ManualRuntime

LIMITS = Limits()


def settings() -> StorageSettings:
    return StorageSettings(
        segment_bytes=4000,
        wal_file_bytes=16 << 10,
        checkpoint_bytes=1500,
        hot_bytes=20_000,
        margin=100,
    )


class Site:
    """A broker on a fake disk."""

    def __init__(self, disk: FakeDisk, limits: Limits = LIMITS) -> None:
        self.runtime = ManualRuntime()
        self.broker = Broker(disk, self.runtime, recover(disk, settings()), limits, settings())
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

    def stage_parts(self, stage_id: str, name: str, batches: list[Batch], producer: str | None = None) -> str:
        topic = self.broker.topic(name)
        self.outcome(lambda reply: stage(self.broker, stage_id, topic, batches, reply, producer))
        return stage_id

    def commit(
        self, producer: str | None, batch: int, *stages: str, digest: str | None = None, **writes: str
    ) -> Committed:
        named = [Write(name, batch_of(text)) for name, text in writes.items()]
        request = CommitRequest(list(stages), named, producer, batch, digest=digest)
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
            # A read ends where records were lost; the next one gets a tombstone and continues after it.
            read = read_records(log, at, 10_000, 1 << 20, USUAL)
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


# The classes of the topics, which have the names of their classes. No topic of the second ones asks for a sync.
CLASSES = [("disk", "fsync", "memory"), ("disk", "memory")]


def script(site: Site, classes: Sequence[str], acked: list[int]) -> None:
    for durability in classes:
        site.create(durability, durability=durability)
    for number in range(1, 5):
        site.append("disk", f"own {number}")
        stages = [site.stage(f"{name}{number}", name, f"{number}.1", f"{number}.2") for name in classes]
        site.stage(f"left{number}", "disk", "never seen")
        site.commit("p", number, *stages)
        acked.append(number)
        site.append(classes[1], f"own {number}")


def check(site: Site, classes: Sequence[str], acked: list[int]) -> None:
    fence = site.fence("p")
    assert fence >= max(acked, default=0), "an acknowledged commit is forgotten"
    for name in classes:
        committed = [text for text in site.texts(name) if not text.startswith("own")]
        expected = [f"{number}.{record}" for number in range(1, fence + 1) for record in (1, 2)]
        assert committed == expected, f"{name} disagrees with the fence {fence}"


@pytest.mark.parametrize(
    ("classes", "survive", "seed"),
    [
        (CLASSES[0], "none", 0),
        (CLASSES[0], "all", 0),
        (CLASSES[0], "random", 1),
        (CLASSES[0], "random", 2),
        (CLASSES[1], "none", 0),
        (CLASSES[1], "random", 1),
    ],
)
def test_commit_is_whole_or_absent_after_a_power_cut_at_any_step(
    classes: Sequence[str], survive: Any, seed: int
) -> None:
    """Its records and its fence are there together, and an acknowledged one is there, whatever the classes of its topics."""
    for step in itertools.count(1):
        disk = disk_with_root(seed=seed)
        disk.cut_at = disk.steps + step
        acked: list[int] = []
        try:
            script(Site(disk), classes, acked)
        except PowerCut:
            pass
        if not disk.was_cut:
            break
        after = disk.after_power_cut(survive=survive, seed=seed)
        site = Site(after)
        check(site, classes, acked)
        # The producer tries its batches again, as it must: each is there once in the end.
        if len(site.broker.state.topics) == len(classes):
            for number in range(1, 5):
                for name in classes:
                    if f"{name}{number}" not in site.broker.state.stages.stages:
                        site.stage(f"{name}{number}", name, f"{number}.1", f"{number}.2")
                site.commit("p", number, *[f"{name}{number}" for name in classes])
            check(site, classes, [1, 2, 3, 4])
            check(Site(after.after_kill()), classes, [1, 2, 3, 4])
    assert step > 50


def test_stages_and_fences_survive_a_kill() -> None:
    disk = disk_with_root()
    site = Site(disk)
    acked: list[int] = []
    script(site, CLASSES[0], acked)
    again = Site(disk.after_kill())
    check(again, CLASSES[0], acked)
    assert set(again.broker.state.stages.stages) == {f"left{number}" for number in range(1, 5)}
    assert again.broker.state.stages.bytes == site.broker.state.stages.bytes


@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_every_record_of_a_commit_without_a_producer_survives_a_kill(durability: str) -> None:
    disk = disk_with_root()
    site = Site(disk)
    names = ["one", "two", "three"]
    for name in names:
        site.create(name, durability=durability)
        site.append(name, "before")
    site.commit(None, 0, site.stage("s", "three", "staged", "too"), one="a", two="b", three="c")
    again = Site(disk.after_kill())
    assert [again.texts(name) for name in names] == [
        ["before", "a"],
        ["before", "b"],
        ["before", "staged", "too", "c"],
    ]
    assert again.broker.state.stages.stages == {}


def test_a_stage_of_a_topic_that_was_ephemeral_survives_a_kill_once_it_is_committed_to_a_durable_topic() -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("t", durability="ephemeral")
    site.append("t", "before")
    site.stage("s", "t", "staged", "too")
    site.create("t", durability="disk")
    site.commit(None, 0, "s")
    site.append("t", "after")
    assert site.texts("t") == ["before", "staged", "too", "after"]
    assert Site(disk.after_kill()).texts("t") == ["staged", "too", "after"]


@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_an_acknowledged_batch_of_a_producer_survives_a_power_cut_whatever_the_class_of_its_topics(
    durability: str,
) -> None:
    """A producer that was answered does not send the batch again."""
    disk = disk_with_root()
    site = Site(disk)
    for name in ("one", "two"):
        site.create(name, durability=durability)
        site.append(name, "before")
    site.commit("p", 1, one="a", two="b")
    again = Site(disk.after_power_cut("none"))
    assert (again.fence("p"), again.texts("one"), again.texts("two")) == (1, ["before", "a"], ["before", "b"])


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


def test_producer_without_an_owner_is_usable_by_keys_that_reach_its_last_batch() -> None:
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


def test_second_of_two_keys_that_use_a_new_producer_at_once_is_refused() -> None:
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
    site = Site(disk_with_root())
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


def test_stage_expires_without_another_stage_request() -> None:
    site = Site(disk_with_root())
    site.create("t")
    site.stage("orphan", "t", "one")
    site.runtime.clock.advance(LIMITS.stage_ttl_ms)
    site.runtime.run()
    assert (site.broker.state.stages.stages, site.broker.state.stages.bytes) == ({}, 0)


def test_renewed_stage_outlives_its_ttl_and_others_do_not() -> None:
    site = Site(disk_with_root())
    site.create("t")
    for name in ("one", "two"):
        site.stage_parts(name, "t", [batch_of(name)], "p")
    site.stage("other", "t", "other")
    book = site.broker.state.stages
    site.runtime.clock.advance(LIMITS.stage_ttl_ms - 100)
    assert book.renew([*book.by_producer["p"], "unknown"], site.runtime.now_ms()) == 2
    site.runtime.clock.advance(LIMITS.stage_ttl_ms - 100)
    site.runtime.run()
    assert sorted(book.stages) == ["one", "two"]
    assert not site.commit("p", 1, "one", "two").deduped
    assert (book.by_producer, book.renewed_ms) == ({}, {})


def test_restart_renews_stages_and_keeps_whose_they_are() -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("t")
    site.stage_parts("s", "t", [batch_of("one")], "p")
    site.runtime.clock.advance(LIMITS.stage_ttl_ms - 100)
    site.append("t", "later")
    again = Site(disk.after_kill())
    again.runtime.clock.advance(LIMITS.stage_ttl_ms - 100)
    again.runtime.run()
    assert again.broker.state.stages.by_producer == {"p": {"s"}}
    again.commit("p", 1, "s")
    assert again.texts("t") == ["later", "one"]


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


@pytest.mark.parametrize("restarts", [False, True])
def test_repeat_with_another_digest_is_refused(restarts: bool) -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("t")
    site.commit("p", 5, digest="one", t="a")
    if restarts:
        site = Site(disk.after_kill())
    assert site.commit("p", 5, digest="one", t="a").deduped
    assert site.commit("p", 5, t="a").deduped, "a client that sends no digest is not checked"
    for batch, digest in ((5, "two"), (4, "one")):
        with pytest.raises(Conflict) as refused:
            site.commit("p", batch, digest=digest, t="b")
        assert refused.value.code == "batch_differs"
        assert refused.value.detail == {"producer": "p", "batch": batch, "fence": 5}
    assert not site.commit("p", 6, digest="two", t="b").deduped
    assert site.texts("t") == ["a", "b"]


def test_fence_of_an_earlier_build_has_no_digest() -> None:
    written = msgspec.msgpack.encode([53, "p", 5, [], 1, None])
    fence = msgspec.msgpack.decode(written, type=Fenced)
    assert (fence.batch, fence.digest) == (5, None)


# Stages whose commit is under way


def begin(site: Site, *stages: str, producer: str | None = None, batch: int = 0) -> list[Any]:
    """Submit a commit that is neither written nor synced yet. Its reply comes into the list."""
    replies: list[Any] = []
    commit(site.broker, CommitRequest(list(stages), [], producer, batch), replies.append)
    return replies


@pytest.mark.parametrize("ends", ["dropped", "expired"])
def test_stage_cannot_end_while_its_commit_is_under_way(ends: str) -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("t", durability="fsync")
    site.append("t", "first")
    site.stage("s", "t", "one", "two")
    if ends == "expired":
        site.runtime.clock.advance(LIMITS.stage_ttl_ms - 1)
    replies = begin(site, "s", producer="p", batch=1)
    assert replies == []
    if ends == "dropped":
        assert drop_stages(site.broker, ["s"]) == 0
    else:
        site.runtime.clock.advance(1)
        expire_stages(site.broker)
    site.runtime.run()
    assert isinstance(replies[0], Committed)
    assert site.texts("t") == ["first", "one", "two"]
    site.append("t", "last")
    assert Site(disk).texts("t") == ["first", "one", "two", "last"]


@pytest.mark.parametrize("durability", ["fsync", "disk", "ephemeral"])
def test_stage_that_two_commits_name_at_once_is_committed_once(durability: str) -> None:
    site = Site(disk_with_root())
    site.create("t", durability=durability)
    site.append("t", "first")
    site.stage("s", "t", "one")
    replies: list[Any] = []
    for _ in range(2):
        commit(site.broker, CommitRequest(["s"], [], None, 0), replies.append)
    site.runtime.run()
    assert [type(each) for each in replies] == [Committed, NotFound]
    assert site.texts("t") == ["first", "one"]
    site.append("t", "last")
    assert site.broker.topic("t").partitions[0].head_seq == 3


def test_commit_that_waits_for_another_of_its_stage_succeeds_when_that_one_fails() -> None:
    disk = disk_with_root()
    site = Site(disk)
    site.create("t", durability="disk")
    site.append("t", "first")
    site.stage("s", "t", "one")
    failing = [5]
    disk.fault = lambda _step, op, path: failing.pop() if failing and "wal" in path and op == "write_at" else None
    replies: list[Any] = []
    for _ in range(2):
        commit(site.broker, CommitRequest(["s"], [], None, 0), replies.append)
    site.runtime.run()
    assert [type(each) for each in replies] == [Unavailable, Committed]
    assert site.texts("t") == ["first", "one"]
