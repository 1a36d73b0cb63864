"""Records in a pack read the same as before, also after deletes and a restart."""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.records.match import TagMatch
from topics.segments.packed_segments import PackedSegment


def test_packed_records_read_the_same_and_can_be_deleted() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *[{"data": number, "tag": f"t{number}"} for number in range(10)])
    partition = under_test.broker.topic("t").partitions[0]
    before = under_test.read("t")
    under_test.broker.sealer.packer.pack([partition])
    under_test.runtime.run()
    assert any(isinstance(segment, PackedSegment) for segment in partition.segments)
    assert under_test.read("t") == before
    under_test.ask(under_test.broker.delete_records, "t", None, TagMatch("t3", False), 0)
    left = [record for record in before if record["data"] != 3]
    assert under_test.read("t") == under_test.after_kill().read("t") == left
