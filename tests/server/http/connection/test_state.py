"""The state table of a connection. (conftest.py checks every connection of the HTTP tests against it.)"""

import asyncio
from collections.abc import Callable

import pytest

from tests.server.http.wire import Server, Sink, get, post, serving, until
from topics.server.http.connection.connection import Connection
from topics.server.http.connection.state import CLOSED, HANDLING, IDLE, TRANSITIONS, Event, State


def test_every_state_has_a_row_and_every_state_but_the_first_is_reached() -> None:
    assert set(TRANSITIONS) == set(State)
    assert {after for row in TRANSITIONS.values() for after in row.values()} == set(State)


def test_every_state_ends_when_the_transport_is_lost_or_closed() -> None:
    for state, row in TRANSITIONS.items():
        if state is not CLOSED:
            assert row[Event.LOST] is CLOSED
            assert row[Event.CLOSE] is State.CLOSING
    assert TRANSITIONS[CLOSED] == {}, "nothing follows the end"


def test_fast_path_assigns_what_the_table_says() -> None:
    assert TRANSITIONS[IDLE][Event.REQUEST] is HANDLING
    assert TRANSITIONS[HANDLING][Event.RESPONSE] is IDLE


def test_event_that_a_state_does_not_allow_is_an_error() -> None:
    assert Event.RESPONSE not in TRANSITIONS[IDLE]
    assert Event.REQUEST not in TRANSITIONS[HANDLING], "one request at a time"
    assert Event.REQUEST not in TRANSITIONS[State.CLOSING]


@serving()
async def test_connection_passes_the_states_of_a_pipelined_conversation(server: Server) -> None:
    connection = Connection(server.listener)
    Sink.plugged_into(connection)
    assert connection.state is IDLE
    connection.data_received(get("/later")[:10])
    assert connection.state is State.RECEIVING
    connection.data_received(get("/later")[10:])
    assert connection.state is HANDLING
    connection.data_received(get("/later/2"))
    assert connection.state is State.PIPELINED
    (await server.app.next()).respond(200, b"{}")
    assert connection.state is HANDLING
    (await server.app.next()).stream()
    assert connection.state is State.STREAMING
    connection.abort()
    assert connection.state is State.CLOSING
    await until(lambda: connection.state is CLOSED)


@serving()
async def test_refused_client_that_is_still_sending_lingers(server: Server) -> None:
    connection = Connection(server.listener)
    Sink.plugged_into(connection)
    connection.data_received(b"NOT HTTP\r\n\r\n" + b"x" * 100)
    assert connection.state is State.LINGERING
    connection.connection_lost(None)
    assert connection.state is CLOSED


LATE_RESPONSES: list[Callable[[object], object]] = [
    lambda request: request.respond(200, b"{}"),  # type: ignore[attr-defined]
    lambda request: request.stream().write(b"x"),  # type: ignore[attr-defined]
    lambda request: request.stream().close(),  # type: ignore[attr-defined]
]


@pytest.mark.parametrize("respond", LATE_RESPONSES)
@serving()
async def test_response_after_an_abort_is_discarded(server: Server, respond: Callable[[object], object]) -> None:
    connection = Connection(server.listener)
    sink = Sink.plugged_into(connection)
    connection.data_received(post("/later", b"x"))
    request = await server.app.next()
    connection.abort()
    respond(request)
    assert (connection.state, sink.written) == (State.CLOSING, b"")
    await until(lambda: connection.state is CLOSED)
    await asyncio.sleep(0)
    assert not server.listener.connections
