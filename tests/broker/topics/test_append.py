"""An append is stored as a whole or not at all, and a repeated key writes nothing."""

import errno

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import TopicFull, Unavailable


def test_writes_of_one_turn_get_consecutive_seqs() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")
    outcomes = [under_test.append("t", "a"), under_test.append("t", "b", "c")]
    assert [(each.first_seq, each.count) for each in outcomes] == [(1, 1), (2, 2)]
    assert under_test.datas("t") == ["a", "b", "c"]


def test_a_repeated_key_gets_the_seqs_of_the_first_write() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", idempotency_window_ms=60_000)
    first = under_test.append("t", "a", idempotency_key="k")
    again = under_test.append("t", "other", idempotency_key="k")
    assert (again.first_seq, again.deduped) == (first.first_seq, True)
    assert under_test.after_kill().datas("t") == ["a"]


def test_a_failed_write_stores_nothing_and_its_seqs_are_assigned_again() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", "a")
    under_test.disk.fault = lambda _step, op, path: errno.EIO if op == "write_at" and path.endswith(".wal") else None
    with pytest.raises(Unavailable):
        under_test.append("t", "lost")
    under_test.disk.fault = None
    assert under_test.append("t", "b").first_seq == 2
    assert under_test.datas("t") == ["a", "b"]


def test_a_full_topic_refuses_a_write_as_a_whole() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=2, discard="reject")
    under_test.append("t", 1)
    with pytest.raises(TopicFull):
        under_test.append("t", 2, 3)
    assert under_test.datas("t") == [1]
