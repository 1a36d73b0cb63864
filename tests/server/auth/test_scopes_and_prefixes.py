"""Who may do what: keys, scopes and prefixes on every route."""

import asyncio
import gzip
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.house import House, error_of, in_house, raw
from tests.server.http.wire import until
from topics.api.operation import ADMIN, ANY_KEY, CONSUME, DELETE, PROBE, PUBLIC, READ, WRITE, Operation
from topics.server.application import TopicsApplication
from topics.server.auth.authentication import Undecided
from topics.server.auth.authorization import ANONYMOUS, EVERYONE, Caller
from topics.server.service import Service

RECORDS = {"records": [{"data": 1}]}
KEYS = "full,reader:read,writer:write,deleter:delete,admin:admin,claimer:rw,tenant::t42:|shared.,treader:r:t42:"

# Every route with the scope the contract gives it. A route that is not listed here fails the test below.
SCOPES = {
    ("GET", "/v0/topics"): READ,
    ("GET", "/v0/topics/*"): READ,
    ("POST", "/v0/topics/*"): WRITE,
    ("PUT", "/v0/topics/*"): ADMIN,
    ("DELETE", "/v0/topics/*"): DELETE,
    ("POST", "/v0/topics/*/diff"): READ,
    ("POST", "/v0/topics/*/delete"): DELETE,
    ("GET", "/v0/metrics"): READ,
    ("GET", "/v0/health"): PROBE,
    ("GET", "/healthz"): PROBE,
    ("GET", "/v0/ready"): PROBE,
    ("GET", "/readyz"): PROBE,
    ("GET", "/v0/routers"): READ,
    ("GET", "/v0/routers/*"): READ,
    ("PUT", "/v0/routers/*"): ADMIN,
    ("DELETE", "/v0/routers/*"): DELETE,
    ("POST", "/v0/watch"): READ,
    # The key that made the session, which needed read; every other one is refused like an unknown one: 401, not 403.
    ("GET", "/v0/watch/*"): ANY_KEY,
    ("GET", "/v0/ws"): ANY_KEY,
    ("POST", "/v0/topics/*/claim"): READ | WRITE,
    ("GET", "/v0/topics/*/work"): READ | WRITE,
    ("POST", "/v0/topics/*/ack"): WRITE,
    ("POST", "/v0/topics/*/nack"): WRITE,
    ("POST", "/v0/topics/*/extend"): WRITE,
    ("GET", "/v0/topics/*/archive"): READ,
    ("PUT", "/v0/topics/*/archive"): ADMIN,
    ("DELETE", "/v0/topics/*/archive"): DELETE,
    ("POST", "/v0/topics/*/archive/progress"): WRITE,
    ("GET", "/api/archives"): READ,
    ("GET", "/api/pipelines"): READ,
    ("GET", "/api/pipelines/*"): READ,
    ("PUT", "/api/pipelines/*"): WRITE,
    ("POST", "/api/pipelines/*/stop"): ADMIN,
    ("DELETE", "/api/pipelines/*"): DELETE,
    ("POST", "/v0/heads"): READ,
    ("POST", "/v0/stages"): WRITE,
    ("DELETE", "/v0/stages/*"): WRITE,
    ("POST", "/v0/commits"): WRITE,
    ("GET", "/v0/producers/*"): READ,
}
CONTRACT_PREFIX = "/v0/"
GUARDED = {READ, WRITE, DELETE, ADMIN, READ | WRITE, READ | ADMIN, WRITE | DELETE, READ | CONSUME, ANY_KEY}


def routes() -> list[tuple[str, str, int]]:
    return [(method, path, route.scope) for method, path, route in TopicsApplication(Service()).routes.all()]


def test_every_route_has_the_scope_the_contract_gives_it() -> None:
    for method, path, scope in routes():
        if (method, path) in SCOPES:
            assert scope == SCOPES[method, path], (method, path)


def test_nothing_under_the_api_is_open_to_everybody_but_the_probes_and_the_login() -> None:
    for method, path, scope in routes():
        if path.endswith("/auth/login"):
            assert scope == PUBLIC  # a login has no credential yet
        elif path.startswith((CONTRACT_PREFIX, "/api", "/v1")) and SCOPES.get((method, path)) != PROBE:
            assert scope in GUARDED, (method, path)


def test_tokens_in_urls_are_taken_by_the_streams_only() -> None:
    taken = {path for _, path, route in TopicsApplication(Service()).routes.all() if route.query_token}
    assert taken <= {"/v0/watch/*", "/v0/topics/*/work"}


def test_operation_without_a_scope_cannot_be_declared() -> None:
    with pytest.raises(TypeError):
        Operation(name="x", noun="server", method="GET", path="/v0/x", summary="X.")  # type: ignore[call-arg]


@in_house(API_KEYS=KEYS)
async def test_every_guarded_route_asks_for_a_key_first(house: House) -> None:
    for method, pattern, scope in routes():
        if scope in (PROBE, PUBLIC):
            continue
        path = pattern.replace("*", "absent")
        for headers in [
            (),
            ("Authorization: Bearer wrong",),
            ("Authorization: Basic ZnVsbDo=",),
            ("Authorization: full",),
        ]:
            answer = await house.ask(method, path, headers=headers)
            assert (answer.status, error_of(answer)["code"]) == (401, "unauthorized"), (method, path, headers)
            assert answer.headers["www-authenticate"] == "Bearer"


@in_house(API_KEYS=KEYS)
async def test_every_named_route_is_closed_to_names_outside_the_prefixes(house: House) -> None:
    for method, pattern, _scope in routes():
        if not pattern.startswith(("/v0/topics/", "/v0/routers/", "/api/pipelines/")):
            continue
        for name in ("t4", "t43:x", "T42:x", "other", "shared"):
            answer = await house.ask(method, pattern.replace("*", name), key="tenant")
            assert (answer.status, error_of(answer)["code"]) == (403, "forbidden"), (method, pattern, name)


@in_house(API_KEYS=KEYS)
async def test_key_with_the_scope_gets_through(house: House) -> None:
    assert (await house.ask("PUT", "/v0/topics/a", {}, key="admin")).status == 201
    assert (await house.ask("POST", "/v0/topics/a", RECORDS, key="writer")).status == 200
    assert (await house.ask("POST", "/v0/topics/a/diff", {}, key="reader")).json["records"][0]["data"] == 1
    assert (await house.ask("GET", "/v0/topics/a", key="reader")).status == 200
    assert (await house.ask("POST", "/v0/topics/a/delete", {"before_seq": 2}, key="deleter")).json["deleted"] == 1
    assert (await house.ask("DELETE", "/v0/topics/a", key="deleter")).json["deleted"] is True
    for key in ("full", "tenant"):
        assert (await house.ask("POST", "/v0/topics/t42:jobs", RECORDS, key=key)).status in (200, 201)


@in_house(API_KEYS=KEYS, MAX_BODY_BYTES="1000")
async def test_unauthenticated_request_gets_401_before_its_body_is_checked(house: House) -> None:
    large = {"records": [{"data": "x" * 2000}]}
    packed = ("Content-Encoding: gzip",)
    for key, status in ((None, 401), ("wrong", 401), ("reader", 403), ("full", 413)):
        assert (await house.ask("POST", "/v0/topics/t", large, key=key)).status == status
        answer = await house.ask("POST", "/v0/topics/t", gzip.compress(b"x" * 2000), key=key, headers=packed)
        assert answer.status == status
        answer = await house.ask("POST", "/v0/topics/t", b"no gzip", key=key, headers=packed)
        assert answer.status == (400 if status == 413 else status)


@in_house(API_KEYS=KEYS)
async def test_existing_and_absent_topics_both_answer_401_without_a_key(house: House) -> None:
    await house.ask("POST", "/v0/topics/there", RECORDS, key="full")
    for path in ("/v0/topics/there", "/v0/topics/absent", "/v0/nothing", "/nothing", "/v0/topics/%ff"):
        assert (await house.ask("GET", path)).status == 401
        assert (await house.ask("PATCH", path)).status == 401
    assert (await house.ask("GET", "/v0/topics/absent", key="full")).status == 404
    assert (await house.ask("GET", "/v0/nothing", key="full")).status == 404
    assert (await house.ask("POST", "/v0/health", key="full")).status == 405


@in_house(API_KEYS=KEYS)
async def test_refused_requests_leave_nothing_behind(house: House) -> None:
    for key in (None, "reader", "tenant"):
        assert (await house.ask("POST", "/v0/topics/ghost", RECORDS, key=key)).status in (401, 403)
        assert (await house.ask("PUT", "/v0/topics/ghost", {}, key=key)).status in (401, 403)
    assert house.broker.state.topics == {}


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
@in_house(API_KEYS=KEYS)
async def test_scheme_may_be_spelled_any_way(house: House, scheme: str) -> None:
    assert (await house.ask("GET", "/v0/topics", headers=(f"Authorization: {scheme}  full ",))).status == 200


@in_house(API_KEYS=KEYS)
async def test_token_in_the_url_does_not_open_data_routes(house: House) -> None:
    assert (await house.ask("GET", "/v0/topics?token=full")).status == 401
    assert (await house.ask("POST", "/v0/topics/x?token=full", RECORDS)).status == 401


@in_house(API_KEYS=KEYS)
async def test_two_authorization_headers_are_not_chosen_from(house: House) -> None:
    answer = await house.ask("GET", "/v0/topics", headers=("Authorization: Bearer wrong", "Authorization: Bearer full"))
    assert answer.status == 400


@in_house(API_KEYS=KEYS)
async def test_one_connection_may_use_several_keys(house: House) -> None:
    client = await house.connect()
    for _ in range(3):
        for key, status in (("full", 404), ("writer", 403), ("unknown", 401), ("reader", 404)):
            assert (await client.ask(raw("GET", "/v0/topics/x", key=key))).status == status
        assert (await client.ask(raw("GET", "/v0/topics/x"))).status == 401


@in_house(API_KEYS=KEYS)
async def test_list_shows_only_allowed_names_and_pages_over_them(house: House) -> None:
    names = [f"t42:{number}" for number in range(5)] + ["shared.a", "sharedness", "t4", "t43", "zz", "a"]
    for name in names:
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="full")

    async def listed(key: str, query: str = "") -> tuple[list[str], str | None]:
        answer = (await house.ask("GET", f"/v0/topics{query}", key=key)).json
        return [entry["topic"] for entry in answer["topics"]], answer.get("next_cursor")

    assert (await listed("full"))[0] == sorted(names)
    assert await listed("tenant") == (["shared.a", "t42:0", "t42:1", "t42:2", "t42:3", "t42:4"], None)
    assert await listed("tenant", "?prefix=t") == ([f"t42:{number}" for number in range(5)], None)
    assert await listed("tenant", "?prefix=t42:3") == (["t42:3"], None)
    assert await listed("tenant", "?prefix=z") == ([], None)
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page, cursor = await listed("tenant", f"?page_size=2&cursor={cursor}")
        assert len(page) == 2
        seen += page
    assert seen == (await listed("tenant"))[0]


@in_house(API_KEYS=KEYS)
async def test_probes_stay_open_and_metrics_need_read(house: House) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        assert (await house.ask("GET", path)).status == 200
        assert (await house.ask("GET", path, key="wrong")).status == 200
    assert (await house.ask("GET", "/v0/metrics")).status == 401
    assert (await house.ask("GET", "/v0/metrics", key="writer")).status == 403
    assert (await house.ask("GET", "/v0/metrics", key="reader")).status == 200


@in_house(API_KEYS=KEYS, PROBE_AUTH="true")
async def test_probe_auth_requires_any_key_for_probes(house: House) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz"):
        assert (await house.ask("GET", path)).status == 401
        assert (await house.ask("GET", path, key="writer")).status == 200


@in_house()
async def test_without_keys_credentials_are_ignored(house: House) -> None:
    for headers in [(), ("Authorization: Bearer whatever",), ("Authorization: Basic nonsense",)]:
        assert (await house.ask("GET", "/v0/topics", headers=headers)).status == 200


@in_house(API_KEYS=KEYS, recovered=False)
async def test_key_is_asked_for_before_the_server_says_that_it_starts(house: House) -> None:
    assert (await house.ask("GET", "/v0/topics")).status == 401
    assert (await house.ask("GET", "/v0/topics", key="full")).status == 503
    assert (await house.ask("GET", "/v0/metrics", key="full")).status == 200


@in_house(API_KEYS=KEYS)
async def test_large_body_of_a_stranger_is_refused_before_it_is_sent(house: House) -> None:
    for key, path, status in ((None, "/v0/topics/x", 401), ("reader", "/v0/topics/x", 403), ("full", "/nope", 404)):
        client = await house.connect()
        head = raw("POST", path, key=key, headers=("Content-Type: application/json", "Content-Length: 1000000"))
        answer = await client.ask(head)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        client.abort()


@in_house(API_KEYS=KEYS)
async def test_caller_whose_credential_runs_out_is_looked_at_every_time(house: House) -> None:
    left = [Caller("user", READ, lasting=False)] * 2

    house.service.authority.add_method(b"basic", lambda credential: left.pop() if left else None)
    client = await house.connect()
    request = raw("GET", "/v0/topics", headers=("Authorization: Basic dTpw",))
    assert [(await client.ask(request)).status for _ in range(4)] == [200, 200, 401, 401]


@in_house(API_KEYS=KEYS)
async def test_no_token_gets_into_the_log(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for key in ("full", "wrong-token", "reader"):
        for path in ("/v0/topics", "/v0/topics/x?token=query-token", "/v0/metrics"):
            await house.ask("GET", path, key=key)
    house.listener.slow_seconds = 0.0
    await house.ask("GET", "/v0/topics?token=query-token", key="full")
    await asyncio.sleep(0)
    assert "slow request" in caplog.text
    everything = caplog.text + repr([vars(record) for record in caplog.records])
    for token in ("full", "wrong-token", "reader", "query-token"):
        assert token not in everything


def test_anonymous_has_no_scopes_and_everyone_has_all() -> None:
    names: list[Any] = ["a", "", "/", "0"]
    assert all(EVERYONE.may_touch(name) for name in names)
    assert EVERYONE.may(READ | WRITE | DELETE | ADMIN)
    assert not any(ANONYMOUS.may_touch(name) for name in ("a", "0", "Z.x:-"))
    assert not any(ANONYMOUS.may(scope) for scope in (READ, WRITE, DELETE, ADMIN))


@in_house(API_KEYS=KEYS)
async def test_names_in_stages_commits_and_questions_must_lie_within_the_prefixes(house: House) -> None:
    for name in ("t42:a", "other"):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS, key="full")
    mine = (await house.ask("POST", "/v0/stages?topic=t42:a", RECORDS, key="tenant")).json["stage_id"]
    theirs = (await house.ask("POST", "/v0/stages?topic=other", RECORDS, key="full")).json["stage_id"]
    writes = [{"topic": "t42:a", **RECORDS}, {"topic": "other", **RECORDS}]
    for method, path, body in [
        ("POST", "/v0/stages?topic=other", RECORDS),
        ("DELETE", f"/v0/stages/{theirs}", None),
        ("POST", "/v0/commits", {"stages": [mine, theirs], "producer": "p", "batch": 1}),
        ("POST", "/v0/commits", {"writes": writes}),
        ("POST", "/v0/heads", {"topics": {"t42:a": {"0": 0}, "other": {"0": 0}}}),
    ]:
        answer = await house.ask(method, path, body, key="tenant")
        assert (answer.status, error_of(answer)["code"]) == (403, "forbidden"), (method, path)
    assert [topic.count for topic in house.broker.state.topics.values()] == [1, 1], "nothing was written"
    await house.ask("POST", "/v0/commits", {"producer": "p", "batch": 1}, key="tenant")
    both = {"stages": [mine, theirs], "producer": "p", "batch": 2}
    assert (await house.ask("POST", "/v0/commits", both, key="full")).json["count"] == 2
    shown = (await house.ask("GET", "/v0/producers/p", key="tenant")).json["results"]
    assert [each["topic"] for each in shown] == ["t42:a"]


@in_house()
async def test_an_unexpected_error_behind_a_password_is_answered_and_ends_nothing_else(house: House) -> None:
    """The request waits until its credential is checked. An exception in it must not reach the caller of the callback."""
    waiting: list[Callable[[], None]] = []
    known: list[Caller] = []

    def find(_credential: bytes) -> Caller | None:
        if not known:
            raise Undecided(lambda _request, again: waiting.append(again))
        return known[0]

    house.service.authority.add_method(b"basic", find)
    house.broker.names = None  # type: ignore[assignment,method-assign]
    client = await house.connect()
    await client.send(raw("GET", "/v0/topics", headers=("Authorization: Basic dTpw",)))
    await until(lambda: bool(waiting))
    known.append(EVERYONE)
    waiting[0]()
    answer = await client.answer()
    assert (answer.status, error_of(answer)["code"]) == (500, "internal")


@in_house(API_KEYS="full,runner:read:t42:|changes:t42.,stranger:read:t43:")
async def test_hidden_routes_are_counted_for_the_tables_of_the_key(house: House) -> None:
    for topic, table in (("t42:a", "t42.rows"), ("other", "t42.rows"), ("other", "t43.rows"), ("third", "t42.rows")):
        if topic not in house.broker.state.topics:
            await house.ask("POST", f"/v0/topics/{topic}", RECORDS, key="full")
        statement = f'ALTER TOPIC "{topic}" ADD SOURCE {table} ON INSERT'
        assert (await house.ask("POST", "/api/sql", {"sql": statement}, key="full")).status == 200

    async def visible_routes(key: str, query: str = "") -> tuple[list[str], int]:
        answer = (await house.ask("GET", f"/api/routes{query}", key=key)).json
        return [route["topic_id"] for route in answer["routes"]], answer["hidden"]

    assert await visible_routes("full") == (["t42:a", "other", "other", "third"], 0)
    assert await visible_routes("runner") == (["t42:a"], 2)
    assert await visible_routes("runner", "?table=t42.rows&op=Insert") == (["t42:a"], 2)
    assert await visible_routes("runner", "?table=t42.rows&op=Delete") == ([], 0)
    assert await visible_routes("runner", "?table=t43.rows") == ([], 0)
    assert await visible_routes("stranger") == ([], 0)
