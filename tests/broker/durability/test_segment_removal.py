"""Files of a dropped segment are removed when nothing needs them any more."""

from tests.broker.broker_under_test import BrokerUnderTest


def segment_files(under_test: BrokerUnderTest) -> list[str]:
    return [path for path in under_test.disk.snapshot_tree() if path.endswith(".arrow")]


def test_files_of_a_deleted_topic_are_removed_after_two_snapshots_without_them() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", *range(10))
    topic = under_test.broker.topic("t")
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.runtime.run()
    assert len(segment_files(under_test)) == 1
    under_test.checkpoint()
    under_test.ask(under_test.broker.delete_topic, "t", if_empty=False)
    under_test.append("other", 1)
    assert len(segment_files(under_test)) == 1, "a snapshot names the segment"
    for number in range(2):
        under_test.append("other", number)
        under_test.checkpoint()
    assert segment_files(under_test) == []
