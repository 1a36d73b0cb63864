"""Bulk reads give hot and sealed records as one Arrow stream."""

from typing import Any

import pyarrow as pa

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.topics.bulk_read import BulkPage, bulk_read
from topics.broker.topics.read import ReadRequest, View
from topics.model.records.match import TagMatch


def page(under_test: BrokerUnderTest, from_seq: int = 0, match: TagMatch | None = None) -> list[dict[str, Any]]:
    outcomes: list[Any] = []
    request = ReadRequest("t", from_seq, 1000, 1 << 20, View(tags=True))
    bulk_read(under_test.broker, request, None, match, lambda found, error: outcomes.append(error or found))
    under_test.runtime.run()
    (outcome,) = outcomes
    assert isinstance(outcome, BulkPage), outcome
    with pa.ipc.open_stream(outcome.stream) as stream:
        rows: list[dict[str, Any]] = stream.read_all().to_pylist()
    assert len(rows) == outcome.records
    return rows


def test_sealed_and_hot_records_are_one_page_without_deleted_ones() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *[{"data": n, "tag": f"t{n}"} for n in range(4)])
    topic = under_test.broker.topic("t")
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.runtime.run()
    under_test.append("t", {"data": 4, "tag": "t4"})
    under_test.ask(under_test.broker.delete_records, "t", None, TagMatch("t2", False), 0)
    rows = page(under_test)
    while rows[-1]["seq"] < 5:
        rows += page(under_test, rows[-1]["seq"])
    assert [(row["seq"], row["data"]) for row in rows] == [(1, "0"), (2, "1"), (4, "3"), (5, "4")]


def test_only_matching_records() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *[{"data": n, "tag": f"t{n}"} for n in range(4)])
    assert [row["seq"] for row in page(under_test, match=TagMatch("t3", False))] == [4]
