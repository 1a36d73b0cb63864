"""Syncs run on the loop while they are fast; a slow one moves them to the thread; every guarantee holds in both cases."""

import errno
from collections.abc import Callable
from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.log.sync_policy import MIN_FAST_SYNCS, MIN_FAST_SYNCS_AFTER_SLOW, SLOW_SECONDS
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings


def quick_broker() -> BrokerUnderTest:
    """With a topic that is synced, on a disk that has been quick for long enough."""
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="fsync")
    for number in range(MIN_FAST_SYNCS):
        under_test.append("t", number)
    assert under_test.broker.committer.policy.syncs_are_fast
    return under_test


def write(under_test: BrokerUnderTest, outcomes: list[Any], *datas: int, topic: str = "t") -> None:
    records = ",".join([f'{{"data":{data}}}' for data in datas])
    under_test.broker.append(
        topic, decode_batch(f'{{"records":[{records}]}}'.encode(), under_test.limits), outcomes.append
    )


def test_on_a_quick_disk_a_write_is_synced_and_answered_in_its_turn() -> None:
    under_test = quick_broker()
    outcomes: list[Any] = []
    write(under_test, outcomes, 100)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside == 0
    assert [outcome.first_seq for outcome in outcomes] == [MIN_FAST_SYNCS + 1]
    assert under_test.after_power_cut().datas("t")[-1] == 100


def test_the_first_syncs_are_done_aside_until_the_disk_has_shown_that_it_is_quick() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="fsync")
    outcomes: list[Any] = []
    write(under_test, outcomes, 1)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside == 1
    assert not outcomes


def test_one_slow_sync_sends_the_next_ones_aside() -> None:
    under_test = quick_broker()

    def slow(_step: int, op: str, _path: str) -> None:
        if op == "sync_data":
            under_test.runtime.clock.advance(int(SLOW_SECONDS * 1000) + 1)

    under_test.disk.fault = slow
    under_test.append("t", 100)
    under_test.disk.fault = None
    outcomes: list[Any] = []
    for number in range(MIN_FAST_SYNCS_AFTER_SLOW):
        write(under_test, outcomes, number)
        under_test.runtime.turn()
        assert len(outcomes) == number
        under_test.runtime.run()
    write(under_test, outcomes, 1)
    under_test.runtime.turn()
    assert len(outcomes) == MIN_FAST_SYNCS_AFTER_SLOW + 1


def test_a_sync_that_fails_on_the_spot_is_final_and_nothing_that_waited_is_acknowledged() -> None:
    under_test = quick_broker()
    before = under_test.datas("t")
    under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    outcomes: list[Any] = []
    write(under_test, outcomes, 100)
    write(under_test, outcomes, 101, 102)
    under_test.runtime.run()
    under_test.disk.fault = None
    write(under_test, outcomes, 103)
    under_test.runtime.run()
    assert [outcome.code for outcome in outcomes] == ["read_only"] * 3
    assert under_test.datas("t") == before
    assert under_test.broker.committer.read_only


def test_much_data_is_never_synced_on_the_spot() -> None:
    under_test = quick_broker()
    under_test.append("loose", 0)
    outcomes: list[Any] = []
    for _ in range(12):
        under_test.broker.append(
            "loose",
            decode_batch(b'{"records":[{"data":"%b"}]}' % (b"x" * 100_000), under_test.limits),
            lambda outcome: None,
        )
        under_test.runtime.turn()
    write(under_test, outcomes, 100)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside >= 1
    assert not outcomes
    under_test.runtime.run()
    assert len(outcomes) == 1


def test_many_writers_of_consecutive_turns_share_a_sync() -> None:
    under_test = quick_broker()
    committer = under_test.broker.committer
    outcomes: list[Any] = []
    for number in range(8):
        write(under_test, outcomes, number)
    under_test.runtime.turn()
    syncs = committer.syncs_total
    # As if each turn of the loop brought two more; ManualRuntime's turn ends when nothing is left to call.
    waves = iter(range(3))

    def wave() -> None:
        write(under_test, outcomes, 1)
        write(under_test, outcomes, 2)
        if next(waves, None) is not None:
            under_test.runtime.call_soon(wave)

    wave()
    under_test.runtime.turn()
    under_test.runtime.run()
    assert len(outcomes) == 8 + 8
    assert committer.syncs_total == syncs + 1
    seqs = [outcome.first_seq for outcome in outcomes]
    assert seqs == list(range(seqs[0], seqs[0] + 16))


def test_a_single_writer_does_not_wait_for_others() -> None:
    under_test = quick_broker()
    for number in range(8):
        write(under_test, [], number)
    under_test.runtime.run()
    outcomes: list[Any] = []
    for number in range(3):
        write(under_test, outcomes, number)
        under_test.runtime.run()
    turns: list[Callable[[], None]] = []
    call_soon = under_test.runtime.call_soon
    under_test.runtime.call_soon = lambda callback: (turns.append(callback), call_soon(callback))[0]  # type: ignore[method-assign,func-returns-value]
    write(under_test, outcomes, 4)
    under_test.runtime.run()
    assert len(turns) == 1
    assert len(outcomes) == 4


def test_replies_that_write_again_keep_the_order_of_the_log() -> None:
    under_test = quick_broker()
    acked: list[int] = []

    def again(outcome: Any) -> None:
        acked.append(outcome.first_seq)
        if len(acked) < 30:
            under_test.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', under_test.limits), again)

    under_test.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', under_test.limits), again)
    under_test.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', under_test.limits), again)
    under_test.runtime.run()
    assert acked == list(range(acked[0], acked[0] + len(acked)))
    assert [record["$seq"] for record in under_test.read("t")] == list(range(1, acked[-1] + 1))


def test_many_writers_of_a_class_that_is_not_synced_wait_for_one_more_turn_and_no_longer() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    outcomes: list[Any] = []
    for number in range(8):
        write(under_test, outcomes, number)
    under_test.runtime.turn()
    writes = under_test.broker.committer.batches_total
    waves = iter(range(5))

    def wave() -> None:
        write(under_test, outcomes, 1)
        if next(waves, None) is not None:
            under_test.runtime.call_soon(wave)

    wave()
    under_test.runtime.turn()
    assert len(outcomes) == 8 + 6
    # The second wave goes with the first; then few had come, and each goes alone.
    assert under_test.broker.committer.batches_total - writes == 5


def test_while_a_segment_is_being_written_nothing_is_synced_on_the_spot() -> None:
    under_test = quick_broker()
    topic = under_test.broker.topic("t")
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    outcomes: list[Any] = []
    write(under_test, outcomes, 100)
    under_test.runtime.turn()
    assert not outcomes
    under_test.runtime.run()
    assert len(outcomes) == 1
    assert under_test.broker.committer.disk_busy == 0
    write(under_test, outcomes, 101)
    under_test.runtime.turn()
    assert len(outcomes) == 2
    assert under_test.datas("t")[-2:] == [100, 101]


def test_a_thousand_writes_each_behind_the_answer_to_the_last_are_answered_on_a_quick_disk() -> None:
    # Large segments: sealing would send the syncs aside now and then, and so end the chain.
    under_test = BrokerUnderTest(settings=StorageSettings())
    under_test.configure("t", durability="fsync")
    for number in range(MIN_FAST_SYNCS):
        under_test.append("t", number)
    acked: list[Any] = []

    def again(outcome: Any) -> None:
        acked.append(outcome.first_seq)
        if len(acked) < 1000:
            under_test.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', under_test.limits), again)

    under_test.broker.append("t", decode_batch(b'{"records":[{"data":0}]}', under_test.limits), again)
    under_test.runtime.run()
    assert acked == list(range(MIN_FAST_SYNCS + 1, MIN_FAST_SYNCS + 1001))
