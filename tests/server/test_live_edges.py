"""Live readers when something is in the way: a damaged log, a message in endless pieces, a stream taken over."""

import json
from typing import Any

import pytest
from msgspec.structs import force_setattr
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from tests.server.house import House, in_house, raw
from tests.server.http.wire import Client, until
from topics.server.live.websocket import Socket


async def seal_and_damage(house: House, name: str) -> None:
    """The records so far are in a segment on disk, and cannot be read."""
    topic = house.broker.topic(name)
    house.broker.sealer.seal(topic, topic.partitions[0])
    await until(lambda: any(path.endswith(".arrow") for path in house.disk.snapshot_tree()))
    await until(lambda: not house.broker.committer.disk_busy)
    for path, content in house.disk.snapshot_tree().items():
        if path.endswith(".arrow"):
            file = house.disk.open(path)
            file.write_at(content.index(b"needle"), [b"NEEDLE"])
            file.close()


async def watch(house: House, *names: str, tail: bool = False) -> Client:
    topics = {name: {"tail": tail} for name in names}
    made = await house.ask("POST", "/v0/watch", {"topics": topics})
    assert made.status == 200, made.body
    client = await house.connect()
    await client.send(raw("GET", made.json["stream_url"]))
    status, _, _ = await client.head()
    assert status == 200
    assert (await client.chunk()).startswith(b"retry")
    return client


async def events(client: Client, count: int) -> list[tuple[str, Any]]:
    """The next events, without heartbeats."""
    found: list[tuple[str, Any]] = []
    while len(found) < count:
        for event in (await client.chunk()).decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in event.split("\n") if line and not line.startswith(":"))
            if "event" in lines:
                found.append((lines["event"], json.loads(lines["data"])))
    return found


@in_house()
async def test_watch_of_a_damaged_topic_gets_an_error_event_and_continues_with_others(house: House) -> None:
    for name in ("bad", "good"):
        await house.ask("POST", f"/v0/topics/{name}", {"records": [{"data": "needle"}]})
    await seal_and_damage(house, "bad")
    first = await watch(house, "bad", "good")
    received = await events(first, 3)
    assert sorted(name for name, _ in received) == ["caught-up", "error", "record"]
    (problem,) = [data for name, data in received if name == "error"]
    assert (problem["code"], problem["topic"]) == (500, "bad")
    await house.ask("POST", "/v0/topics/bad", {"records": [{"data": 2}]})
    await house.ask("POST", "/v0/topics/good", {"records": [{"data": 2}]})
    ((name, data),) = await events(first, 1)
    assert (name, data["topic"]) == ("record", "good")


@in_house()
async def test_other_readers_continue_when_one_of_them_cannot_read_on(house: House) -> None:
    await house.ask("POST", "/v0/topics/bad", {"records": [{"data": "needle"}]})
    late = await watch(house, "bad", tail=True)
    await events(late, 1)
    (place,) = [watcher.__self__ for watcher in house.broker.watchers[house.broker.topic("bad").id]]  # type: ignore[attr-defined]
    in_time = await watch(house, "bad", tail=True)
    await events(in_time, 1)
    await seal_and_damage(house, "bad")
    # As if it had been too slow to receive it so far.
    place.cursor = 0
    await house.ask("POST", "/v0/topics/bad", {"records": [{"data": 2}]})
    ((name, data),) = await events(in_time, 1)
    assert (name, data["to_seq"]) == ("record", 2)
    ((name, data),) = await events(late, 1)
    assert (name, data["code"]) == ("error", 500)


@in_house()
async def test_waiting_for_a_head_ends_when_the_topic_is_created_again_with_the_same_head(house: House) -> None:
    await house.ask("PUT", "/v0/topics/t", {})
    epoch = house.broker.topic("t").epoch
    client = await house.connect()
    await client.send(raw("POST", "/v0/heads", {"topics": {"t": {"0": 0}}, "wait_ms": 60_000}))
    await until(lambda: bool(house.broker.polls))
    # Both requests are handled in one turn, before the waiting one is woken.
    pair = raw("DELETE", "/v0/topics/t") + raw("PUT", "/v0/topics/t", {})
    changing = await house.connect()
    await changing.send(pair)
    found = (await client.answer()).json["topics"]["t"]
    assert found is None or found["epoch"] != epoch


async def socket(house: House) -> tuple[Client, ClientProtocol]:
    protocol = ClientProtocol(parse_uri(f"ws://{house.address[0]}:{house.address[1]}/v0/ws"))
    protocol.send_request(protocol.connect())
    client = await house.connect()
    await client.send(b"".join(protocol.data_to_send()))
    _, _, head = await client.head()
    protocol.receive_data(head)
    protocol.events_received()
    return client, protocol


async def messages(client: Client, protocol: ClientProtocol, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        data = await client.reader.read(1 << 16)
        assert data, "the socket was closed"
        protocol.receive_data(data)
        frames = [event for event in protocol.events_received() if isinstance(event, Frame)]
        found += [json.loads(frame.data) for frame in frames if frame.opcode is Opcode.TEXT]
    return found


@in_house()
async def test_a_socket_gets_an_error_for_a_damaged_topic_and_stays_open(house: House) -> None:
    await house.ask("POST", "/v0/topics/bad", {"records": [{"data": "needle"}]})
    await seal_and_damage(house, "bad")
    client, protocol = await socket(house)
    protocol.send_text(b'{"op":"subscribe","topic":"bad"}')
    protocol.send_text(b'{"op":"ping"}')
    await client.send(b"".join(protocol.data_to_send()))
    received = await messages(client, protocol, 3)
    assert [each["op"] for each in received] == ["subscribed", "error", "pong"]
    assert (received[1]["code"], received[1]["topic"]) == ("corrupt_storage", "bad")


@in_house()
async def test_fragmented_message_uses_memory_of_its_text_only(house: House) -> None:
    sockets: list[Socket] = []
    take = Socket.start

    def start(self: Socket, answer: bytes) -> None:
        sockets.append(self)
        take(self, answer)

    Socket.start = start  # type: ignore[method-assign]
    try:
        client, protocol = await socket(house)
    finally:
        Socket.start = take  # type: ignore[method-assign]
    protocol.send_text(b'{"op":', fin=False)
    for _ in range(20_000):
        protocol.send_continuation(b"", fin=False)
    await client.send(b"".join(protocol.data_to_send()))
    protocol.send_continuation(b'"pi', fin=False)
    protocol.send_ping(b"!")
    await client.send(b"".join(protocol.data_to_send()))
    while not any(isinstance(event, Frame) for event in protocol.events_received()):
        protocol.receive_data(await client.reader.read(1 << 16))
    (held,) = sockets
    assert bytes(held.parts) == b'{"op":"pi'
    protocol.send_continuation(b'ng"}', fin=True)
    await client.send(b"".join(protocol.data_to_send()))
    assert [each["op"] for each in await messages(client, protocol, 1)] == ["pong"]
    assert not held.parts


@in_house()
async def test_messages_half_sent_over_sockets_count_with_the_bodies_under_way(house: House) -> None:
    force_setattr(house.listener.limits, "max_held_bytes", 100_000)
    half = b'{"op":"ping","x":"' + b"x" * 60_000
    held = house.listener.held
    first, one = await socket(house)
    one.send_text(half, fin=False)
    await first.send(b"".join(one.data_to_send()))
    await until(lambda: held.total == len(half))
    second, two = await socket(house)
    two.send_text(half + b'"}')
    await second.send(b"".join(two.data_to_send())[:-1])
    with pytest.raises(AssertionError, match="closed"):
        await messages(second, two, 1)
    assert two.close_rcvd is not None
    assert two.close_rcvd.code == 1013
    await until(lambda: held.total == len(half))
    one.send_continuation(b'"}', fin=True)
    await first.send(b"".join(one.data_to_send()))
    assert [each["op"] for each in await messages(first, one, 1)] == ["pong"]
    await until(lambda: held.total == 0)
    one.send_text(half, fin=False)
    await first.send(b"".join(one.data_to_send()))
    await until(lambda: held.total == len(half))
    first.abort()
    await until(lambda: held.total == 0)


@in_house()
async def test_last_stream_that_takes_over_a_session_gets_the_new_records(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    made = await house.ask("POST", "/v0/watch", {"topics": {"t": {"tail": True}}})
    opening = raw("GET", made.json["stream_url"])
    first, second = await house.connect(), await house.connect()
    # Behind the stream wait others of the same session.
    await first.send(opening * 3)
    await first.head()
    await second.send(opening)
    await until(lambda: house.service.live.slots.open == 1)
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": "new"}]})
    seen = b""
    for client in (first, second):
        client.writer.write_eof()
        seen += await client.reader.read()
    assert seen.count(b"event: record") == 1
