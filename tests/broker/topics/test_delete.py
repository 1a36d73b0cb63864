"""Deletes by tag: found in slices, as of when they were asked for; seen by readers and by recovery as one step."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from topics.broker.topics.delete import RecordsGone
from topics.engine.partitions import partition as partition_module
from topics.engine.partitions import segment as segment_module
from topics.engine.partitions import tags as tags_module
from topics.engine.partitions.hot_segment import HotSegment
from topics.model.config import ConfigChange
from topics.model.errors import CorruptStorage, NotFound
from topics.model.facts import DeletedBelow
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.model.steps import finish
from topics.runtime import slices as slices_module

ALL = TagMatch("", True)
HOT = msgspec.structs.replace(SMALL, segment_bytes=1 << 20, hot_bytes=1 << 20)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is a turn of its own, and as small as it can be."""
    monkeypatch.setattr(slices_module, "SLICE_SECONDS", 0)
    monkeypatch.setattr(tags_module, "STEP_NAMES", 2)
    monkeypatch.setattr(tags_module, "STEP_BLOCKS", 1)
    monkeypatch.setattr(tags_module, "BLOCK_NAMES", 4)
    monkeypatch.setattr(segment_module, "STEP_PAGES", 1)
    monkeypatch.setattr(partition_module, "STEP_PAGES", 1)


class Between:
    """Calls `act` once in every turn until what is under way is over."""

    def __init__(self, under_test: BrokerUnderTest, act: Callable[[], None], turns: int = 2000) -> None:
        self.under_test = under_test
        self.act = act
        self.left = turns
        under_test.runtime.call_soon(self.turn)

    def turn(self) -> None:
        self.act()
        self.left -= 1
        if self.left and (len(self.under_test.broker.slices) or self.under_test.broker.committer.queue_depth):
            self.under_test.runtime.call_soon(self.turn)


def delete(under_test: BrokerUnderTest, name: str, match: TagMatch, before_seq: int | None = None) -> list[Any]:
    """Ask for a delete; its outcome comes into the list."""
    outcomes: list[Any] = []
    under_test.broker.delete_records(name, before_seq, match, 0, outcomes.append)
    return outcomes


def write(under_test: BrokerUnderTest, name: str, tag: str, count: int = 1) -> None:
    body = msgspec.json.encode({"records": [{"data": "x" * 20, "tag": tag}] * count})
    under_test.broker.append(name, decode_batch(body, under_test.limits), lambda _: None)


def tags_of(under_test: BrokerUnderTest, name: str) -> list[str]:
    return [record.get("$tag", "") for record in under_test.read(name)]


@pytest.mark.parametrize("settings", [HOT, SMALL], ids=["hot", "sealed"])
def test_readers_see_all_of_a_delete_or_nothing_of_it(settings: Any) -> None:
    under_test = BrokerUnderTest(settings=settings)
    for number in range(40):
        under_test.append("t", *[{"data": "x" * 30, "tag": f"{'ab'[each % 2]}{number}-{each}"} for each in range(10)])
    seen: list[int] = []
    outcomes = delete(under_test, "t", TagMatch("a", True))

    def act() -> None:
        seen.append(len([tag for tag in tags_of(under_test, "t") if tag.startswith("a")]))

    Between(under_test, act)
    under_test.runtime.run()
    assert set(seen) == {200, 0}
    assert len(seen) > 20, "other work was done between the steps"
    assert outcomes[0].deleted == 200
    assert {tag[0] for tag in tags_of(under_test, "t")} == {"b"}


@pytest.mark.parametrize("settings", [HOT, SMALL], ids=["hot", "sealed"])
def test_records_that_come_while_a_delete_is_under_way_stay(settings: Any) -> None:
    under_test = BrokerUnderTest(settings=settings)
    under_test.append("t", *[{"data": 1, "tag": f"old{number}"} for number in range(100)])
    outcomes = delete(under_test, "t", ALL)
    Between(under_test, lambda: write(under_test, "t", "new"), turns=50)
    under_test.runtime.run()
    assert outcomes[0].deleted == 100
    assert tags_of(under_test, "t") == ["new"] * 50
    assert tags_of(under_test.after_kill(), "t") == ["new"] * 50


def test_concurrent_deletes_count_each_record_once() -> None:
    under_test = BrokerUnderTest(settings=HOT)
    under_test.append("t", *[{"data": 1, "tag": f"a{number}"} for number in range(100)])
    deletes = [delete(under_test, "t", match) for match in (ALL, TagMatch("a1", True), TagMatch("a11", False), ALL)]
    deletes.append(delete(under_test, "t", ALL, before_seq=50))
    under_test.runtime.run()
    assert sum([outcomes[0].deleted for outcomes in deletes]) == 100
    assert under_test.broker.topic("t").count == 0
    assert under_test.broker.topic("t").bytes == 0


def test_record_taken_by_another_delete_meanwhile_is_counted_there() -> None:
    under_test = BrokerUnderTest(settings=HOT)
    under_test.append("t", *[{"data": "x" * number, "tag": f"a{number}"} for number in range(100)])
    outcomes = delete(under_test, "t", ALL)
    below = [0]

    def act() -> None:
        # Records leave one by one, at the front, while the others are found and measured.
        below[0] += 1
        if below[0] < 60:
            under_test.broker.delete_records("t", below[0], None, 0, others.append)

    others: list[Any] = []
    Between(under_test, act)
    under_test.runtime.run()
    topic = under_test.broker.topic("t")
    assert outcomes[0].deleted + sum([each.deleted for each in others]) == 100
    assert outcomes[0].deleted < 100
    assert (topic.count, topic.bytes) == (0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_log_under_everything_at_once_equals_what_recovery_makes_of_it(seed: int) -> None:
    """Appends, deletes of every kind, eviction and sealing between the steps; sums are right, and a restart agrees."""
    chance = random.Random(seed)
    under_test = BrokerUnderTest(settings=SMALL if seed % 2 else HOT)
    under_test.configure("t", type="queue" if seed % 3 == 0 else "log")
    outcomes: list[Any] = []
    written = [0]

    def append() -> None:
        count = chance.choice([1, 3, 70])
        written[0] += count
        write(under_test, "t", chance.choice(["a", "ab", "b", "c1", "c2"]) + str(chance.randrange(30)), count)

    def act() -> None:
        head = under_test.broker.topic("t").partitions[0].head_seq
        roll = chance.random()
        if roll < 0.5:
            append()
        elif roll < 0.7:
            text = chance.choice(["a", "ab", "b", "c", "", f"a{chance.randrange(30)}"])
            match = TagMatch(text, chance.random() < 0.8)
            before = chance.choice([None, head // 2])
            under_test.broker.delete_records("t", before, match, 0, outcomes.append)
        elif roll < 0.75:
            under_test.broker.delete_records("t", head // 3, None, 0, outcomes.append)
        elif roll < 0.8:
            under_test.broker.configure("t", ConfigChange(cap_records=chance.choice([0, 300, 100])), lambda _: None)
        elif roll < 0.85:
            topic = under_test.broker.topic("t")
            under_test.broker.sealer.seal(topic, topic.partitions[0])

    for _ in range(20):
        append()
    under_test.runtime.run()
    delete(under_test, "t", TagMatch("a", True))
    Between(under_test, act, turns=150)
    under_test.runtime.run()
    assert all([isinstance(each, RecordsGone) for each in outcomes])
    partition = under_test.broker.topic("t").partitions[0]
    records = under_test.read("t")
    totals = under_test.broker.state.totals
    assert written[0] == totals.appended == len(records) + totals.deleted + totals.evicted
    assert partition.count == len(records)
    assert partition.bytes == sum([segment.measure(1 << 60)[1] for segment in partition.segments])
    again = under_test.after_kill()
    assert again.read("t") == records
    assert (again.broker.topic("t").count, again.broker.topic("t").bytes) == (partition.count, partition.bytes)
    for text in ("a", "b", "c", ""):
        left = len([record for record in records if record["$tag"].startswith(text)])
        (outcome,) = delete_now(again, "t", TagMatch(text, True))
        assert outcome.deleted == left
        records = again.read("t")


def delete_now(under_test: BrokerUnderTest, name: str, match: TagMatch) -> list[Any]:
    outcomes = delete(under_test, name, match)
    under_test.runtime.run()
    return outcomes


@pytest.mark.parametrize("floor", [40, 2500])
@pytest.mark.parametrize("sealed", [False, True])
def test_selection_takes_what_is_left_when_records_leave_before_it_is_applied(sealed: bool, floor: int) -> None:
    under_test = BrokerUnderTest(settings=HOT)
    for start in range(0, 3500, 70):
        under_test.append(
            "t", *[{"data": "x" * (number % 50), "tag": f"a{number}"} for number in range(start, start + 70)]
        )
    topic = under_test.broker.topic("t")
    partition = topic.partitions[0]
    selection = finish(partition.select(ALL, 3451))
    assert selection.count == 3450
    partition.kill([3, 4, 5, 2600, 3000, 3499])
    partition.apply_deleted_below(DeletedBelow(topic.id, 0, floor))
    if sealed:
        under_test.broker.sealer.seal(topic, partition)
        under_test.runtime.run()
        assert all([segment.sealed for segment in partition.segments if segment.live])
    partition.kill([2700, 2701])
    assert partition.apply_selection(selection) == 3450 - (floor - 1) - 4
    assert [record["$seq"] for record in under_test.read("t")] == [seq for seq in range(3451, 3501) if seq != 3499]
    assert partition.bytes == sum([segment.measure(1 << 60)[1] for segment in partition.segments])
    assert partition.apply_selection(selection) == 0


def test_delete_of_a_topic_that_is_deleted_meanwhile_is_refused() -> None:
    under_test = BrokerUnderTest(settings=HOT)
    under_test.append("t", *[{"data": 1, "tag": f"a{number}"} for number in range(50)])
    first, second = delete(under_test, "t", ALL), delete(under_test, "t", ALL)
    gone: list[Any] = []
    under_test.broker.delete_topic("t", if_empty=False, reply=gone.append)
    under_test.runtime.run()
    assert gone[0].deleted
    assert [type(outcomes[0]) for outcomes in (first, second)] == [NotFound, NotFound]
    under_test.append("t", {"data": 1, "tag": "a1"})
    assert delete_now(under_test, "t", ALL)[0].deleted == 1


def test_delete_waits_for_a_change_of_its_topic() -> None:
    under_test = BrokerUnderTest(settings=HOT)
    under_test.append("t", *[{"data": 1, "tag": f"a{number}"} for number in range(50)])
    outcomes = delete(under_test, "t", ALL)
    under_test.broker.configure("t", ConfigChange(ttl_ms=3_600_000), lambda _: None)
    under_test.runtime.run()
    assert outcomes[0].deleted == 50


def test_damaged_segment_fails_the_delete_and_the_next_one_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = BrokerUnderTest(settings=HOT)
    under_test.append("t", *[{"data": 1, "tag": f"a{number}"} for number in range(50)])

    def damaged(*_: Any) -> int:
        raise CorruptStorage("segments/x.arrow", 0, "damaged")

    with monkeypatch.context() as damage:
        damage.setattr(HotSegment, "chosen_size", damaged)
        (outcome,) = delete_now(under_test, "t", ALL)
        assert isinstance(outcome, CorruptStorage)
    assert len(under_test.read("t")) == 50
    assert delete_now(under_test, "t", ALL)[0].deleted == 50


def test_jobs_deleted_by_tag_are_not_handed_out() -> None:
    under_test = BrokerUnderTest(settings=HOT)
    under_test.configure("q", type="queue")
    under_test.append("q", *[{"data": 1, "tag": f"{'ab'[number % 2]}{number}"} for number in range(20)])
    claimed: list[Any] = []
    under_test.broker.queues.claim("q", 0, "w", 6, 60_000, 0, "asker", lambda answers: claimed.extend(answers))
    under_test.runtime.run()
    assert delete_now(under_test, "q", TagMatch("a", True))[0].deleted == 10
    counters = under_test.broker.queues.stats(under_test.broker.topic("q"))
    assert (counters.ready, counters.in_flight) == (7, 3)


def test_tag_index_of_deleted_records_is_freed() -> None:
    under_test = BrokerUnderTest(settings=HOT)
    under_test.append("t", *[{"data": 1, "tag": f"a{number}"} for number in range(300)], {"data": 1, "tag": "b"})
    delete_now(under_test, "t", TagMatch("a", True))
    partition = under_test.broker.topic("t").partitions[0]
    assert not partition.has_stale_tags
    assert [len(segment.tags) for segment in partition.segments] == [1]  # type: ignore[attr-defined]
