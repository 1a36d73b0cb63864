"""What is gone by a cap or its age stays gone after a crash, also if it could not be written down at once."""

import errno

import msgspec

from tests.broker.house import SMALL, House
from topics.broker.barrier import when_safe
from topics.broker.committer import Lane
from topics.model.errors import TopicsError
from topics.model.match import TagMatch


class Flaky:
    """Fails writes to the log as told: the n-th from now on for each n in `failing`."""

    def __init__(self, house: House, *failing: int) -> None:
        self.writes = 0
        self.failing = failing
        house.disk.fault = self

    def __call__(self, _step: int, op: str, path: str) -> int | None:
        if op != "write_at" or not path.startswith("wal"):
            return None
        self.writes += 1
        return errno.ENOSPC if self.writes in self.failing else None


def floor(house: House, name: str = "t") -> int:
    return house.broker.topic(name).partitions[0].evict_floor


def write(house: House, count: int, name: str = "t") -> None:
    for number in range(count):
        house.append(name, number)


def test_a_cap_s_floor_does_not_go_back_when_a_delete_was_written_before_its_note() -> None:
    house = House()
    house.configure("t", cap_records=5)
    write(house, 5)
    # The record, its note; the delete, and the note again if it comes behind.
    Flaky(house, 2, 4)
    house.append("t", {"data": 5, "tag": "five"})
    assert floor(house) == 2
    house.ask(house.broker.delete_records, "t", None, TagMatch("five", prefix=False), 0)
    assert floor(house.after_kill()) == 2
    assert house.after_kill().datas("t") == house.datas("t") == [1, 2, 3, 4]


def test_a_cap_s_floor_does_not_go_back_when_a_larger_cap_was_written_before_its_note() -> None:
    house = House()
    house.configure("t", cap_records=5)
    write(house, 5)
    Flaky(house, 2, 4)
    house.append("t", 5)
    house.configure("t", cap_records=50)
    assert house.after_kill().datas("t") == house.datas("t") == [1, 2, 3, 4, 5]


def test_a_note_that_could_not_be_written_is_tried_again_though_nobody_writes() -> None:
    """A start with a clock that was set back would find nothing expired."""
    house = House()
    house.configure("t", ttl_ms=1000)
    write(house, 3)
    house.wait(900)
    Flaky(house, 1, 2)
    house.wait(20_000)
    assert floor(house) == 4
    assert floor(house.after_kill()) == 4


def test_a_commit_in_another_shard_waits_for_notes_that_are_owed() -> None:
    house = House(settings=msgspec.structs.replace(SMALL, shards=2))
    house.configure("t", cap_records=5)
    write(house, 5)
    committer = house.broker.committer
    lane: Lane = committer.lane_of(house.broker.topic("t").id)
    house.wait(5000)
    flaky = Flaky(house, 2, 3)
    house.append("t", 5)
    committer.sync_all()
    house.runtime.run()
    outcomes: list[TopicsError | None] = []
    when_safe(committer, [lane], outcomes.append)
    house.runtime.run()
    assert isinstance(outcomes.pop(), TopicsError)
    when_safe(committer, [lane], outcomes.append)
    house.runtime.run()
    assert (outcomes, flaky.writes) == ([None], 4)
    assert floor(house.after_power_cut()) == 2
