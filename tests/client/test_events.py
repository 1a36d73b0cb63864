"""The event stream is understood in whatever pieces it comes, and retries wait as long as they should."""

import pytest

from topics.client.events import Event, EventParser, WatchState, starts
from topics.client.retry import RetryPolicy
from topics.client.values import WatchedRecord

STREAM = (
    b"retry: 2000\n\n"
    b": hb 1\n\n"
    b'id: a\nevent: record\ndata: {"topic":"t",\ndata: "x":1}\n\n'
    b"id: b\r\nevent: caught-up\r\ndata: {}\r\n\r\n"
    b"data: plain\n\n"
)
EVENTS = [
    Event("record", '{"topic":"t",\n"x":1}', "a"),
    Event("caught-up", "{}", "b"),
    Event("message", "plain", "b"),
]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_events_are_the_same_however_the_stream_is_cut(cut: int) -> None:
    parser = EventParser()
    assert [*parser.feed(STREAM[:cut]), *parser.feed(STREAM[cut:])] == EVENTS


def test_records_that_a_stream_repeats_are_dropped() -> None:
    state = WatchState({"t": {"from_seq": 2}}, {})
    frame = '{"topic":"t","records":[{"$seq":2,"$ts":1,"data":1},{"$seq":3,"$ts":1,"data":2}],"from_seq":1,"to_seq":3}'
    watched = state.take(Event("record", frame, "id"))
    assert [each.record.seq for each in watched if isinstance(each, WatchedRecord)] == [3]
    assert state.topics == {"t": {"from_seq": 3}}
    assert state.take(Event("record", frame, "id")) == []


def test_starts_are_names_or_names_with_positions() -> None:
    assert starts("a", tail=False) == {"a": {}}
    assert starts(["a", "b"], tail=True) == {"a": {"tail": True}, "b": {"tail": True}}
    assert starts({"a": 5, "b": {"tail": True}}, tail=False) == {"a": {"from_seq": 5}, "b": {"tail": True}}


def test_retry_waits_double_up_to_a_bound_and_honour_the_server() -> None:
    policy = RetryPolicy(first_wait_s=0.1, longest_wait_s=1.0)
    assert [policy.wait_s(attempt, None, chance=1.0) for attempt in (1, 2, 3, 4, 5, 9)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.0,
        1.0,
    ]
    assert policy.wait_s(1, None, chance=0.0) == 0.05
    assert policy.wait_s(1, 3.0, chance=1.0) == 3.0
