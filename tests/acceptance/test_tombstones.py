"""Involuntary loss is reported with its exact range; deletes are not."""

import pytest

from tests.acceptance.topic import TopicApi, seqs_of, wait_until_past


def test_cursor_below_the_evict_floor_gets_the_exact_range(topic: TopicApi) -> None:
    topic.configure(cap_records=4)
    topic.append(*range(4))
    topic.append(*range(4))
    topic.append(*range(2))
    body = topic.diff(1)
    assert body["tombstone"] == {
        "gap_from": 2,
        "gap_to": 6,
        "reason": "cap",
        "missed_estimate": 5,
        "earliest_seq": 7,
        "head_seq": 10,
    }
    assert seqs_of(body) == [7, 8, 9, 10]
    assert (body["next_from_seq"], body["earliest_seq"], body["caught_up"]) == (10, 7, True)


def test_cursor_exactly_at_the_floor_gets_no_tombstone(topic: TopicApi) -> None:
    topic.configure(cap_records=2)
    for n in range(5):
        topic.append(n)
    assert topic.diff(2)["tombstone"]["gap_from"] == 3
    assert topic.diff(3)["tombstone"] is None
    assert topic.seqs(3) == [4, 5]
    assert topic.diff(4)["tombstone"] is None
    assert topic.diff(5)["tombstone"] is None


def test_stale_cursor_gets_the_tombstone_every_time_and_later_pages_do_not(topic: TopicApi) -> None:
    topic.configure(cap_records=4)
    for n in range(10):
        topic.append(n)
    first, again = topic.diff(0, limit=2), topic.diff(0, limit=2)
    assert first["tombstone"] == again["tombstone"]
    assert seqs_of(first) == [7, 8]
    second = topic.diff(first["next_from_seq"], limit=2)
    assert second["tombstone"] is None
    assert seqs_of(second) == [9, 10]


def test_expiry_is_evaluated_at_read(topic: TopicApi) -> None:
    topic.configure(ttl_ms=40)
    topic.append(1, 2, 3)
    ts = topic.diff()["records"][-1]["$ts"]
    wait_until_past(ts + 40)
    body = topic.diff()
    assert (body["records"], body["next_from_seq"], body["head_seq"], body["caught_up"]) == ([], 3, 3, True)
    assert (body["earliest_seq"], body["lag"]) == (4, 0)
    tombstone = body["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["reason"]) == (1, 3, "ttl")
    assert topic.diff(3)["tombstone"] is None
    state = topic.state()
    assert (state["count"], state["bytes"], state["earliest_seq"], state["head_seq"]) == (0, 0, 4, 3)


@pytest.mark.parametrize("look", ["state", "list"])
def test_expiry_needs_no_earlier_read(topic: TopicApi, look: str) -> None:
    topic.configure(ttl_ms=40)
    topic.append(1)
    wait_until_past(topic.state()["last_write_ts"] + 40)
    if look == "state":
        assert topic.state()["count"] == 0
    else:
        (entry,) = topic.api.get(f"/v0/topics?prefix={topic.name}").json["topics"]
        assert (entry["count"], entry["earliest_seq"]) == (0, 2)


def test_only_the_expired_part_is_lost(topic: TopicApi) -> None:
    topic.configure(ttl_ms=300)
    topic.append("old", "old")
    old_ts = topic.state()["last_write_ts"]
    wait_until_past(old_ts + 200)
    topic.append("new")
    wait_until_past(old_ts + 300)
    body = topic.diff()
    if body["caught_up"] and not body["records"]:
        pytest.skip("the machine stood still for a tenth of a second")
    assert seqs_of(body) == [3]
    assert (body["tombstone"]["gap_from"], body["tombstone"]["gap_to"]) == (1, 2)
    assert body["tombstone"]["reason"] == "ttl"


def test_cap_and_ttl_together_are_mixed(topic: TopicApi) -> None:
    topic.configure(cap_records=2, ttl_ms=60)
    topic.append(1, 2)
    topic.append(3)
    assert topic.diff()["tombstone"]["reason"] == "cap"
    wait_until_past(topic.state()["last_write_ts"] + 60)
    tombstone = topic.diff()["tombstone"]
    assert (tombstone["reason"], tombstone["gap_from"], tombstone["gap_to"]) == ("mixed", 1, 3)


def test_deletes_are_silent(topic: TopicApi) -> None:
    topic.append_records(*[{"data": n, "tag": "odd" if n % 2 else "even"} for n in range(1, 11)])
    topic.remove(before_seq=4)
    topic.remove(match="odd")
    body = topic.diff()
    assert body["tombstone"] is None
    assert (seqs_of(body), body["earliest_seq"]) == ([4, 6, 8, 10], 4)
    topic.remove(before_seq=11)
    body = topic.diff()
    assert (body["tombstone"], body["records"], body["next_from_seq"], body["caught_up"]) == (None, [], 10, True)
    assert body["earliest_seq"] == 11


def test_records_deleted_first_are_not_lost_to_the_cap(topic: TopicApi) -> None:
    topic.configure(cap_records=3)
    topic.append(1, 2, 3)
    topic.remove(before_seq=4)
    topic.append(4, 5, 6)
    body = topic.diff()
    assert body["tombstone"] is None
    assert seqs_of(body) == [4, 5, 6]


def test_a_cap_counts_live_records_only(topic: TopicApi) -> None:
    topic.configure(cap_records=4)
    topic.append_records(*[{"data": n, "tag": "x" if n in (2, 3) else "y"} for n in range(1, 5)])
    topic.remove(match="x")
    topic.append(5, 6)
    assert (topic.seqs(), topic.diff()["tombstone"]) == ([1, 4, 5, 6], None)
    topic.append(7)
    body = topic.diff()
    assert seqs_of(body) == [4, 5, 6, 7]
    assert (body["tombstone"]["gap_from"], body["tombstone"]["reason"]) == (1, "cap")
    assert body["earliest_seq"] == 4


def test_a_deleted_gap_above_the_floor_is_silent_below_it_is_not(topic: TopicApi) -> None:
    topic.configure(cap_records=6)
    topic.append(*range(6))
    topic.append(*range(2))  # evicts 1 and 2
    topic.remove(before_seq=6)  # deletes 3, 4 and 5
    for cursor in (2, 3, 4, 5):
        body = topic.diff(cursor)
        assert (body["tombstone"], seqs_of(body)) == (None, [6, 7, 8])
    for cursor in (0, 1):
        tombstone = topic.diff(cursor)["tombstone"]
        assert (tombstone["gap_from"], tombstone["reason"]) == (cursor + 1, "cap")


def test_tightened_caps_apply_at_once_and_relaxing_brings_nothing_back(topic: TopicApi) -> None:
    topic.append(*range(10))
    topic.configure(cap_records=4)
    state = topic.state()
    assert (state["count"], state["earliest_seq"]) == (4, 7)
    topic.configure(cap_records=0)
    body = topic.diff()
    assert (seqs_of(body), body["tombstone"]["gap_to"]) == ([7, 8, 9, 10], 6)
    topic.configure(cap_bytes=topic.state()["bytes"] // 2)
    assert topic.state()["earliest_seq"] == 9
    topic.configure(cap_bytes=0)
    assert topic.seqs(8) == [9, 10]


def test_a_tightened_ttl_applies_at_once_and_relaxing_brings_nothing_back(topic: TopicApi) -> None:
    topic.append(1, 2)
    wait_until_past(topic.state()["last_write_ts"] + 2)
    topic.configure(ttl_ms=1)
    assert topic.state()["count"] == 0
    topic.configure(ttl_ms=0)
    body = topic.diff()
    assert (body["records"], body["tombstone"]["reason"]) == ([], "ttl")
    assert topic.append(3)["seqs"] == [3]
    assert topic.seqs(2) == [3]


def test_a_topic_that_rejects_drops_nothing_when_its_cap_is_tightened(topic: TopicApi) -> None:
    topic.configure(discard="reject", cap_records=5)
    topic.append(*range(5))
    topic.configure(cap_records=2)
    assert (topic.seqs(), topic.diff()["tombstone"]) == ([1, 2, 3, 4, 5], None)
    assert topic.api.post(topic.path, {"records": [{"data": 1}]}).code == "topic_full"
    topic.remove(before_seq=5)
    assert topic.append("fits")["seqs"] == [6]


def test_the_first_live_seq_never_goes_back(topic: TopicApi) -> None:
    topic.configure(cap_records=5)
    earliest = 0
    for turn in range(30):
        topic.append_records(*[{"data": n, "tag": f"t{n}"} for n in range(turn % 4 + 1)])
        if turn % 5 == 2:
            topic.remove(match="t0")
        if turn % 7 == 3:
            topic.configure(cap_records=turn % 3 + 4)
        now = topic.state()["earliest_seq"]
        assert now >= earliest
        earliest = now


def test_cursor_from_an_earlier_instance_gets_a_recreated_tombstone(topic: TopicApi) -> None:
    topic.append(*range(10))
    topic.drop()
    topic.append("new", "newer")
    body = topic.diff(10)
    assert body["tombstone"]["reason"] == "recreated"
    # The reader has missed nothing of the new topic: a range without a record.
    lost = body["tombstone"]
    assert (lost["gap_from"], lost["gap_to"], lost["missed_estimate"]) == (0, 0, 0)
    assert (seqs_of(body), body["next_from_seq"], body["caught_up"]) == ([1, 2], 2, True)
    assert topic.diff(2)["tombstone"] is None
    assert topic.diff(3)["tombstone"]["reason"] == "recreated"


def test_a_recreated_empty_topic_brings_the_cursor_back_into_range(topic: TopicApi) -> None:
    topic.append(1)
    topic.drop()
    topic.configure()
    body = topic.diff(1)
    assert (body["tombstone"]["reason"], body["next_from_seq"], body["caught_up"]) == ("recreated", 0, True)


def test_reading_an_empty_topic_behind_its_end_reports_no_negative_loss(topic: TopicApi) -> None:
    topic.configure()
    lost = topic.diff(5)["tombstone"]
    assert (lost["reason"], lost["gap_from"], lost["gap_to"], lost["missed_estimate"]) == ("recreated", 0, 0, 0)


def test_cursor_from_an_earlier_instance_gets_the_losses_of_the_new_one(topic: TopicApi) -> None:
    topic.append(*range(10))
    topic.drop()
    topic.configure(cap_records=2)
    for value in range(5):
        topic.append(value)
    body = topic.diff(10)
    lost = body["tombstone"]
    assert (lost["reason"], lost["gap_from"], lost["gap_to"], lost["missed_estimate"]) == ("recreated", 1, 3, 3)
    assert seqs_of(body) == [4, 5]


def test_an_old_epoch_tells_even_when_the_cursor_is_in_range(topic: TopicApi) -> None:
    topic.append(1)
    epoch = topic.diff()["epoch"]
    assert topic.diff(1, epoch=epoch)["tombstone"] is None
    topic.drop()
    topic.append("new", "newer")
    assert topic.diff(1)["tombstone"] is None
    body = topic.diff(1, epoch=epoch)
    assert (body["tombstone"]["reason"], seqs_of(body)) == ("recreated", [1, 2])
    assert topic.diff(1, epoch=body["epoch"])["tombstone"] is None


@pytest.mark.parametrize("cursor", [2**53, 2**63, 2**64 - 1])
def test_the_largest_cursors_are_answered(topic: TopicApi, cursor: int) -> None:
    topic.append(1)
    body = topic.diff(cursor)
    assert (body["tombstone"]["reason"], seqs_of(body)) == ("recreated", [1])
    assert all([0 <= value < 2**64 for value in body["tombstone"].values() if isinstance(value, int)])


def test_a_topic_within_its_bounds_tells_of_no_loss(topic: TopicApi) -> None:
    topic.configure(cap_records=100, ttl_ms=60_000)
    topic.append(*range(50))
    assert topic.diff()["tombstone"] is None
