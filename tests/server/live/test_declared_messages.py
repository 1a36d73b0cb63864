"""The events and messages that the server sends have the fields that the reference shows (`topics.api.live_messages`)."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.served import server_settings
from topics.api.live_messages import EVENTS, MESSAGES, Ping, Publish, SocketError, Subscribe, Unsubscribe
from topics.testing.events import EventStream
from topics.testing.http import Api
from topics.testing.server import running_server

PATIENCE_SECONDS = 20


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(server_settings(tmp_path_factory.mktemp("live"))) as found:
        yield found


def test_server_sent_events_have_the_declared_fields(url: str) -> None:
    seen = []
    with Api(url) as api:
        api.put("/v0/topics/events", {"cap_records": 2})
        api.post("/v0/topics/events", {"records": [{"data": number} for number in range(3)]})
        session = api.post("/v0/watch", {"topics": {"events": {"from_seq": 0}}}).json
        with EventStream(api, session["stream_url"]) as stream:
            for step in range(4):
                event = stream.next()
                msgspec.convert(event.data, EVENTS[event.name])
                seen.append(event.name)
                if step == 2:
                    api.delete("/v0/topics/events")
    assert seen == ["tombstone", "record", "caught-up", "topic-deleted"]


def test_answers_of_a_socket_have_the_declared_fields(url: str) -> None:
    with connect(url.replace("http://", "ws://") + "/v0/ws", compression=None) as socket:
        msgspec.convert(ask(socket, op="publish", topic="sent", records=[{"data": 1}]), MESSAGES[Publish])
        msgspec.convert(ask(socket, op="subscribe", topic="sent", tail=True), MESSAGES[Subscribe])
        assert json.loads(socket.recv(PATIENCE_SECONDS))["op"] == "caught_up"
        msgspec.convert(ask(socket, op="unsubscribe", topic="sent"), MESSAGES[Unsubscribe])
        msgspec.convert(ask(socket, op="ping"), MESSAGES[Ping])
        for refused in ({"op": "subscribe", "topic": "absent"}, {"op": "unknown"}):
            msgspec.convert(ask(socket, **refused), SocketError)


def ask(socket: ClientConnection, **command: Any) -> dict[str, Any]:
    socket.send(json.dumps({**command, "request_id": 7}))
    answer: dict[str, Any] = json.loads(socket.recv(PATIENCE_SECONDS))
    assert answer["request_id"] == 7
    return answer
