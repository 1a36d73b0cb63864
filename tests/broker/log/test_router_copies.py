"""Recovery makes the copies of a router again, with the same seqs, times and texts."""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.routers.routers import WantedRouter
from topics.model.records.match import TagMatch


def test_copies_are_the_same_after_a_kill_although_their_source_was_deleted() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("source")
    under_test.ask(under_test.broker.routers.put, WantedRouter("router", "source", "copies"))
    under_test.append("source", *[{"data": number, "tag": f"t{number}"} for number in range(5)])
    under_test.wait(100)
    copies = under_test.read("copies")
    assert [record["data"] for record in copies] == [0, 1, 2, 3, 4]
    under_test.ask(under_test.broker.delete_records, "source", None, TagMatch("t", True), 0)
    again = under_test.after_kill()
    assert again.read("source") == []
    assert again.read("copies") == copies
