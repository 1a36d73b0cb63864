"""Server-sent events are parsed as a browser parses them, wherever the bytes are cut."""

import pytest

from topics.testing.events import Event, EventParser

STREAM = (
    b": hello\n"
    b"retry: 250\n\n"
    b'id: 1-7\nevent: record\ndata: {"a":\ndata: "\xc3\xb6"}\n\n'
    b"data:  two spaces\n\n"
    b"id: ignored without data\nevent: record\n\n"
    b"event: caught-up\ndata: {}\n\n"
)
EVENTS = [
    Event("", "hello", "", ""),
    Event("record", '{"a":\n"ö"}', "1-7", "1-7"),
    Event("message", " two spaces", "", "1-7"),
    Event("caught-up", "{}", "", "ignored without data"),
]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_however_lines_end_and_wherever_they_are_cut(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    for cut in range(len(stream) + 1):
        parser = EventParser()
        # A lone CR at the end may be half of a CRLF: a comment shows that it was not.
        found = [event for piece in (stream[:cut], stream[cut:], b":\n") for event in parser.feed(piece)]
        assert found[:-1] == EVENTS, cut
        assert parser.retries == [250]


def test_event_decodes_its_data() -> None:
    assert EVENTS[1].data == {"a": "ö"}


def test_unfinished_event_is_not_delivered() -> None:
    parser = EventParser()
    assert list(parser.feed(b"data: 1\n")) == []
    assert [event.text for event in parser.feed(b"\n")] == ["1"]
