"""A history accepts what the guarantees allow, and raises for the first frame that violates one."""

from typing import Any

import pytest

from topics.testing.history import Broken, History, Truth


class Reader:
    """A reader of topic `t` from its start; the topic has 10 records."""

    def __init__(self, own_node: int | None = None) -> None:
        self.truth = Truth("t", 1)
        self.truth.head = 10
        self.history = History(own_node)
        self.history.begin(self.truth, 0)

    def frame(self, event: str, **body: Any) -> None:
        self.history.receive(event, {"topic": "t", **body}, {1: self.truth})

    def records(self, *seqs: int, from_seq: int | None = None, to_seq: int | None = None) -> None:
        records = [{"$seq": seq, "data": self.truth.data(seq)} for seq in seqs]
        start = self.history.cursors["t"] if from_seq is None else from_seq
        end = seqs[-1] if to_seq is None else to_seq
        self.frame("record", from_seq=start, to_seq=end, head_seq=10, records=records)

    def gap(self, gap_from: int, gap_to: int, reason: str = "cap") -> None:
        self.frame("tombstone", gap_from=gap_from, gap_to=gap_to, reason=reason)


def test_reader_that_gets_everything_breaks_no_guarantee() -> None:
    reader = Reader()
    reader.truth.lost_below = 4
    reader.gap(1, 3)
    reader.records(4, 5)
    reader.truth.deleted_below = 8
    reader.records(8, 9, 10)
    reader.frame("caught-up", head_seq=10)
    reader.truth.gone = True
    reader.frame("topic-deleted")
    history = reader.history
    assert (history.frames, history.records, history.tombstones, history.cursors) == (5, 5, 1, {"t": 10})


def test_records_of_the_readers_own_node_are_skipped_and_not_delivered() -> None:
    reader = Reader(own_node=0)
    reader.records(1, 2, 4, to_seq=4)
    with pytest.raises(Broken, match="own"):
        reader.records(5, 6)


def test_record_without_its_data_is_reported() -> None:
    reader = Reader()
    body = {"from_seq": 0, "to_seq": 1, "head_seq": 10, "records": [{"$seq": 1, "data": "t 1 2"}]}
    with pytest.raises(Broken, match="holds"):
        reader.frame("record", **body)


@pytest.mark.parametrize("seqs", [(2,), (1, 3), (1, 2, 2), (2, 1)])
def test_missing_repeated_and_disordered_records_are_reported(seqs: tuple[int, ...]) -> None:
    with pytest.raises(Broken):
        Reader().records(*seqs)


def test_frame_that_goes_back_is_reported() -> None:
    reader = Reader()
    reader.records(1, 2)
    with pytest.raises(Broken, match="goes back from 2"):
        reader.records(3, from_seq=1)


def test_tombstone_over_a_record_that_can_be_read_is_reported() -> None:
    reader = Reader()
    reader.truth.lost_below = 4
    with pytest.raises(Broken, match="4 is missing"):
        reader.gap(1, 4)


def test_tombstone_that_does_not_begin_at_the_cursor_is_reported() -> None:
    reader = Reader()
    reader.truth.lost_below = 4
    with pytest.raises(Broken, match="does not begin at 0"):
        reader.gap(2, 3)


def test_caught_up_before_the_head_is_reported() -> None:
    reader = Reader()
    reader.records(1, 2)
    with pytest.raises(Broken, match="caught up"):
        reader.frame("caught-up", head_seq=10)


def test_deletion_of_a_topic_that_exists_and_frames_behind_a_deletion_are_reported() -> None:
    reader = Reader()
    with pytest.raises(Broken, match="but exists"):
        reader.frame("topic-deleted")
    reader.truth.gone = True
    reader.frame("topic-deleted")
    with pytest.raises(Broken, match="has ended"):
        reader.records(1)


def test_reader_continues_with_the_topic_that_was_created_again() -> None:
    reader = Reader()
    with pytest.raises(Broken, match="is the same topic"):
        reader.gap(1, 0, "recreated")
    reader.truth.gone = True
    again = Truth("t", 2)
    again.head = 1
    reader.gap(1, 0, "recreated")
    body = {"topic": "t", "from_seq": 0, "to_seq": 1, "head_seq": 1, "records": [{"$seq": 1, "data": "t 2 1"}]}
    reader.history.receive("record", body, {1: reader.truth, 2: again})
    assert reader.history.instances["t"] is again
