"""A log file whose header was torn by a power cut: it is unknown which boot wrote it, so seqs are skipped."""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.storage.log.wal import file_path


def test_a_power_cut_that_tears_the_header_of_the_newest_file_hands_out_no_seq_twice() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("log")
    under_test.append("log", 1)
    under_test.checkpoint()
    newest = file_path(0, under_test.broker.committer.wal.file_number)
    under_test.append("log", 2)
    assert under_test.broker.topic("log").partitions[0].head_seq == 2
    disk = under_test.disk.after_power_cut(survive="all")
    file = disk.open(newest)
    file.write_at(10, [b"torn"])
    file.close()
    again = BrokerUnderTest(disk, under_test.settings)
    assert again.recovered.torn
    assert again.append("log", 3).first_seq > 2
