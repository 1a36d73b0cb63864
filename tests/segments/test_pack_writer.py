"""A pack holds the pages of all its entries."""

from topics.model.records.page import make_page
from topics.segments.pack_writer import NewEntry, write_entries
from topics.storage.segments.pack import PackFile
from topics.testing.disk.fake_disk import FakeDisk


def test_entries_are_written_in_order_and_read_back() -> None:
    disk = FakeDisk()
    disk.make_directory("segments")
    disk.sync_directory("")
    pages = [make_page(1, 2, 5, b"1\x002"), make_page(7, 1, 9, b"7", None, None, b'"t"')]
    written = write_entries(disk, 3, [NewEntry(number, 0, [], [page]) for number, page in enumerate(pages, 1)])
    infos = [info for _, info in written.entries]
    assert [(info.pack, info.first_seq, info.last_seq) for info in infos] == [(3, 1, 2), (3, 7, 7)]
    assert written.damaged == []
    pack = PackFile(disk.after_power_cut("none"), 3)
    found = [pack.pages(number, 0, info) for number, info in enumerate(infos, 1)]
    assert [[page.data for page in each] for each in found] == [[b"1\x002"], [b"7"]]
