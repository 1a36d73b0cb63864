"""A log file whose header was torn by a power cut: nobody can tell whose boot wrote it, so seqs are skipped all the same."""

from tests.broker.house import House
from topics.storage.wal import file_path


def test_a_power_cut_that_tears_the_header_of_the_newest_file_hands_out_no_seq_twice() -> None:
    house = House()
    house.configure("log")
    house.append("log", 1)
    house.checkpoint()
    newest = file_path(0, house.broker.committer.lanes[0].shard.file_number)
    house.append("log", 2)
    assert house.broker.topic("log").partitions[0].head_seq == 2
    disk = house.disk.after_power_cut(survive="all")
    file = disk.open(newest)
    file.write_at(10, [b"torn"])
    file.close()
    again = House(disk, house.settings)
    assert again.recovered.torn
    assert again.append("log", 3).first_seq > 2
