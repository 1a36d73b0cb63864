"""A reservation assigns seqs once, counts them as pending, and gives them back when its write fails."""

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Partition, Totals
from topics.model.records.page import Page


def new_partition() -> tuple[Partition, Totals]:
    totals = Totals()
    return Partition(1, 0, Cache(1 << 20), totals), totals


def pending(partition: Partition) -> tuple[int, int, int]:
    return partition.next_seq, partition.pending_records, partition.pending_bytes


def test_reservations_get_consecutive_seqs_and_count_as_pending() -> None:
    partition, totals = new_partition()
    first, second = partition.reserve(2, 20, 1000), partition.reserve(3, 30, 1001)
    assert (first.first_seq, first.last_seq, second.first_seq, second.last_seq) == (1, 2, 3, 5)
    assert pending(partition) == (6, 5, 50)
    assert totals.pending_bytes == 50


def test_released_seqs_are_assigned_again_and_are_not_pending() -> None:
    partition, totals = new_partition()
    first, second = partition.reserve(2, 20, 1000), partition.reserve(3, 30, 1001)
    second.release()
    first.release()
    assert pending(partition) == (1, 0, 0)
    assert totals.pending_bytes == 0
    assert partition.reserve(1, 10, 1002).first_seq == 1


def test_settled_seqs_are_not_pending_and_not_assigned_again() -> None:
    partition, totals = new_partition()
    reservation = partition.reserve(2, 20, 1000)
    reservation.settle()
    assert pending(partition) == (3, 0, 0)
    assert totals.pending_bytes == 0
    assert partition.reserve(1, 10, 1000).first_seq == 3


def test_extended_reservation_takes_the_time_of_its_last_record() -> None:
    partition, _ = new_partition()
    reservation = partition.reserve(1, 10, 1000)
    partition.extend_reservation(reservation, 2, 20, 1005)
    assert (reservation.count, reservation.size, reservation.ts, reservation.last_seq) == (3, 30, 1005, 3)
    assert pending(partition) == (4, 3, 30)


def test_time_of_a_reservation_never_goes_back() -> None:
    partition, _ = new_partition()
    partition.reserve(1, 10, 1000)
    assert partition.reserve(1, 10, 900).ts == 1000


def test_applying_an_earlier_write_does_not_set_the_time_of_a_pending_reservation_back() -> None:
    partition, _ = new_partition()
    partition.reserve(1, 10, 1000)
    later = partition.reserve(1, 10, 2000)
    partition.apply_append(Page(1, 1, 1000, b"1", None, None, None, 10))
    assert partition.reserve(1, 10, 1500).ts == later.ts == 2000


def test_gap_takes_seqs_but_no_room() -> None:
    partition, totals = new_partition()
    gap = partition.reserve_gap(10)
    assert pending(partition) == (11, 0, 0)
    assert totals.pending_bytes == 0
    gap.release()
    assert pending(partition) == (1, 0, 0)


def test_unsynced_pages_are_shown_until_the_reservation_is_settled_or_released() -> None:
    partition, _ = new_partition()
    for end in ("settle", "release"):
        reservation = partition.reserve(1, 10, 1000)
        page = Page(reservation.first_seq, 1, reservation.ts, b"1", None, None, None, 10)
        reservation.show_unsynced([page])
        assert partition.unsynced == [page]
        getattr(reservation, end)()
        assert partition.unsynced == []
