"""Hot records that grow too large are sealed."""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.storage_settings import StorageSettings
from topics.segments.sealed_segments import SealedSegment

SMALL = StorageSettings(
    wal_file_bytes=64 << 10, segment_bytes=1000, hot_bytes=20_000, checkpoint_bytes=1 << 30, margin=1000, min_segment_bytes=100
)  # fmt: skip


def test_a_segment_that_has_grown_to_its_size_is_sealed_and_reads_the_same() -> None:
    under_test = BrokerUnderTest(settings=SMALL)
    for number in range(40):
        under_test.append("t", f"{number} {'x' * 50}")
    under_test.runtime.run()
    segments = under_test.broker.topic("t").partitions[0].segments
    assert any(isinstance(segment, SealedSegment) for segment in segments)
    assert under_test.datas("t") == under_test.after_kill().datas("t") == [f"{n} {'x' * 50}" for n in range(40)]
