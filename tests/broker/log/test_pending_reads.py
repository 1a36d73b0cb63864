"""What has come and is not read yet: it is opened right before its log is written, once, and nothing of it is forgotten."""

import errno
from collections.abc import Callable
from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.log.sync_policy import MIN_FAST_SYNCS
from topics.model.records.batch import decode_batch


class Letters:
    """Writes that wait unread."""

    def __init__(self, under_test: BrokerUnderTest, topic: str = "t", *, sync: bool = False) -> None:
        self.under_test = under_test
        self.topic = topic
        self.sync = sync
        self.waiting: list[int] = []
        self.outcomes: list[Any] = []
        self.opened: list[int] = []

    @property
    def waiters(self) -> int:
        return len(self.waiting)

    def put(self, number: int) -> None:
        if not self.waiting:
            self.under_test.broker.committer.expect(self)
        self.waiting.append(number)

    def open(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.opened.append(len(waiting))
        for number in waiting:
            write(self.under_test, number, self.outcomes.append, self.topic)


def write(under_test: BrokerUnderTest, number: int, reply: Callable[[Any], None], topic: str = "t") -> None:
    body = b'{"records":[{"data":%d}]}' % number
    under_test.broker.append(topic, decode_batch(body, under_test.limits), reply)


def fsync_broker(writes: int = 1) -> BrokerUnderTest:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="fsync")
    for number in range(writes):
        under_test.append("t", number)
    return under_test


def test_letters_of_a_turn_are_opened_once_and_are_one_frame() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    letters = Letters(under_test)
    frames = under_test.broker.committer.frames_total
    for number in range(1, 4):
        letters.put(number)
    assert not under_test.broker.committer.idle
    under_test.runtime.turn()
    assert letters.opened == [3]
    assert [outcome.first_seq for outcome in letters.outcomes] == [2, 3, 4]
    assert under_test.broker.committer.frames_total == frames + 1
    under_test.runtime.run()
    assert under_test.broker.committer.idle
    assert under_test.datas("t") == [0, 1, 2, 3]


def test_what_comes_while_others_are_opened_is_not_forgotten() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    under_test.append("other", 0)
    late = Letters(under_test, "other")

    class Hasty(Letters):
        def open(self) -> None:
            super().open()
            late.put(2)

    hasty = Hasty(under_test)
    hasty.put(1)
    under_test.runtime.run()
    assert under_test.broker.committer.idle
    assert under_test.datas("t") == [0, 1]
    assert under_test.datas("other") == [0, 2]


def test_pending_reads_that_raise_do_not_affect_others() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)

    class Torn(Letters):
        def open(self) -> None:
            self.waiting = []
            raise RuntimeError("whatever it is")

    torn, letters = Torn(under_test), Letters(under_test)
    torn.put(1)
    letters.put(2)
    under_test.runtime.run()
    assert letters.opened == [1]
    letters.put(3)
    under_test.runtime.run()
    assert under_test.datas("t") == [0, 2, 3]


def test_what_must_be_synced_and_comes_during_a_sync_is_opened_when_that_is_over() -> None:
    under_test = fsync_broker()
    letters = Letters(under_test, sync=True)
    outcomes: list[Any] = []
    write(under_test, 1, outcomes.append)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside == 1, "the sync is under way"
    letters.put(2)
    under_test.runtime.turn()
    letters.put(3)
    under_test.runtime.turn()
    assert not letters.opened
    batches = under_test.broker.committer.batches_total
    under_test.runtime.run()
    assert letters.opened == [2]
    assert under_test.broker.committer.batches_total == batches + 1
    assert [outcome.first_seq for outcome in (*outcomes, *letters.outcomes)] == [2, 3, 4]
    assert under_test.after_power_cut().datas("t") == [0, 1, 2, 3]


def test_what_need_not_be_synced_does_not_wait_for_a_sync() -> None:
    under_test = fsync_broker()
    under_test.append("quick", 0)
    letters = Letters(under_test, "quick")
    write(under_test, 1, [].append)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside == 1
    letters.put(1)
    under_test.runtime.turn()
    assert [outcome.first_seq for outcome in letters.outcomes] == [2]


def test_pending_reads_get_the_error_of_a_failed_sync() -> None:
    under_test = fsync_broker()
    letters = Letters(under_test, sync=True)
    outcomes: list[Any] = []
    under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    write(under_test, 1, outcomes.append)
    under_test.runtime.turn()
    letters.put(2)
    under_test.runtime.run()
    assert letters.opened == [1]
    assert [outcome.code for outcome in (*outcomes, *letters.outcomes)] == ["read_only", "read_only"]
    assert under_test.datas("t") == [0]


def test_letters_that_are_opened_count_among_those_for_whom_a_sync_waits() -> None:
    under_test = fsync_broker(MIN_FAST_SYNCS)
    letters = Letters(under_test, sync=True)
    for number in range(100, 108):
        letters.put(number)
    under_test.runtime.run()
    syncs = under_test.broker.committer.syncs_total

    def come(*numbers: int) -> None:
        """One of them in each turn."""
        first, *rest = numbers
        letters.put(first)
        if rest:
            under_test.runtime.call_soon(lambda: come(*rest))

    # The last write served eight: so the next one waits for a turn without another writer.
    come(200, 201, 202)
    under_test.runtime.run()
    assert letters.opened == [8, 3]
    assert under_test.broker.committer.syncs_total == syncs + 1


def test_letters_are_opened_before_the_log_is_closed() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    letters = Letters(under_test)
    letters.put(1)
    under_test.broker.committer.flush()
    assert [outcome.first_seq for outcome in letters.outcomes] == [2]
    under_test.runtime.run()
    assert letters.opened == [1]


def test_a_record_that_came_while_a_sync_was_stuck_is_no_older_than_its_request() -> None:
    under_test = fsync_broker()
    outcomes: list[Any] = []
    write(under_test, 1, outcomes.append)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside == 1, "the sync is under way"
    write(under_test, 2, outcomes.append)
    under_test.runtime.clock.advance(3000)
    came_at = under_test.runtime.now_ms()
    write(under_test, 3, outcomes.append)
    under_test.runtime.run()
    times = [record["$ts"] for record in under_test.read("t")]
    assert times[-1] >= came_at
    assert times == sorted(times)
