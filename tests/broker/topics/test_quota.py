"""Caps of a topic and the total of the server."""

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import Throttled, TopicFull
from topics.model.limits import Limits
from topics.model.records.page import RECORD_OVERHEAD


def test_a_topic_that_discards_old_records_takes_every_write() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=2)
    under_test.append("t", 1, 2, 3)
    assert under_test.datas("t") == [2, 3]


@pytest.mark.parametrize("cap", [{"cap_records": 2}, {"cap_bytes": 2 * (RECORD_OVERHEAD + 1)}])
def test_a_topic_that_rejects_takes_what_fits_and_no_more(cap: dict[str, int]) -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", discard="reject", **cap)
    under_test.append("t", 1, 2)
    with pytest.raises(TopicFull):
        under_test.append("t", 3)
    under_test.ask(under_test.broker.delete_records, "t", 2, None, 0)
    under_test.append("t", 4)
    assert under_test.datas("t") == [2, 4]


def test_no_write_exceeds_the_total_of_the_server() -> None:
    under_test = BrokerUnderTest(limits=Limits(max_total_bytes=2 * (RECORD_OVERHEAD + 1)))
    under_test.append("a", 1)
    under_test.append("b", 2)
    with pytest.raises(Throttled, match="all topics together"):
        under_test.append("c", 3)
