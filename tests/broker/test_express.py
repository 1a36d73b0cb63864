"""The express way leads where the usual one does, and is not taken when there is anything else to think of."""

import errno
import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.broker.house import SMALL, House
from topics.broker.express import Express
from topics.model.batch import decode_batch, decode_singles
from topics.model.config import DEFAULT_CONFIG, ConfigChange
from topics.model.errors import TopicsError
from topics.model.limits import Limits


class Riders:
    """Writers of single records who have gathered for one topic."""

    def __init__(self, house: House, topic: str = "t") -> None:
        self.house = house
        self.topic = topic
        self.express = Express(house.broker, topic)
        self.told: list[tuple[int, list[int]]] = []
        self.timings: list[bytes] = []
        self.errors: list[TopicsError] = []

    def ride(self, *numbers: int) -> bool:
        """Whether they were taken."""
        return self.express.write(self._batch(numbers), list(numbers), self.answer)

    def walk(self, *numbers: int) -> None:
        assert self.house.broker.join(self.topic, self._batch(numbers), list(numbers), self.answer)
        self.house.runtime.turn()

    def _batch(self, numbers: Sequence[int]) -> Any:
        return decode_singles([b'{"records":[{"data":%d}]}' % number for number in numbers], self.house.limits)

    def answer(self, name: bytes, head_seq: int, timing: bytes, runs: Any, error: TopicsError | None) -> None:
        topic = self.house.broker.topic(self.topic)
        assert (name, head_seq) == (topic.name_bytes, topic.partitions[0].head_seq)
        if error is not None:
            self.errors.append(error)
            return
        self.timings.append(timing)
        self.told += [(first_seq, list(asked)) for first_seq, asked in runs]


def house_with_topic(**fields: Any) -> House:
    house = House()
    house.configure("t", **fields)
    house.append("t", 0)
    return house


def written(house: House) -> list[bytes]:
    """What stands in the log."""
    names = [f"wal/shard-00/{name}" for name in house.disk.list("wal/shard-00")]
    return [house.disk.open(name).read_at(0, 1 << 20) for name in sorted(names)]


def state(house: House) -> list[Any]:
    committer = house.broker.committer
    lane = committer.lanes[0]
    partition = house.broker.topic("t").partitions[0]
    return [
        (
            committer.next_lsn,
            committer.frames_total,
            lane.unsynced_records,
            lane.shard.last_lsn,
            house.broker.counts.appends,
        ),
        (partition.next_seq, partition.head_seq, partition.last_ts, partition.count, partition.bytes),
        (partition.pending_records, partition.pending_bytes, house.broker.topic("t").last_write_ts),
    ]


@pytest.mark.parametrize("fields", [{}, {"durability": "memory"}, {"type": "queue"}])
def test_it_leads_to_the_same_log_the_same_answers_and_the_same_state(fields: dict[str, Any]) -> None:
    short, usual = house_with_topic(**fields), house_with_topic(**fields)
    for numbers in [(1, 2, 3), (4, 5), tuple(range(6, 80))]:
        for house in (short, usual):
            house.runtime.clock.advance(5)
        riders, walkers = Riders(short), Riders(usual)
        assert riders.ride(*numbers)
        walkers.walk(*numbers)
        assert riders.told == walkers.told
        assert state(short) == state(usual)
        assert short.read("t") == usual.read("t")
        assert written(short) == written(usual)
    assert short.after_kill().read("t") == short.read("t")


def test_who_watches_is_told() -> None:
    house = house_with_topic()
    looks: list[int] = []
    topic = house.broker.topic("t")
    house.broker.watch(topic, lambda: looks.append(topic.partitions[0].head_seq))
    assert Riders(house).ride(1, 2)
    house.runtime.turn()
    assert looks == [3]


def test_segments_are_sealed_as_usual() -> None:
    house = house_with_topic()
    riders = Riders(house)
    for number in range(0, 400, 4):
        assert riders.ride(number, number + 1, number + 2, number + 3)
        house.runtime.run()
    assert house.broker.keeper.seals_total
    assert house.datas("t", 1) == list(range(400))


def test_the_log_is_synced_in_the_background() -> None:
    house = house_with_topic()
    house.wait(1000)
    assert Riders(house).ride(1, 2)
    house.wait(1000)
    assert house.after_power_cut().datas("t") == [0, 1, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"durability": "fsync"},
        {"durability": "ephemeral"},
        {"cap_records": 100},
        {"cap_bytes": 100_000},
        {"ttl_ms": 100_000},
    ],
    ids=str,
)
def test_topics_with_something_to_decide_are_left_to_the_usual_way(fields: dict[str, Any]) -> None:
    house = house_with_topic(**fields)
    assert_not_taken(house, Riders(house))


def test_a_configuration_that_changes_is_noticed() -> None:
    house = house_with_topic()
    riders = Riders(house)
    assert riders.ride(1, 2)
    house.configure("t", durability="fsync")
    assert_not_taken(house, riders)
    house.configure("t", durability="disk")
    assert riders.ride(3, 4)


def test_a_topic_that_is_deleted_is_not_held() -> None:
    house = House()
    house.configure("t")
    riders = Riders(house)
    riders.walk(0)
    house.runtime.run()
    assert riders.ride(1, 2)
    topic = weakref.ref(house.broker.topic("t"))
    house.ask(house.broker.delete_topic, "t", if_empty=False)
    house.runtime.run()
    gc.collect()
    assert topic() is None
    assert not riders.ride(3, 4)


def test_a_quota_of_the_server_is_left_to_the_usual_way() -> None:
    house = House(limits=Limits(max_total_bytes=1 << 20))
    house.append("t", 0)
    assert_not_taken(house, Riders(house))


def test_the_very_first_record_is_left_to_the_usual_way_which_syncs_it() -> None:
    house = House()
    house.configure("t")
    assert_not_taken(house, Riders(house))


def test_a_topic_that_is_not_there_is_left_to_the_usual_way() -> None:
    assert not Riders(House()).ride(1, 2)


def test_nothing_is_taken_before_what_was_decided_earlier() -> None:
    house = house_with_topic()
    house.broker.append("t", decode_batch(b'{"records":[{"data":1}]}', house.limits), lambda outcome: None)
    assert_not_taken(house, Riders(house))
    house.runtime.run()
    # Also if it is about another topic of the same log.
    house.append("other", 0)
    house.broker.append("other", decode_batch(b'{"records":[{"data":1}]}', house.limits), lambda outcome: None)
    assert_not_taken(house, Riders(house))


def test_nothing_overtakes_what_waits_for_a_sync() -> None:
    house = house_with_topic(durability="fsync")
    house.broker.append("t", decode_batch(b'{"records":[{"data":1}]}', house.limits), lambda outcome: None)
    house.runtime.turn()
    partition = house.broker.topic("t").partitions[0]
    assert partition.waiting_sync == 1
    # The class it was written under has been another one.
    topic = house.broker.topic("t")
    topic.config = msgspec.structs.replace(topic.config, durability="disk")
    assert_not_taken(house, Riders(house))
    # What waits need not be a write.
    house.runtime.run()
    partition.waiting_sync = 1
    assert_not_taken(house, Riders(house))


def test_nothing_overtakes_seqs_that_were_handed_out() -> None:
    house = house_with_topic()
    # As by a commit over several topics that waits for another shard.
    house.broker.topic("t").partitions[0].next_seq += 2
    assert_not_taken(house, Riders(house))


def test_no_more_is_readable_without_a_sync_than_the_margin_allows() -> None:
    house = House(settings=msgspec.structs.replace(SMALL, margin=8))
    house.append("t", 0)
    riders = Riders(house)
    taken = 0
    while riders.ride(taken, taken + 1):
        taken += 2
        assert house.broker.committer.lanes[0].unsynced_records <= 8
    assert taken
    house.runtime.run()
    assert riders.ride(1, 2), "the sync has made room"


def test_a_log_that_takes_nothing_is_left_to_the_usual_way_which_tells_why() -> None:
    house = house_with_topic()
    house.broker.committer.lanes[0].shard.failed = True
    riders = Riders(house)
    assert_not_taken(house, riders)
    riders.walk(1, 2)
    assert [error.code for error in riders.errors] == ["read_only"]


def test_a_write_that_fails_leaves_nothing_and_the_usual_way_tells_why() -> None:
    house = house_with_topic()
    house.disk.fault = lambda _step, op, _path: errno.ENOSPC if op == "write_at" else None
    riders = Riders(house)
    assert_not_taken(house, riders)
    riders.walk(1, 2)
    assert [error.code for error in riders.errors] == ["storage_full"]
    house.disk.fault = None
    assert riders.ride(3, 4)
    assert house.datas("t") == [0, 3, 4]
    assert house.after_kill().datas("t") == [0, 3, 4]


def test_notes_that_could_not_be_written_come_first() -> None:
    house = house_with_topic()
    house.append("capped", 0, config={"cap_records": 1})
    writes = iter(range(100))
    house.disk.fault = lambda _step, op, _path: errno.EIO if op == "write_at" and next(writes) == 1 else None
    house.append("capped", 1)
    house.disk.fault = None
    assert house.broker.committer.lanes[0].owed
    assert_not_taken(house, Riders(house))


def test_who_is_being_told_of_another_write_does_not_go_ahead_of_those_behind_it() -> None:
    house = house_with_topic()
    house.append("first", 0)
    house.append("second", 0)
    riders = Riders(house)
    taken: list[bool] = []
    again: Callable[[Any], None] = lambda _outcome: taken.append(riders.ride(1, 2))  # noqa: E731
    for name in ("first", "second"):
        house.broker.append(name, decode_batch(b'{"records":[{"data":1}]}', house.limits), again)
    house.runtime.run()
    assert taken == [False, False]
    assert riders.ride(1, 2)


def test_what_comes_while_riders_are_answered_is_written_behind_them() -> None:
    house = house_with_topic()
    riders = Riders(house)
    order: list[str] = []
    answer = riders.answer

    def answered(*told: Any) -> None:
        house.broker.append(
            "t",
            decode_batch(b'{"records":[{"data":9}]}', house.limits),
            lambda outcome: order.append(str(outcome.first_seq)),
        )
        house.broker.committer.flush()
        order.append("riders")
        answer(*told)

    riders.answer = answered  # type: ignore[method-assign]
    assert riders.ride(1, 2)
    house.runtime.run()
    assert order == ["riders", "4"]
    assert house.datas("t") == [0, 1, 2, 9]


def test_a_topic_that_is_being_changed_is_left_to_the_usual_way() -> None:
    house = house_with_topic()
    house.broker.configure("t", ConfigChange(ttl_ms=1000), lambda outcome: None)
    house.runtime.turn()
    assert_not_taken(house, Riders(house))
    house.runtime.run()


def test_a_topic_made_again_is_another_one() -> None:
    house = House(settings=msgspec.structs.replace(SMALL, shards=2))
    riders = Riders(house)
    for _ in range(3):
        house.append("t", 0)
        topic = house.broker.topic("t")
        topic.config = DEFAULT_CONFIG
        shard = house.broker.committer.lane_of(topic.id).shard
        before = shard.last_lsn
        assert riders.ride(1, 2)
        assert shard.last_lsn > before
        house.runtime.run()
        assert house.after_kill().datas("t") == [0, 1, 2]
        house.ask(house.broker.delete_topic, "t", if_empty=False)
        # The next one goes to the other shard.
        assert not riders.ride(3, 4)


def test_times_do_not_run_backwards() -> None:
    house = house_with_topic()
    partition = house.broker.topic("t").partitions[0]
    later = partition.last_ts = house.runtime.now_ms() + 5000
    assert Riders(house).ride(1, 2)
    assert [record["$ts"] for record in house.read("t", 1)] == [later] * 2


def test_records_wait_when_memory_is_full_of_what_is_being_sealed() -> None:
    house = house_with_topic()
    house.broker.keeper.full = True
    assert_not_taken(house, Riders(house))


def test_an_answer_that_goes_wrong_costs_nobody_else_anything() -> None:
    house = house_with_topic()
    riders = Riders(house)

    def fails(*_told: Any) -> None:
        raise RuntimeError("a bug of ours")

    riders.answer = fails  # type: ignore[method-assign]
    assert riders.ride(1, 2)
    house.append("t", 3)
    assert house.datas("t") == [0, 1, 2, 3]
    assert not house.broker.committer.telling


def assert_not_taken(house: House, riders: Riders) -> None:
    before = state(house), written(house), list(riders.told)
    assert not riders.ride(100, 101)
    assert (state(house), written(house), riders.told) == before
    assert not riders.errors
