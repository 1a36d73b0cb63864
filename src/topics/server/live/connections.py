"""GET /v0/connections and DELETE /v0/connections/:connection: what stays open, how far it is, and a way to end it."""

from itertools import islice
from typing import Any

from topics.server.auth.authorization import Caller
from topics.server.live.open_channels import OpenChannel, TopicPlace, feed_places
from topics.server.live.sessions import Session
from topics.server.live.shared import Live
from topics.server.operations import Call, handles
from topics.server.responses import send

MAX_CONNECTIONS_SHOWN = 500
MAX_TOPICS_SHOWN = 100
# Connections that one response looks at: enough for every sensible number of them, and a few milliseconds.
MAX_CONNECTIONS_READ = 5_000


@handles("list_connections")
def list_connections(call: Call[None, None]) -> None:
    live = call.service.live
    channels = [
        each for each in islice(live.slots.channels.by_id.values(), MAX_CONNECTIONS_READ) if _seen(each, call.caller)
    ]
    sessions = [each for each in islice(live.sessions.idle(), MAX_CONNECTIONS_READ) if _session_seen(each, call.caller)]
    shown = [_channel_fields(each) for each in channels[:MAX_CONNECTIONS_SHOWN]]
    shown += [_session_fields(each) for each in sessions[: MAX_CONNECTIONS_SHOWN - len(shown)]]
    send(call.request, 200, {"total": len(channels) + len(sessions), "connections": shown})


@handles("delete_connection")
def delete_connection(call: Call[None, None]) -> None:
    ended = end_connection(call.service.live, call.name)
    send(call.request, 200, {"id": call.name, "disconnected": ended})


def end_connection(live: Live, connection_id: str) -> bool:
    """End the connection or forget the idle session. False when there is none."""
    opened = live.slots.channels.by_id.get(connection_id)
    if opened is not None:
        # In good order, as at the end of the server: its client sees the end and may connect again.
        opened.channel.shut_down()
        return True
    return live.sessions.forget(connection_id)


def _seen(opened: OpenChannel, caller: Caller) -> bool:
    return all([caller.may_touch(place.topic) for place in opened.places()])


def _session_seen(session: Session, caller: Caller) -> bool:
    return all([caller.may_touch(place.topic.name) for place in session.feed.places.values()])


def _channel_fields(opened: OpenChannel) -> dict[str, Any]:
    fields = _fields(opened.id, opened.kind, opened.caller, opened.since_ms, opened.places())
    channel = opened.channel
    more = {"peer": opened.peer, "buffered_bytes": channel.buffered, "sent_bytes": channel.written_bytes}
    return {**fields, **more, **opened.more()}


def _session_fields(session: Session) -> dict[str, Any]:
    return _fields(
        session.public_id, "session", session.caller, session.used_ms, feed_places(session.feed.places.values())
    )


def _fields(connection_id: str, kind: str, caller: Caller, since_ms: int, places: list[TopicPlace]) -> dict[str, Any]:
    topics = [
        {"topic": place.topic, "partition": place.partition, "cursor": place.cursor, "lag": place.lag}
        for place in places[:MAX_TOPICS_SHOWN]
    ]
    fields = {"id": connection_id, "kind": kind, "caller": caller.name, "since_ts": since_ms}
    return {**fields, "topics": topics, "lag": sum([place.lag for place in places])}
