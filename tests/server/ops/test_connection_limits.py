"""Caps on what is under way: requests of one key, and connections that stay open."""

import asyncio

import pytest

from tests.server.house import House, error_of, in_house, raw
from tests.server.http.wire import Client, until
from topics.api.operation import ANY_KEY, READ
from topics.server.auth.authorization import caller_of
from topics.server.http import Request

RECORDS = {"records": [{"data": 1}]}
POLL = {"wait_ms": 30_000}


def caller(house: House, index: int = 0):
    return house.settings.keys.callers[index]


async def poll(house: House, key: str | None = "one") -> Client:
    """A long poll that is waiting."""
    before = len(house.broker.polls)
    client = await house.connect()
    await client.send(raw("POST", "/v0/topics/t/diff", {**POLL, "from_seq": 1}, key=key))
    await until(lambda: len(house.broker.polls) > before)
    return client


@in_house(API_KEYS="one,two", MAX_INFLIGHT_PER_KEY="2")
async def test_max_inflight_per_key_is_enforced(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS, key="one")
    first, _second = await poll(house), await poll(house)
    answer = await house.ask("GET", "/v0/topics", key="one")
    assert (answer.status, error_of(answer)["code"]) == (429, "throttled")
    assert error_of(answer)["detail"] == {"limit": "max_inflight_per_key", "max": 2}
    assert int(answer.headers["retry-after"]) >= 1
    assert (await house.ask("GET", "/v0/topics", key="two")).status == 200
    assert (await house.ask("GET", "/v0/health")).status == 200
    first.abort()
    await until(lambda: caller(house).inflight == 1)
    assert (await house.ask("GET", "/v0/topics", key="one")).status == 200


@pytest.mark.parametrize("leave", ["abort", "reset", "end"])
@in_house(API_KEYS="one", MAX_INFLIGHT_PER_KEY="1")
async def test_slot_is_free_again_when_the_client_goes_mid_request(house: House, leave: str) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS, key="one")
    for _ in range(3):
        client = await poll(house)
        assert caller(house).inflight == 1
        getattr(client, leave)()
        await until(lambda: caller(house).inflight == 0)
    assert (await house.ask("GET", "/v0/topics/t", key="one")).status == 200


@in_house(API_KEYS="one", MAX_INFLIGHT_PER_KEY="1")
async def test_slot_is_free_again_after_every_kind_of_answer(house: House) -> None:
    def broken(request: Request, name: str) -> None:
        raise ValueError("a bug")

    house.serve("/v0/broken", broken, scope=READ)
    for method, path, body, status in (
        ("POST", "/v0/topics/t", RECORDS, 201),
        ("POST", "/v0/topics/t", {"records": []}, 400),
        ("POST", "/v0/topics/t", b"{", 400),
        ("GET", "/v0/topics/absent", None, 404),
        ("GET", "/v0/metrics", None, 200),
        ("PUT", "/v0/topics/t", {"durability": "fsync"}, 200),
        ("POST", "/v0/topics/t", RECORDS, 200),
        ("GET", "/v0/broken", None, 500),
        ("DELETE", "/v0/topics/t", None, 200),
    ):
        answer = await house.ask(method, path, body, key="one")
        assert answer.status == status, (method, path, answer.body)
        assert caller(house).inflight == 0


@in_house(API_KEYS="one:read", MAX_INFLIGHT_PER_KEY="1")
async def test_request_that_is_refused_takes_no_slot(house: House) -> None:
    for method, path in (("POST", "/v0/topics/t"), ("GET", "/nope"), ("PATCH", "/v0/topics/t")):
        assert (await house.ask(method, path, key="one")).status in (403, 404, 405)
    assert caller(house).inflight == 0


@in_house(API_KEYS="one", MAX_INFLIGHT_PER_KEY="0")
async def test_zero_means_no_cap(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS, key="one")
    for _ in range(5):
        await poll(house)
    assert (await house.ask("GET", "/v0/topics", key="one")).status == 200
    assert caller(house).inflight == 5


@in_house(MAX_INFLIGHT_PER_KEY="1", MAX_SSE_CONNECTIONS_PER_KEY="1")
async def test_caps_per_key_do_nothing_without_keys(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS)
    for _ in range(3):
        await poll(house, key=None)
    add_streams(house)
    for _ in range(3):
        assert (await open_stream(house, None))[0] == 200
    assert (await house.ask("GET", "/v0/topics")).status == 200


def add_streams(house: House) -> None:
    """Routes that stay open, as those of watch, work and ws do."""

    def stream(request: Request, name: str) -> None:
        house.opened = house.service.streams.stream(request)
        house.opened.write(b": hello\n\n")

    def upgrade(request: Request, name: str) -> None:
        house.opened = house.service.streams.upgrade(request)
        house.opened.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")

    house.serve("/v0/test-stream", stream, scope=READ, stream=True, query_token=True)
    house.serve("/v0/test-socket", upgrade, scope=ANY_KEY, stream=True)


async def open_stream(house: House, key: str | None, path: str = "/v0/test-stream") -> tuple[int, Client]:
    client = await house.connect()
    headers = ("Connection: Upgrade", "Upgrade: websocket") if "socket" in path else ()
    await client.send(raw("GET", path, key=key, headers=headers))
    status, _, _ = await client.head()
    return status, client


@in_house(API_KEYS="one,two", MAX_SSE_CONNECTIONS="3", MAX_SSE_CONNECTIONS_PER_KEY="2")
async def test_streams_and_sockets_share_their_caps(house: House) -> None:
    add_streams(house)
    streams = house.service.streams
    assert (await open_stream(house, "one"))[0] == 200
    status, socket = await open_stream(house, "one", "/v0/test-socket")
    assert status == 101
    for path in ("/v0/test-stream", "/v0/test-socket"):
        headers = ("Connection: Upgrade", "Upgrade: websocket")
        answer = await house.ask("GET", path, key="one", headers=headers)
        assert error_of(answer)["detail"] == {"limit": "max_sse_connections_per_key", "max": 2}
        assert answer.status == 429
    assert (await open_stream(house, "two"))[0] == 200
    answer = await house.ask("GET", "/v0/test-stream", key="two")
    assert error_of(answer)["detail"] == {"limit": "max_sse_connections", "max": 3}
    assert (streams.open, caller(house).streams, caller(house, 1).streams) == (3, 2, 1)
    socket.abort()
    await until(lambda: streams.open == 2)
    assert caller(house).streams == 1
    assert (await open_stream(house, "one"))[0] == 200


@pytest.mark.parametrize("path", ["/v0/test-stream", "/v0/test-socket"])
@pytest.mark.parametrize("leave", ["abort", "reset", "end", "closed by us"])
@in_house(API_KEYS="one", MAX_SSE_CONNECTIONS="1")
async def test_slot_of_a_stream_is_free_again_however_it_ends(house: House, leave: str, path: str) -> None:
    add_streams(house)
    for _ in range(3):
        status, client = await open_stream(house, "one", path)
        assert status in (200, 101)
        assert house.service.streams.open == 1
        if leave == "closed by us":
            house.opened.close()
        else:
            getattr(client, leave)()
        await until(lambda: house.service.streams.open == 0)
        assert caller(house).streams == 0


@in_house(API_KEYS="one", MAX_INFLIGHT_PER_KEY="1")
async def test_open_stream_holds_no_request_slot(house: House) -> None:
    add_streams(house)
    for _ in range(3):
        assert (await open_stream(house, "one"))[0] == 200
    assert (await open_stream(house, "one", "/v0/test-socket"))[0] == 101
    assert caller(house).inflight == 0
    assert (await house.ask("GET", "/v0/topics", key="one")).status == 200


@in_house(API_KEYS="a+b %")
async def test_token_in_the_url_is_form_decoded_and_the_first_counts(house: House) -> None:
    add_streams(house)
    for query, status in (
        ("token=a%2Bb+%25", 200),
        ("x=1&token=a%2Bb%20%25&token=wrong", 200),
        ("token=wrong&token=a%2Bb+%25", 401),
        ("token=a+b+%25", 401),
        ("token=", 401),
        ("", 401),
    ):
        assert (await open_stream(house, None, f"/v0/test-stream?{query}"))[0] == status, query
    assert (await open_stream(house, None, "/v0/test-socket?token=a%2Bb+%25"))[0] == 401


@in_house(API_KEYS="one")
async def test_handler_finds_its_caller_also_later(house: House) -> None:
    found = []

    def later(request: Request, name: str) -> None:
        asyncio.get_running_loop().call_soon(lambda: (found.append(caller_of(request)), request.respond(200)))

    house.serve("/v0/later", later, scope=READ)
    await house.ask("GET", "/v0/later", key="one")
    assert found == [caller(house)]


@in_house(API_KEYS="k", MAX_INFLIGHT_PER_KEY="1")
async def test_parked_write_holds_its_slot_and_gives_it_back(house: House) -> None:
    await house.ask("PUT", "/v0/topics/low", {"priority": -1}, key="k")
    throttle = house.service.throttle
    throttle.runtime = house.runtime
    for _ in range(30):
        throttle.observe(80.0)
    client = await house.connect()
    await client.send(raw("POST", "/v0/topics/low", RECORDS, key="k"))
    await until(lambda: house.service.throttle.parked)
    assert (await house.ask("GET", "/v0/topics", key="k")).status == 429
    house.service.throttle.observe(0.0)
    assert (await client.answer()).status == 200
    assert (await house.ask("GET", "/v0/topics", key="k")).status == 200
