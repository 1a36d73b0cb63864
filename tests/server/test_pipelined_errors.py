"""A malformed pipelined request gets its own 400; requests of other clients are unaffected."""

import asyncio
from typing import cast

import pytest

from tests.server.house import House, in_house, raw
from tests.server.http.wire import Sink, until
from topics.server.http.connection.connection import Connection
from topics.server.http.limits import HttpLimits
from topics.server.http.messages.assembler import Assembler, HeldBytes
from topics.server.http.messages.refusal import Refused


def test_parse_error_is_answered_400_while_another_exception_is_handled() -> None:
    assembler = Assembler(HttpLimits(), HeldBytes(), None)
    try:
        raise ValueError("another exception")
    except ValueError:
        with pytest.raises(Refused):
            assembler.feed(b"GET / HTTP/1.1\r\n\r\n")


@in_house()
async def test_malformed_pipelined_request_does_not_affect_other_responses(house: House) -> None:
    await house.ask("PUT", "/v0/topics/t", {"durability": "fsync"})
    await house.ask("PUT", "/v0/topics/u", {"durability": "fsync"})
    sinks = []
    # All in one turn. The second waits for the first, finds its topic gone, and has something without a Host behind it.
    for received in (
        [raw("DELETE", "/v0/topics/t")],
        [raw("POST", "/v0/topics/t/delete", {"before_seq": 1}), b"GET / HTTP/1.1\r\n\r\n"],
        [raw("POST", "/v0/topics/u", {"records": [{"data": 1}]})],
    ):
        connection, sink = Connection(house.listener), Sink()
        connection.connection_made(cast(asyncio.Transport, sink))
        for data in received:
            connection.data_received(data)
        sinks.append(sink)
    await until(lambda: all([b"HTTP/1.1" in sink.written for sink in sinks]))
    assert sinks[0].written.startswith(b"HTTP/1.1 200")
    assert sinks[1].written.startswith(b"HTTP/1.1 404")
    assert b"HTTP/1.1 400" in sinks[1].written
    assert sinks[2].written.startswith(b"HTTP/1.1 200")
    answer = await house.ask("POST", "/v0/topics/u", {"records": [{"data": 2}]})
    assert answer.json["first_seq"] == 2
