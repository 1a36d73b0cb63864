"""What is gone by a cap or its age stays gone after a crash, also if it could not be written down at once."""

import errno

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.records.match import TagMatch


class Flaky:
    """Fails writes to the log: the n-th from now on for each n in `failing`."""

    def __init__(self, under_test: BrokerUnderTest, *failing: int) -> None:
        self.writes = 0
        self.failing = failing
        under_test.disk.fault = self

    def __call__(self, _step: int, op: str, path: str) -> int | None:
        if op != "write_at" or not path.startswith("wal"):
            return None
        self.writes += 1
        return errno.EIO if self.writes in self.failing else None


def floor(under_test: BrokerUnderTest, name: str = "t") -> int:
    return under_test.broker.topic(name).partitions[0].evict_floor


def write(under_test: BrokerUnderTest, count: int, name: str = "t") -> None:
    for number in range(count):
        under_test.append(name, number)


def test_a_cap_s_floor_does_not_go_back_when_a_delete_was_written_before_its_note() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=5)
    write(under_test, 5)
    # The record, its note; the delete, and the note again if it comes behind.
    Flaky(under_test, 2, 4)
    under_test.append("t", {"data": 5, "tag": "five"})
    assert floor(under_test) == 2
    under_test.ask(under_test.broker.delete_records, "t", None, TagMatch("five", prefix=False), 0)
    assert floor(under_test.after_kill()) == 2
    assert under_test.after_kill().datas("t") == under_test.datas("t") == [1, 2, 3, 4]


def test_a_cap_s_floor_does_not_go_back_when_a_larger_cap_was_written_before_its_note() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=5)
    write(under_test, 5)
    Flaky(under_test, 2, 4)
    under_test.append("t", 5)
    under_test.configure("t", cap_records=50)
    assert under_test.after_kill().datas("t") == under_test.datas("t") == [1, 2, 3, 4, 5]


def test_unwritten_note_is_retried_without_another_write() -> None:
    """A start with a clock that was set back would find nothing expired."""
    under_test = BrokerUnderTest()
    under_test.configure("t", ttl_ms=1000)
    write(under_test, 3)
    under_test.wait(900)
    Flaky(under_test, 1, 2)
    under_test.wait(20_000)
    assert floor(under_test) == 4
    assert floor(under_test.after_kill()) == 4
