"""SSE and WebSocket send the same events with the same fields; two names differ unless the session asks otherwise."""

import json
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.acceptance.topic import TopicApi, refused, succeeded
from topics.testing.events import EventStream
from topics.testing.http import Api

PATIENCE_SECONDS = 20
HYPHENS = {"caught_up": "caught-up", "topic_deleted": "topic-deleted"}


@pytest.mark.parametrize("fields", [{}, {"event_names": "sse"}, {"event_names": "websocket"}], ids=str)
def test_sse_and_websocket_send_the_same_events_under_the_names_that_the_session_asks_for(
    api: Api, topic: TopicApi, server_url: str, fields: dict[str, str]
) -> None:
    topic.configure(cap_records=2)
    topic.append(1, 2, 3)
    topics = {topic.name: {"from_seq": 0}}
    events: list[tuple[str, dict[str, Any]]] = []
    messages: list[tuple[str, dict[str, Any]]] = []
    with ExitStack() as stack:
        session = succeeded(api.post("/v0/watch", {"topics": topics, **fields}))
        stream = stack.enter_context(EventStream(api, session["stream_url"]))
        socket = stack.enter_context(connect(server_url.replace("http://", "ws://") + "/v0/ws", compression=None))
        socket.send(json.dumps({"op": "subscribe", "topics": topics}))
        assert json.loads(socket.recv(PATIENCE_SECONDS))["op"] == "subscribed"
        for step in range(4):
            event = stream.next()
            events.append((event.name, event.data))
            message = json.loads(socket.recv(PATIENCE_SECONDS))
            messages.append((message.pop("op"), message))
            if step == 2:
                topic.drop()
    assert [name for name, _ in messages] == ["tombstone", "record", "caught_up", "topic_deleted"]
    spelled = {} if fields.get("event_names") == "websocket" else HYPHENS
    assert events == [(spelled.get(name, name), data) for name, data in messages]


@pytest.mark.parametrize("names", ["SSE", "", 5, None, ["sse"]])
def test_names_that_do_not_exist_are_refused(api: Api, topic: TopicApi, names: Any) -> None:
    topic.append(1)
    refused(api.post("/v0/watch", {"topics": {topic.name: {}}, "event_names": names}), 400, "invalid_request")
