"""A read continues where the one before ended, and reports what is lost."""

import msgspec

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.topics.read import ReadRequest, View, read


def request(from_seq: int, limit: int = 2, **more: int) -> ReadRequest:
    return ReadRequest("t", from_seq, limit, 1 << 20, View(), **more)  # type: ignore[arg-type]


def test_pages_follow_each_other_until_the_head() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *range(5))
    found, from_seq = [], 0
    for _ in range(3):
        answer = read(under_test.broker, request(from_seq))
        found += [record["data"] for record in msgspec.json.decode(b"[%b]" % bytes(answer.read.records))]
        from_seq = answer.read.next_from_seq
    assert (found, from_seq) == ([0, 1, 2, 3, 4], 5)
    assert read(under_test.broker, request(5)).read.count == 0


def test_evicted_records_are_reported_once() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=2)
    under_test.append("t", *range(5))
    answer = read(under_test.broker, request(0))
    assert answer.read.tombstone is not None
    assert (answer.read.tombstone.gap_from, answer.read.tombstone.gap_to) == (1, 3)


def test_a_reader_of_an_earlier_instance_begins_again() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *range(5))
    epoch = under_test.broker.topic("t").epoch
    under_test.ask(under_test.broker.delete_topic, "t", if_empty=False)
    under_test.append("t", "new")
    answer = read(under_test.broker, request(5, epoch=epoch))
    assert answer.read.tombstone is not None
