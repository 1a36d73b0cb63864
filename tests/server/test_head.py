"""HEAD is answered wherever GET is: the same status and headers, no body, and nothing of a stream is begun."""

import pytest

from tests.server.house import House, in_house, raw
from tests.server.http.wire import Answer, Client

# For the patterns of routes that need a name in their path, and a query where they need one.
PATHS = {
    "/v0/topics/*": "/v0/topics/log",
    "/v0/topics/*/archive": "/v0/topics/log/archive",
    "/v0/producers/*": "/v0/producers/p",
    "/v0/watch/*": "",
    "/v0/topics/*/work": "/v0/topics/queue/work?node=w",
    "/v0/routers/*": "/v0/routers/r",
    "/api/tables/*": "/api/tables/shop.orders",
    "/api/pipelines/*": "/api/pipelines/main",
}


async def ask(client: Client, method: str, path: str, *headers: str) -> Answer:
    return await client.ask(raw(method, path, headers=headers))


def comparable(answer: Answer) -> tuple[int, dict[str, str]]:
    """Without the length: `performance` has times, which differ in their digits."""
    return answer.status, {name: value for name, value in answer.headers.items() if name != "content-length"}


async def furnished(house: House) -> None:
    """Something for every path that names something."""
    await house.ask("PUT", "/v0/topics/log", {})
    await house.ask("PUT", "/v0/topics/queue", {"type": "queue"})
    await house.ask("POST", "/v0/topics/queue", {"records": [{"data": 1}]})
    await house.ask("PUT", "/v0/routers/r", {"source": "log", "dest": "copies"})
    await house.ask("POST", "/v0/commits", {"producer": "p", "batch": 1, "writes": []})
    await house.ask("PUT", "/api/tables/shop.orders", {"kind": "push"})
    await house.ask("PUT", "/api/pipelines/main", {"state": "running", "jobs": []})


@in_house()
async def test_head_of_every_path_with_get_has_its_status_and_headers(house: House) -> None:
    await furnished(house)
    patterns = [pattern for method, pattern, route in house.app.routes.all() if method == "GET" and not route.stream]
    assert "/v0/metrics" in patterns
    assert "/readyz" in patterns
    client = await house.connect()
    for pattern in patterns:
        path = PATHS.get(pattern.replace("/v1/api", "/api"), pattern)
        expected = await ask(client, "GET", path)
        found = await ask(client, "HEAD", path)
        assert comparable(found) == comparable(expected), path
        assert int(found.headers["content-length"]) > 0
    # Nothing of a body was sent: the connection is in step.
    assert (await ask(client, "GET", "/v0/health")).json["status"] == "ok"


@pytest.mark.parametrize("path", ["/v0/topics/absent", "/v0/nothing", "/v0/routers/absent", "/v0/watch/wid_absent"])
@in_house()
async def test_head_is_refused_as_get_is(house: House, path: str) -> None:
    client = await house.connect()
    expected = await ask(client, "GET", path)
    assert expected.status == 404
    assert comparable(await ask(client, "HEAD", path)) == comparable(expected)
    assert (await ask(client, "GET", "/v0/health")).status == 200


@in_house()
async def test_a_path_without_get_has_no_head(house: House) -> None:
    answer = await house.ask("HEAD", "/v0/topics/log/diff")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    answer = await house.ask("PATCH", "/v0/topics/log")
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, POST, PUT")


@in_house()
async def test_head_of_a_work_stream_leases_no_job(house: House) -> None:
    await furnished(house)
    client = await house.connect()
    answer = await ask(client, "HEAD", PATHS["/v0/topics/*/work"])
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-store", "no")
    assert (await ask(client, "GET", "/v0/topics/queue")).json["queue"]["ready"] == 1
    assert house.service.streams.open == 0
    for path, status in (
        ("/v0/topics/queue/work", 400),
        ("/v0/topics/log/work?node=w", 409),
        ("/v0/topics/no/work?node=w", 404),
    ):
        assert (await ask(client, "HEAD", path)).status == status
    assert (await ask(client, "HEAD", PATHS["/v0/topics/*/work"], "Accept: text/html")).status == 406


@in_house()
async def test_head_of_a_watch_stream_takes_nothing_from_the_one_that_is_open(house: House) -> None:
    await furnished(house)
    session = (await house.ask("POST", "/v0/watch", {"topics": {"log": {"tail": True}}})).json
    stream = await house.connect()
    await stream.send(raw("GET", session["stream_url"]))
    _, begun, _ = await stream.head()
    client = await house.connect()
    answer = await ask(client, "HEAD", session["stream_url"])
    assert (answer.status, answer.headers) == (200, begun)
    assert (await ask(client, "GET", "/v0/health")).status == 200
    assert house.service.streams.open == 1
    await house.ask("POST", "/v0/topics/log", {"records": [{"data": "live"}]})
    while b"live" not in await stream.chunk():
        pass


@in_house()
async def test_head_of_the_socket_path_is_refused_as_a_get_without_upgrade(house: House) -> None:
    client = await house.connect()
    expected = await ask(client, "GET", "/v0/ws")
    assert comparable(await ask(client, "HEAD", "/v0/ws")) == comparable(expected)
    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {'x' * 24}",
    )
    assert (await ask(client, "HEAD", "/v0/ws", *upgrade)).status == 400


@in_house(recovered=False)
async def test_head_of_the_probes_answers_while_the_log_is_replayed(house: House) -> None:
    assert (await house.ask("HEAD", "/v0/health")).status == 200
    assert (await house.ask("HEAD", "/v0/ready")).status == 503


@in_house(API_KEYS="reader:r")
async def test_head_requires_what_get_requires(house: House) -> None:
    assert (await house.ask("HEAD", "/v0/topics")).status == 401
    assert (await house.ask("HEAD", "/v0/topics", key="reader")).status == 200
    assert (await house.ask("HEAD", "/v0/topics/q/work?node=w", key="reader")).status == 403
