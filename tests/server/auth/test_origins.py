"""Web pages of other origins cannot use a server without keys, unless their origin is configured."""

import base64
from pathlib import Path

import pytest

from tests.server.house import House, error_of, in_house, raw
from topics.server.application import TopicsApplication
from topics.server.auth.authorization import Caller
from topics.server.auth.origins import parse_host_name, parse_origin
from topics.server.ops.settings import BadSettings, load_settings
from topics.server.service import Service

RECORDS = {"records": [{"data": 1}]}
FOREIGN = ["https://evil.example", "null", "http://localhost:4000", "http://localhost:1", "http://127.0.0.1", "file://"]
APP = "https://app.example.com"
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: " + "A" * 22 + "==",
)


def with_host(request: bytes, host: str) -> bytes:
    return request.replace(b"Host: localhost", b"Host: " + host.encode(), 1)


async def ask_as(house: House, host: str, method: str = "GET", path: str = "/v0/topics", body: object = None) -> int:
    client = await house.connect()
    answer = await client.ask(with_host(raw(method, path, body), host))
    client.abort()
    if answer.status == 403:
        assert error_of(answer)["detail"].keys() == {"host"}
    return answer.status


# Host


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:4000",
        "[::1]:4000",
        "[::1]",
        "192.168.1.7:80",
        "localhost",
        "LocalHost:4000",
        "localhost.",
    ],
)
@in_house()
async def test_server_without_keys_answers_to_addresses_and_localhost(house: House, host: str) -> None:
    assert await ask_as(house, host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:4000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "1",
        "",
        "[evil]",
        "local",
    ],
)
@in_house()
async def test_server_without_keys_refuses_other_host_names_on_every_path(house: House, host: str) -> None:
    for method, path, body in (
        ("GET", "/v0/topics", None),
        ("GET", "/v0/health", None),
        ("GET", "/no/such/path", None),
        ("POST", "/v0/topics/a", RECORDS),
    ):
        assert await ask_as(house, host, method, path, body) == 403
    assert not house.broker.state.topics


@in_house(ALLOWED_HOSTS="topics.example.com, topics")
async def test_configured_host_names_are_accepted(house: House) -> None:
    for host in ("topics", "Topics.Example.com:80", "127.0.0.1"):
        assert await ask_as(house, host) == 200
    assert await ask_as(house, "evil.topics") == 403


@in_house(HOST="topics.internal", ALLOW_INSECURE_NO_AUTH="1")
async def test_the_name_that_the_server_listens_on_is_accepted(house: House) -> None:
    assert await ask_as(house, "topics.internal:4000") == 200
    assert await ask_as(house, "other.internal:4000") == 403


@in_house(API_KEYS="k")
async def test_server_with_keys_answers_to_every_host_name(house: House) -> None:
    client = await house.connect()
    assert (await client.ask(with_host(raw("GET", "/v0/topics", key="k"), "any.example"))).status == 200


@in_house()
async def test_a_refused_host_is_refused_again_on_the_same_connection(house: House) -> None:
    client = await house.connect()
    for host, status in [("evil.example", 403), ("localhost", 200)] * 3:
        assert (await client.ask(with_host(raw("GET", "/v0/topics"), host))).status == status


# Origin


def unsafe_routes() -> list[tuple[str, str]]:
    """Every route that may change state, lease jobs or stay open."""
    found = TopicsApplication(Service()).routes.all()
    return [(method, pattern) for method, pattern, route in found if method not in ("GET", "HEAD") or route.stream]


@in_house()
async def test_every_request_that_is_more_than_a_read_is_refused_to_pages_of_other_origins(house: House) -> None:
    routes = unsafe_routes()
    assert {("POST", "/api/pipelines/*/stop"), ("GET", "/v0/topics/*/work"), ("GET", "/v0/ws")} <= set(routes)
    await house.ask("PUT", "/v0/topics/some", {"type": "queue"})
    await house.ask("POST", "/v0/topics/some", RECORDS)
    for method, pattern in routes:
        path = pattern.replace("*", "some") + ("?node=w" if pattern.endswith("/work") else "")
        more = UPGRADE if pattern == "/v0/ws" else ()
        for headers in [(f"Origin: {origin}",) for origin in FOREIGN] + [
            ("Sec-Fetch-Site: cross-site",),
            ("Sec-Fetch-Site: same-site",),
        ]:
            answer = await house.ask(method, path, headers=(*headers, *more))
            assert (answer.status, error_of(answer)["code"]) == (403, "forbidden"), (method, path, headers)
            assert "access-control-allow-origin" not in answer.headers
    counters = house.broker.queues.stats(house.broker.topic("some"))
    assert (counters.ready, counters.in_flight) == (1, 0)


@in_house()
async def test_pages_of_the_server_itself_and_clients_that_are_no_browsers_may_write(house: House) -> None:
    for host, headers in (
        ("localhost", ()),
        ("localhost", ("Origin: http://localhost", "Sec-Fetch-Site: same-origin")),
        ("localhost:4000", ("Origin: http://localhost:4000",)),
        ("127.0.0.1:80", ("Origin: http://127.0.0.1",)),
        ("[::1]:4000", ("Origin: http://[::1]:4000",)),
        # A proxy that ends TLS.
        ("10.0.0.1", ("Origin: https://10.0.0.1",)),
        ("localhost", ("Sec-Fetch-Site: none",)),
    ):
        client = await house.connect()
        answer = await client.ask(with_host(raw("POST", "/v0/topics/a", RECORDS, headers=headers), host))
        assert answer.status in (200, 201), (host, headers, answer.body)


@in_house()
async def test_reads_are_answered_to_pages_of_other_origins_but_not_shown_to_them(house: House) -> None:
    answer = await house.ask("GET", "/v0/topics", headers=("Origin: https://evil.example",))
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


@in_house(API_KEYS="k")
async def test_page_with_a_key_is_let_in_but_not_with_a_password_the_browser_remembers(house: House) -> None:
    house.service.authority.add_method(b"basic", lambda _credential: Caller("ada"))
    foreign = "Origin: https://evil.example"
    assert (await house.ask("POST", "/v0/topics/a", RECORDS, key="k", headers=(foreign,))).status == 201
    basic = "Authorization: Basic " + base64.b64encode(b"ada:pw").decode()
    assert (await house.ask("POST", "/v0/topics/a", RECORDS, headers=(basic,))).status == 200
    assert (await house.ask("POST", "/v0/topics/a", RECORDS, headers=(basic, foreign))).status == 403
    assert (await house.ask("GET", "/v0/topics", headers=(basic, foreign))).status == 200


# CORS


def preflight(origin: str, *more: str) -> tuple[str, ...]:
    return (f"Origin: {origin}", "Access-Control-Request-Method: PUT", *more)


@pytest.mark.parametrize("path", ["/v0/topics/a", "/v0/ws", "/no/such/path", "/api/pipelines/x/stop"])
@in_house(CORS_ORIGINS=f"{APP},http://localhost:3000", API_KEYS="k")
async def test_preflight_of_a_configured_origin_says_what_it_may_send(house: House, path: str) -> None:
    answer = await house.ask("OPTIONS", path, headers=preflight(APP, "Access-Control-Request-Headers: authorization"))
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert {"GET", "POST", "PUT", "DELETE"} <= set(answer.headers["access-control-allow-methods"].split(", "))
    allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "content-type", "idempotency-key", "last-event-id", "x-request-id"} <= set(allowed)
    assert int(answer.headers["access-control-max-age"]) > 0
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers
    assert "access-control-allow-private-network" not in answer.headers
    private = await house.ask("OPTIONS", path, headers=preflight(APP, "Access-Control-Request-Private-Network: true"))
    assert private.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://app.example.com", "https://app.example.com:8443", "null"]
)
@in_house(CORS_ORIGINS=APP)
async def test_preflight_of_any_other_origin_is_refused(house: House, origin: str) -> None:
    answer = await house.ask("OPTIONS", "/v0/topics/a", headers=preflight(origin))
    assert (answer.status, error_of(answer)["code"]) == (403, "forbidden")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["vary"] == "Origin"


@in_house()
async def test_without_configured_origins_no_preflight_succeeds(house: House) -> None:
    answer = await house.ask("OPTIONS", "/v0/topics/a", headers=preflight(APP))
    assert answer.status == 403
    # No preflight: a method that the path does not have.
    assert (await house.ask("OPTIONS", "/v0/topics/a")).status == 405


@in_house(CORS_ORIGINS=APP)
async def test_pages_of_a_configured_origin_use_a_server_without_keys_like_its_own(house: House) -> None:
    origin = f"Origin: {APP}"
    assert (await house.ask("POST", "/v0/topics/a", RECORDS, headers=(origin,))).status == 201
    assert (await house.ask("POST", "/v0/topics/a", RECORDS, headers=("Origin: https://evil.example",))).status == 403
    client = await house.connect()
    await client.send(raw("GET", "/v0/ws", headers=(origin, *UPGRADE)))
    assert (await client.head())[0] == 101


@in_house(CORS_ORIGINS=APP, API_KEYS="k,reader:read", MAX_BODY_BYTES="1000")
async def test_every_response_to_a_configured_origin_has_the_cors_headers(house: House) -> None:
    large = {"records": [{"data": "x" * 2000}]}
    client = await house.connect()
    for method, path, body, key, status in [
        ("GET", "/v0/topics", None, "k", 200),
        ("POST", "/v0/topics/a", RECORDS, "k", 201),
        ("POST", "/v0/topics/a", RECORDS, "k", 200),
        ("POST", "/v0/topics/a", RECORDS, None, 401),
        ("POST", "/v0/topics/a", RECORDS, "reader", 403),
        ("GET", "/v0/topics/absent", None, "k", 404),
        ("PATCH", "/v0/topics/a", None, "k", 405),
        ("POST", "/v0/topics/a", b"{", "k", 400),
        ("POST", "/v0/topics/a", large, "k", 413),
        ("GET", "/v0/metrics", None, "k", 200),
        ("GET", "/v0/health", None, None, 200),
    ] * 2:
        answer = await client.ask(raw(method, path, body, key=key, headers=(f"Origin: {APP}",)))
        if status == 201 and answer.status == 200:
            status = 200
        assert answer.status == status, (method, path, answer.body)
        assert answer.headers["access-control-allow-origin"] == APP, (method, path)
        assert "Retry-After" in answer.headers["access-control-expose-headers"]
        assert "Origin" in answer.headers["vary"]


@in_house(CORS_ORIGINS=APP)
async def test_event_streams_have_the_cors_headers(house: House) -> None:
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    wid = (await house.ask("POST", "/v0/watch", {"topics": {"q": {}}})).json["wid"]
    for path in (f"/v0/watch/{wid}", "/v0/topics/q/work?node=w"):
        client = await house.connect()
        await client.send(raw("GET", path, headers=(f"Origin: {APP}", "X-Request-Id: mine")))
        status, headers, _rest = await client.head()
        assert status == 200
        assert (headers["access-control-allow-origin"], headers["vary"]) == (APP, "Origin")
        assert headers["x-request-id"] == "mine"


@in_house(CORS_ORIGINS=APP)
async def test_responses_that_a_cache_could_give_to_a_page_vary_by_origin(house: House) -> None:
    assert (await house.ask("GET", "/v0/topics")).headers["vary"] == "Origin"
    refused = await house.ask("GET", "/v0/topics", headers=("Origin: https://evil.example",))
    assert (refused.status, refused.headers["vary"]) == (200, "Origin")
    # A response to a POST is not cached, and most requests are: they keep their shortest form.
    assert "vary" not in (await house.ask("POST", "/v0/topics/a", RECORDS)).headers


@in_house()
async def test_without_configured_origins_responses_have_no_such_headers(house: House) -> None:
    answer = await house.ask("GET", "/v0/topics", headers=("Origin: http://localhost",))
    assert not {"vary", "access-control-allow-origin"} & set(answer.headers)


# Settings


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://App.Example.com", "https://app.example.com"),
        ("https://a.example:443", "https://a.example"),
        ("http://a.example:80", "http://a.example"),
        ("http://a.example:8080", "http://a.example:8080"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("tauri://localhost", "tauri://localhost"),
        ("*", None),
        ("null", None),
        ("https://a.example/", None),
        ("https://a.example/path", None),
        ("https://*.example", None),
        ("a.example", None),
        ("https://user@a.example", None),
        ("https://a.example\r\nX: y", None),
    ],
)
def test_origin_is_kept_as_browsers_write_it(text: str, origin: str | None) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize("name", ["*", "a.example:80", "http://a", ".example", "a..b", "-a", "a b", "x" * 300])
def test_host_name_is_a_name_alone(name: str) -> None:
    assert parse_host_name(name) is None


def test_malformed_origins_and_host_names_stop_the_server(tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as raised:
        load_settings({"TOPICS_CORS_ORIGINS": "https://a.example,*", "TOPICS_ALLOWED_HOSTS": "a:1"})
    assert [problem.split(" ")[0] for problem in raised.value.problems] == [
        "TOPICS_ALLOWED_HOSTS",
        "TOPICS_CORS_ORIGINS",
    ]
    assert all(["a list, each item" in problem for problem in raised.value.problems])
    path = tmp_path / "server.toml"
    path.write_text("[server]\ncors_origins = [1]\n")
    with pytest.raises(BadSettings):
        load_settings({"TOPICS_CONFIG": str(path)})
    path.write_text('[server]\ncors_origins = ["https://a.example", "https://b.example"]\n')
    assert load_settings({"TOPICS_CONFIG": str(path)}).cors_origins == ("https://a.example", "https://b.example")
