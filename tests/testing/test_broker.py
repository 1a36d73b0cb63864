"""The bench of a broker: what the broker refuses is raised, and what is acknowledged is there after a kill."""

import errno

import msgspec
import pytest

from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import USUAL
from topics.model.errors import NotFound, TopicsError
from topics.testing.broker import BrokerBench


def datas(bench: BrokerBench, name: str) -> list[object]:
    read = read_records(bench.broker.topic(name).partitions[0], 0, 100, 1 << 20, USUAL)
    return [record["data"] for record in msgspec.json.decode(b"[" + bytes(read.records) + b"]")]


def test_append_answers_the_last_seq_and_survives_a_kill() -> None:
    bench = BrokerBench()
    assert bench.append("t", b"1", b'"two"', tag="x") == 2
    assert datas(bench, "t") == [1, "two"]
    assert datas(bench.after_kill(), "t") == [1, "two"]


def test_submitted_append_has_no_outcome_before_the_runtime_runs() -> None:
    bench = BrokerBench()
    bench.configure("t")
    outcome = bench.submit("t", b'{"records":[{"data":1}]}')
    assert outcome == []
    bench.runtime.run()
    assert [each.last_seq for each in outcome] == [1]


def test_records_and_topics_are_deleted() -> None:
    bench = BrokerBench()
    bench.append("t", b"1", tag="x")
    bench.append("t", b"2", tag="y")
    bench.append("t", b"3", tag="y")
    bench.delete_records("t", tag="x")
    bench.delete_records("t", before_seq=3)
    assert datas(bench, "t") == [3]
    bench.delete_topic("t")
    with pytest.raises(NotFound, match='"t"'):
        bench.broker.topic("t")


def test_error_of_the_broker_is_raised() -> None:
    bench = BrokerBench()
    bench.configure("t", cap_records=1, discard="reject")
    bench.append("t", b"1")
    with pytest.raises(TopicsError, match="is full"):
        bench.append("t", b"2")


def test_error_that_the_broker_replies_is_raised() -> None:
    bench = BrokerBench()
    bench.configure("t")
    bench.disk.fault = lambda _step, op, _path: errno.ENOSPC if op == "write_at" else None
    with pytest.raises(TopicsError) as raised:
        bench.append("t", b"1")
    assert raised.value.code == "storage_full"
