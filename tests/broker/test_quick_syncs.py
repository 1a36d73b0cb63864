"""Syncs on the spot: while they are quick nobody waits for a thread, one slow one ends that, and every promise holds."""

import errno
from collections.abc import Callable
from typing import Any

from tests.broker.house import House
from topics.broker.checkpoint import StorageSettings
from topics.broker.committer import QUICK_AFTER_SLOW, QUICK_LEAST, SLOW_SECONDS
from topics.model.batch import decode_batch


def quick_house() -> House:
    """With a topic that is synced, on a disk that has been quick for long enough."""
    house = House()
    house.configure("t", durability="fsync")
    for number in range(QUICK_LEAST):
        house.append("t", number)
    assert house.broker.committer.lanes[0].is_quick
    return house


def write(house: House, outcomes: list[Any], *datas: int, topic: str = "t") -> None:
    records = ",".join([f'{{"data":{data}}}' for data in datas])
    house.broker.append(topic, decode_batch(f'{{"records":[{records}]}}'.encode(), house.limits), outcomes.append)


def test_on_a_quick_disk_a_write_is_synced_and_answered_in_its_turn() -> None:
    house = quick_house()
    outcomes: list[Any] = []
    write(house, outcomes, 100)
    house.runtime.turn()
    assert house.runtime.waiting_aside == 0
    assert [outcome.first_seq for outcome in outcomes] == [QUICK_LEAST + 1]
    assert house.after_power_cut().datas("t")[-1] == 100


def test_the_first_syncs_are_done_aside_until_the_disk_has_shown_that_it_is_quick() -> None:
    house = House()
    house.configure("t", durability="fsync")
    outcomes: list[Any] = []
    write(house, outcomes, 1)
    house.runtime.turn()
    assert house.runtime.waiting_aside == 1
    assert not outcomes


def test_one_slow_sync_sends_the_next_ones_aside() -> None:
    house = quick_house()

    def slow(_step: int, op: str, _path: str) -> None:
        if op == "sync_data":
            house.runtime.clock.advance(int(SLOW_SECONDS * 1000) + 1)

    house.disk.fault = slow
    house.append("t", 100)
    house.disk.fault = None
    outcomes: list[Any] = []
    for number in range(QUICK_AFTER_SLOW):
        write(house, outcomes, number)
        house.runtime.turn()
        assert len(outcomes) == number
        house.runtime.run()
    write(house, outcomes, 1)
    house.runtime.turn()
    assert len(outcomes) == QUICK_AFTER_SLOW + 1


def test_a_sync_that_fails_on_the_spot_is_final_and_nothing_that_waited_is_acknowledged() -> None:
    house = quick_house()
    before = house.datas("t")
    house.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    outcomes: list[Any] = []
    write(house, outcomes, 100)
    write(house, outcomes, 101, 102)
    house.runtime.run()
    house.disk.fault = None
    write(house, outcomes, 103)
    house.runtime.run()
    assert [outcome.code for outcome in outcomes] == ["read_only"] * 3
    assert house.datas("t") == before
    assert house.broker.committer.read_only


def test_much_data_is_never_synced_on_the_spot() -> None:
    house = quick_house()
    house.append("loose", 0)
    outcomes: list[Any] = []
    for _ in range(12):
        house.broker.append(
            "loose",
            decode_batch(b'{"records":[{"data":"%b"}]}' % (b"x" * 100_000), house.limits),
            lambda outcome: None,
        )
        house.runtime.turn()
    write(house, outcomes, 100)
    house.runtime.turn()
    assert house.runtime.waiting_aside >= 1
    assert not outcomes
    house.runtime.run()
    assert len(outcomes) == 1


def test_writers_who_come_one_after_the_other_share_a_sync_when_there_are_many() -> None:
    house = quick_house()
    committer = house.broker.committer
    outcomes: list[Any] = []
    for number in range(8):
        write(house, outcomes, number)
    house.runtime.turn()
    syncs = committer.syncs_total
    # As if each turn of the loop brought two more; ManualRuntime's turn ends when nothing is left to call.
    waves = iter(range(3))

    def wave() -> None:
        write(house, outcomes, 1)
        write(house, outcomes, 2)
        if next(waves, None) is not None:
            house.runtime.call_soon(wave)

    wave()
    house.runtime.turn()
    house.runtime.run()
    assert len(outcomes) == 8 + 8
    assert committer.syncs_total == syncs + 1
    seqs = [outcome.first_seq for outcome in outcomes]
    assert seqs == list(range(seqs[0], seqs[0] + 16))


def test_a_single_writer_does_not_wait_for_others() -> None:
    house = quick_house()
    for number in range(8):
        write(house, [], number)
    house.runtime.run()
    outcomes: list[Any] = []
    for number in range(3):
        write(house, outcomes, number)
        house.runtime.run()
    turns: list[Callable[[], None]] = []
    call_soon = house.runtime.call_soon
    house.runtime.call_soon = lambda callback: (turns.append(callback), call_soon(callback))[0]  # type: ignore[method-assign,func-returns-value]
    write(house, outcomes, 4)
    house.runtime.run()
    assert len(turns) == 1
    assert len(outcomes) == 4


def test_replies_that_write_again_keep_the_order_of_the_log() -> None:
    house = quick_house()
    told: list[int] = []

    def again(outcome: Any) -> None:
        told.append(outcome.first_seq)
        if len(told) < 30:
            house.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', house.limits), again)

    house.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', house.limits), again)
    house.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', house.limits), again)
    house.runtime.run()
    assert told == list(range(told[0], told[0] + len(told)))
    assert [record["$seq"] for record in house.read("t")] == list(range(1, told[-1] + 1))


def test_many_writers_of_a_class_that_is_not_synced_wait_for_one_more_turn_and_no_longer() -> None:
    house = House()
    house.append("t", 0)
    outcomes: list[Any] = []
    for number in range(8):
        write(house, outcomes, number)
    house.runtime.turn()
    writes = house.broker.committer.batches_total
    waves = iter(range(5))

    def wave() -> None:
        write(house, outcomes, 1)
        if next(waves, None) is not None:
            house.runtime.call_soon(wave)

    wave()
    house.runtime.turn()
    assert len(outcomes) == 8 + 6
    # The second wave goes with the first; then few had come, and each goes alone.
    assert house.broker.committer.batches_total - writes == 5


def test_while_a_segment_is_being_written_nothing_is_synced_on_the_spot() -> None:
    house = quick_house()
    topic = house.broker.topic("t")
    house.broker.keeper.seal(topic, topic.partitions[0])
    outcomes: list[Any] = []
    write(house, outcomes, 100)
    house.runtime.turn()
    assert not outcomes
    house.runtime.run()
    assert len(outcomes) == 1
    assert house.broker.committer.disk_busy == 0
    write(house, outcomes, 101)
    house.runtime.turn()
    assert len(outcomes) == 2
    assert house.datas("t")[-2:] == [100, 101]


def test_a_thousand_writes_each_behind_the_answer_to_the_last_are_answered_on_a_quick_disk() -> None:
    # Large segments: sealing would send the syncs aside now and then, and so end the chain.
    house = House(settings=StorageSettings())
    house.configure("t", durability="fsync")
    for number in range(QUICK_LEAST):
        house.append("t", number)
    told: list[Any] = []

    def again(outcome: Any) -> None:
        told.append(outcome.first_seq)
        if len(told) < 1000:
            house.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', house.limits), again)

    house.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', house.limits), again)
    house.runtime.run()
    assert told == list(range(QUICK_LEAST + 1, QUICK_LEAST + 1001))
