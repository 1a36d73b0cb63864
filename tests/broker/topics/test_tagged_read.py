"""Reads by tag skip the records that do not match."""

import msgspec

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.topics.read import ReadRequest, View
from topics.broker.topics.tagged_read import read_tagged
from topics.model.records.match import TagMatch
from topics.model.steps import finish


def found(under_test: BrokerUnderTest, from_seq: int, limit: int, match: TagMatch) -> tuple[list[int], int]:
    request = ReadRequest("t", from_seq, limit, 1 << 20, View(tags=True))
    read = finish(read_tagged(under_test.broker, request, match)).read
    return [record["data"] for record in msgspec.json.decode(b"[%b]" % bytes(read.records))], read.next_from_seq


def test_matching_records_are_found_page_by_page() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *[{"data": n, "tag": "even" if n % 2 == 0 else "odd"} for n in range(10)])
    first, from_seq = found(under_test, 0, 3, TagMatch("even", False))
    rest, end = found(under_test, from_seq, 3, TagMatch("even", False))
    assert first + rest == [0, 2, 4, 6, 8]
    assert end == 10
    assert found(under_test, 0, 20, TagMatch("", True))[0] == [*range(10)]
    assert found(under_test, 0, 20, TagMatch("none", False)) == ([], 10)
