"""Section 0.2: keys, scopes and prefixes. Most checks need `--token`, those of scopes `--key`."""

from topics.conformance.checks import Skipped, cases, check, equal, fields, refused, succeeded, true
from topics.conformance.server import Response, Server

ALLOWED_PREFIX = "conformance-allowed:"

# Request -> the scopes it needs.
REQUESTS: dict[str, tuple[str, str, object, tuple[str, ...]]] = {
    "list topics": ("GET", "/v0/topics", None, ("read",)),
    "state": ("GET", "/v0/topics/{log}", None, ("read",)),
    "diff": ("POST", "/v0/topics/{log}/diff", {}, ("read",)),
    "list routers": ("GET", "/v0/routers", None, ("read",)),
    "watch": ("POST", "/v0/watch", {"topics": {"{log}": {}}}, ("read",)),
    "metrics": ("GET", "/v0/metrics", None, ("read",)),
    "append": ("POST", "/v0/topics/{log}", {"records": [{"data": 1}]}, ("write",)),
    "ack": ("POST", "/v0/topics/{queue}/ack", {"node": "w", "seqs": [1]}, ("write",)),
    "nack": ("POST", "/v0/topics/{queue}/nack", {"node": "w", "seqs": [1]}, ("write",)),
    "extend": ("POST", "/v0/topics/{queue}/extend", {"node": "w", "seqs": [1], "lease_ms": 1000}, ("write",)),
    "claim": ("POST", "/v0/topics/{queue}/claim", {"node": "w"}, ("read", "write")),
    "delete records": ("POST", "/v0/topics/{log}/delete", {"before_seq": 1}, ("delete",)),
    "delete a topic": ("DELETE", "/v0/topics/{other}", None, ("delete",)),
    "delete a router": ("DELETE", "/v0/routers/{router}", None, ("delete",)),
    "create a topic": ("PUT", "/v0/topics/{other}", {}, ("admin",)),
    "create a router": ("PUT", "/v0/routers/{router}", {"source": "{log}", "dest": "{other}"}, ("admin",)),
}


def _needs_auth(server: Server) -> str:
    if not server.token:
        raise Skipped("needs --token: the server was checked without keys")
    return server.token


def _key(server: Server, name: str) -> str:
    if name not in server.keys:
        raise Skipped(f"needs --key {name}=KEY")
    return server.keys[name]


def _call(server: Server, what: str, token: str | None) -> Response:
    """Send one of the requests with this token, to topics that exist."""
    names = {"log": server.create(), "queue": server.create(type="queue"), "other": server.new_name(), "router": server.new_router_name()}  # fmt: skip
    method, path, body, _ = REQUESTS[what]

    def filled(value: object) -> object:
        if isinstance(value, str):
            return value.format(**names) if value.startswith("{") else value
        if isinstance(value, dict):
            return {filled(key): filled(each) for key, each in value.items()}
        return value

    caller = server.with_token(token)
    path = path.format(**names)
    if body is None:
        return caller.send(method, path)
    return caller.send(method, path, filled(body), {"Content-Type": "application/json"})


@cases({what: what for what in REQUESTS})
def request_without_a_token_is_401(server: Server, what: str) -> None:
    _needs_auth(server)
    refused(_call(server, what, None), 401, "unauthorized")


@cases({what: what for what in REQUESTS})
def request_with_an_unknown_token_is_401(server: Server, what: str) -> None:
    _needs_auth(server)
    refused(_call(server, what, "no-such-key"), 401, "unauthorized")


@check
def absent_topic_without_a_token_is_401(server: Server) -> None:
    _needs_auth(server)
    refused(server.with_token(None).get(server.topic_path()), 401, "unauthorized")


@cases({"Basic": "Basic {}", "no scheme": "{}", "a space before": "Bearer  x{}"})
def other_authorization_is_401(server: Server, form: str) -> None:
    token = _needs_auth(server)
    response = server.with_token(None).get("/v0/topics", {"Authorization": form.format(token)})
    refused(response, 401, "unauthorized")


@check
def token_in_the_query_is_not_accepted_on_data_routes(server: Server) -> None:
    token = _needs_auth(server)
    refused(server.with_token(None).get(f"/v0/topics?token={token}"), 401, "unauthorized")


@check
def token_in_the_query_opens_an_event_stream(server: Server) -> None:
    token = _needs_auth(server)
    url = server.watch({server.create(): {}})["stream_url"]
    equal(server.with_token(None).stream(f"{url}?token={token}").status, 200, "status")


@check
def wid_alone_does_not_open_the_stream(server: Server) -> None:
    _needs_auth(server)
    url = server.watch({server.create(): {}})["stream_url"]
    equal(server.with_token(None).stream(url).status, 401, "status")


@check
def another_valid_key_does_not_open_the_stream(server: Server) -> None:
    _needs_auth(server)
    other = _key(server, "read")
    url = server.watch({server.create(): {}})["stream_url"]
    equal(server.with_token(other).stream(url).status, 401, "status")


@check
def websocket_without_a_token_is_refused(server: Server) -> None:
    _needs_auth(server)
    try:
        server.with_token(None).websocket()
    except (ConnectionError, EOFError):
        return
    true(False, "the WebSocket was opened")


@cases({"health": "/v0/health", "ready": "/v0/ready"})
def probe_needs_no_token(server: Server, path: str) -> None:
    equal(server.with_token(None).get(path).status, 200, "status")


@check
def without_keys_the_header_is_ignored(server: Server) -> None:
    if server.token:
        raise Skipped("the server was checked with keys")
    equal(server.with_token("anything").get("/v0/topics").status, 200, "status")


@cases({f"{name} key, {what}": (name, what) for name in ("read", "write", "delete", "admin") for what in REQUESTS})
def scope_decides(server: Server, case: tuple[str, str]) -> None:
    _needs_auth(server)
    name, what = case
    response = _call(server, what, _key(server, name))
    if {*REQUESTS[what][3]} == {name}:
        true(response.status in (200, 201), f"{response.request} with the {name} key got {response.status}")
    else:
        refused(response, 403, "forbidden")


@check
def prefix_key_sees_only_its_names(server: Server) -> None:
    _needs_auth(server)
    caller = server.with_token(_key(server, "prefix"))
    other = server.create()
    mine = f"{ALLOWED_PREFIX}{other}"
    equal(caller.put(server.topic_path(mine), {}).status, 201, "status of a create inside the prefix")
    try:
        refused(caller.get(server.topic_path(other)), 403, "forbidden")
        refused(caller.post("/v0/watch", {"topics": {other: {}}}), 403, "forbidden")
        refused(caller.post("/v0/watch?lenient=true", {"topics": {other: {}}}), 403, "forbidden")
        body = {"source": mine, "dest": other}
        refused(caller.put(f"/v0/routers/{ALLOWED_PREFIX}{other}", body), 403, "forbidden")
        listed = [entry["topic"] for entry in succeeded(caller.get("/v0/topics?page_size=1000"))["topics"]]
        true(mine in listed, "the list lacks a topic inside the prefix")
        true(all([name.startswith(ALLOWED_PREFIX) for name in listed]), f"the list shows other topics: {listed[:5]}")
    finally:
        server.delete(server.topic_path(mine))


@check
def websocket_commands_need_their_scope(server: Server) -> None:
    _needs_auth(server)
    name = server.create()
    socket = server.with_token(_key(server, "read")).websocket()
    fields(socket.call(op="publish", topic=name, records=[{"data": 1}]), op="error", code="forbidden")
    fields(socket.call(op="subscribe", topic=name), op="subscribed")
    socket = server.with_token(_key(server, "write")).websocket()
    fields(socket.call(op="subscribe", topic=name), op="error", code="forbidden")
    fields(socket.call(op="publish", topic=name, records=[{"data": 1}]), op="ack")
    fields(socket.call(op="publish", topic=name, records=[{"data": 1}], config={}), op="error", code="forbidden")
