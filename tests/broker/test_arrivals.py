"""What has come and is not read yet: it is opened right before its log is written, once, and nothing of it is forgotten."""

import errno
from collections.abc import Callable
from typing import Any

from tests.broker.house import House
from topics.broker.committer import QUICK_LEAST
from topics.model.batch import decode_batch


class Letters:
    """Writes that wait unread."""

    def __init__(self, house: House, topic: str = "t", *, sync: bool = False) -> None:
        self.house = house
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
            self.house.broker.committer.expect(self.house.broker.topic(self.topic).id, self)
        self.waiting.append(number)

    def open(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.opened.append(len(waiting))
        for number in waiting:
            write(self.house, number, self.outcomes.append, self.topic)


def write(house: House, number: int, reply: Callable[[Any], None], topic: str = "t") -> None:
    body = b'{"records":[{"data":%d}]}' % number
    house.broker.append(topic, decode_batch(body, house.limits), reply)


def fsync_house(writes: int = 1) -> House:
    house = House()
    house.configure("t", durability="fsync")
    for number in range(writes):
        house.append("t", number)
    return house


def test_letters_of_a_turn_are_opened_once_and_are_one_frame() -> None:
    house = House()
    house.append("t", 0)
    letters = Letters(house)
    frames = house.broker.committer.frames_total
    for number in range(1, 4):
        letters.put(number)
    assert not house.broker.committer.idle
    house.runtime.turn()
    assert letters.opened == [3]
    assert [outcome.first_seq for outcome in letters.outcomes] == [2, 3, 4]
    assert house.broker.committer.frames_total == frames + 1
    house.runtime.run()
    assert house.broker.committer.idle
    assert house.datas("t") == [0, 1, 2, 3]


def test_what_comes_while_others_are_opened_is_not_forgotten() -> None:
    house = House()
    house.append("t", 0)
    house.append("other", 0)
    late = Letters(house, "other")

    class Hasty(Letters):
        def open(self) -> None:
            super().open()
            late.put(2)

    hasty = Hasty(house)
    hasty.put(1)
    house.runtime.run()
    assert house.broker.committer.idle
    assert house.datas("t") == [0, 1]
    assert house.datas("other") == [0, 2]


def test_letters_that_cannot_be_opened_cost_nobody_else_anything() -> None:
    house = House()
    house.append("t", 0)

    class Torn(Letters):
        def open(self) -> None:
            self.waiting = []
            raise RuntimeError("whatever it is")

    torn, letters = Torn(house), Letters(house)
    torn.put(1)
    letters.put(2)
    house.runtime.run()
    assert letters.opened == [1]
    letters.put(3)
    house.runtime.run()
    assert house.datas("t") == [0, 2, 3]


def test_what_must_be_synced_and_comes_during_a_sync_is_opened_when_that_is_over() -> None:
    house = fsync_house()
    letters = Letters(house, sync=True)
    outcomes: list[Any] = []
    write(house, 1, outcomes.append)
    house.runtime.turn()
    assert house.runtime.waiting_aside == 1, "the sync is under way"
    letters.put(2)
    house.runtime.turn()
    letters.put(3)
    house.runtime.turn()
    assert not letters.opened
    batches = house.broker.committer.batches_total
    house.runtime.run()
    assert letters.opened == [2]
    assert house.broker.committer.batches_total == batches + 1
    assert [outcome.first_seq for outcome in (*outcomes, *letters.outcomes)] == [2, 3, 4]
    assert house.after_power_cut().datas("t") == [0, 1, 2, 3]


def test_what_need_not_be_synced_does_not_wait_for_a_sync() -> None:
    house = fsync_house()
    house.append("quick", 0)
    letters = Letters(house, "quick")
    write(house, 1, [].append)
    house.runtime.turn()
    assert house.runtime.waiting_aside == 1
    letters.put(1)
    house.runtime.turn()
    assert [outcome.first_seq for outcome in letters.outcomes] == [2]


def test_whoever_waits_unread_while_a_sync_fails_is_told_so() -> None:
    house = fsync_house()
    letters = Letters(house, sync=True)
    outcomes: list[Any] = []
    house.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    write(house, 1, outcomes.append)
    house.runtime.turn()
    letters.put(2)
    house.runtime.run()
    assert letters.opened == [1]
    assert [outcome.code for outcome in (*outcomes, *letters.outcomes)] == ["read_only", "read_only"]
    assert house.datas("t") == [0]


def test_letters_that_are_opened_count_among_those_for_whom_a_sync_waits() -> None:
    house = fsync_house(QUICK_LEAST)
    letters = Letters(house, sync=True)
    for number in range(100, 108):
        letters.put(number)
    house.runtime.run()
    syncs = house.broker.committer.syncs_total

    def come(*numbers: int) -> None:
        """One of them in each turn."""
        first, *rest = numbers
        letters.put(first)
        if rest:
            house.runtime.call_soon(lambda: come(*rest))

    # The last write served eight: so the next one waits for a turn that brings nobody.
    come(200, 201, 202)
    house.runtime.run()
    assert letters.opened == [8, 3]
    assert house.broker.committer.syncs_total == syncs + 1


def test_letters_are_opened_before_the_log_is_closed() -> None:
    house = House()
    house.append("t", 0)
    letters = Letters(house)
    letters.put(1)
    house.broker.committer.flush()
    assert [outcome.first_seq for outcome in letters.outcomes] == [2]
    house.runtime.run()
    assert letters.opened == [1]


def test_a_record_that_came_while_a_sync_was_stuck_is_no_older_than_its_request() -> None:
    house = fsync_house()
    outcomes: list[Any] = []
    write(house, 1, outcomes.append)
    house.runtime.turn()
    assert house.runtime.waiting_aside == 1, "the sync is under way"
    write(house, 2, outcomes.append)
    house.runtime.clock.advance(3000)
    came_at = house.runtime.now_ms()
    write(house, 3, outcomes.append)
    house.runtime.run()
    times = [record["$ts"] for record in house.read("t")]
    assert times[-1] >= came_at
    assert times == sorted(times)
