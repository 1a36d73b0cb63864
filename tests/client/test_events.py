"""Events are the same in any pieces of the stream, and retries wait as long as they should."""

import pytest

from topics.client.errors import UndecodablePayload, WatchFailed
from topics.client.events import Event, EventParser, WatchState, starts
from topics.client.items import WatchedRecord
from topics.client.transport.retry import RetryPolicy
from topics.client.values import WatchStart
from topics.model.errors import Unavailable

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
    state = WatchState({"t": {"from_seq": 2}})
    frame = '{"topic":"t","records":[{"$seq":2,"$ts":1,"data":1},{"$seq":3,"$ts":1,"data":2}],"from_seq":1,"to_seq":3}'
    watched = state.take(Event("record", frame, "id"))
    assert [each.record.seq for each in watched if isinstance(each, WatchedRecord)] == [3]
    assert state.topics == {"t": {"from_seq": 3}}
    assert list(state.take(Event("record", frame, "id"))) == []


def test_partition_and_epoch_stay_when_a_cursor_moves() -> None:
    state = WatchState({"t": {"tail": True, "partition": 2}})
    state.began({"t": WatchStart(from_seq=7, head_seq=7, earliest_seq=1, epoch=5)})
    assert state.topics == {"t": {"from_seq": 7, "partition": 2, "epoch": 5}}
    frame = '{"topic":"t","records":[{"$seq":8,"$ts":1,"data":1}],"from_seq":7,"to_seq":8}'
    assert len(list(state.take(Event("record", frame, "id")))) == 1
    assert state.topics == {"t": {"from_seq": 8, "partition": 2, "epoch": 5}}


@pytest.mark.parametrize("status", [500, 404, 409])
def test_an_error_that_a_reconnect_cannot_mend_is_raised_with_its_topic(status: int) -> None:
    state = WatchState({"t": {}})
    with pytest.raises(WatchFailed, match="'t': segment is damaged") as failed:
        list(state.take(Event("error", f'{{"code":{status},"error":"segment is damaged","topic":"t"}}', None)))
    assert failed.value.detail == {"topic": "t", "status": status}


@pytest.mark.parametrize("status", [408, 503])
def test_an_error_that_passes_leads_to_a_reconnect(status: int) -> None:
    with pytest.raises(Unavailable):
        list(WatchState({"t": {}}).take(Event("error", f'{{"code":{status},"error":"later"}}', None)))


def test_a_request_for_patience_keeps_the_stream() -> None:
    assert list(WatchState({"t": {}}).take(Event("error", '{"code":429,"error":"slow down"}', None))) == []


def test_records_before_one_that_cannot_be_decoded_are_delivered_first() -> None:
    state = WatchState({"t": {}}, "error")
    frame = r'{"topic":"t","records":[{"$seq":1,"$ts":1,"data":1},{"$seq":2,"$ts":1,"data":"\ud800"}],"from_seq":0,"to_seq":2}'
    watched = state.take(Event("record", frame, "id"))
    first = next(watched)
    assert isinstance(first, WatchedRecord)
    assert first.record.seq == 1
    with pytest.raises(UndecodablePayload, match="record 2"):
        next(watched)
    assert state.topics == {"t": {"from_seq": 1}}


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
