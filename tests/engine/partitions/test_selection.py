"""A delete by tag writes the shorter of its two facts."""

from array import array

from topics.engine.partitions.selection import Selection, Share, both, fact_of, without
from topics.model.facts import Deleted, DeletedRuns
from topics.model.steps import finish


def selection(*chosen: tuple[int, str]) -> Selection:
    shares = [Share(first, bytes(len(flags)), bytes(map(int, flags)), flags.count("1"), 0) for first, flags in chosen]
    return Selection(1, 2, shares)


def numbers(text: bytes) -> list[int]:
    found = array("Q")
    found.frombytes(text)
    return list(found)


def test_seqs_of_all_shares_in_order() -> None:
    found = selection((10, "101"), (20, "011"))
    assert found.seqs() == [10, 12, 21, 22]
    assert found.count == 4


def test_long_runs_are_written_as_runs_and_joined_across_shares() -> None:
    fact = finish(fact_of(selection((10, "1111"), (14, "1110"))))
    assert isinstance(fact, DeletedRuns)
    assert (fact.topic_id, fact.partition, numbers(fact.runs)) == (1, 2, [10, 17])


def test_single_records_are_written_as_seqs() -> None:
    fact = finish(fact_of(selection((10, "101010"))))
    assert isinstance(fact, Deleted)
    assert numbers(fact.seqs) == [10, 12, 14]


def test_flags_are_combined_byte_by_byte() -> None:
    assert without(b"\1\1\0", b"\0\1\1") == b"\1\0\0"
    assert both(b"\1\0\0", b"\0\0\1") == b"\1\0\1"
