"""GET /v0/ws: writing and reading live over one connection."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.sync.client import ClientConnection, connect

from tests.acceptance.topic import TopicApi, refused
from topics.server.ops.settings import load_settings
from topics.testing.http import Answer, Api
from topics.testing.server import running_server

PATIENCE_SECONDS = 20
PING = Frame(Opcode.PING, b"").serialize(mask=False)


class Client:
    """One socket, seen from outside."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, **command: Any) -> None:
        self.connection.send(json.dumps(command))

    def next(self) -> dict[str, Any]:
        message = self.connection.recv(PATIENCE_SECONDS)
        assert isinstance(message, str)
        found: dict[str, Any] = json.loads(message)
        return found

    def ask(self, **command: Any) -> dict[str, Any]:
        self.send(**command)
        return self.next()

    def close_code(self) -> int | None:
        """How the server closed it, once it has."""
        try:
            while True:
                self.connection.recv(PATIENCE_SECONDS)
        except ConnectionClosed:
            return self.connection.close_code


@contextmanager
def socket_to(url: str, **options: Any) -> Iterator[Client]:
    with connect(url.replace("http://", "ws://") + "/v0/ws", compression=None, **options) as connection:
        yield Client(connection)


@pytest.fixture
def client(server_url: str) -> Iterator[Client]:
    with socket_to(server_url) as client:
        yield client


def start(stack: ExitStack, data_dirs: pytest.TempPathFactory, **settings: str) -> str:
    data_dir = str(data_dirs.mktemp("data"))
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": data_dir, **settings}
    return stack.enter_context(running_server(load_settings(environment)))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


# Subscribing


def test_a_subscription_is_answered_then_gets_the_backlog_then_new_records(client: Client, topic: TopicApi) -> None:
    topic.append_records({"data": 1, "node": "n", "tag": "t", "meta": {"m": 1}})
    answer = client.ask(op="subscribe", request_id="s1", topic=topic.name, include_tags=True)
    epoch = topic.state()["epoch"]
    assert answer == {
        "op": "subscribed",
        "request_id": "s1",
        "topics": {topic.name: {"from_seq": 0, "head_seq": 1, "earliest_seq": 1, "epoch": epoch}},
    }
    record = client.next()
    assert (record["op"], record["topic"]) == ("record", topic.name)
    assert (record["from_seq"], record["to_seq"], record["head_seq"]) == (0, 1, 1)
    assert set(record["records"][0]) == {"$seq", "$ts", "$node", "$tag", "data", "meta"}
    assert client.next() == {"op": "caught_up", "topic": topic.name, "head_seq": 1}
    topic.append(2)
    assert [each["data"] for each in client.next()["records"]] == [2]


def test_a_map_of_topics_subscribes_to_each_with_its_own_start(client: Client, api: Api, topic: TopicApi) -> None:
    other = TopicApi(api, f"{topic.name}.other")
    topic.append(1, 2)
    other.append(1, 2)
    answer = client.ask(op="subscribe", topics={topic.name: {"from_seq": 1}, other.name: {"tail": True}})
    assert answer["topics"][topic.name]["from_seq"] == 1
    assert answer["topics"][other.name]["from_seq"] == 2
    received = [client.next() for _ in range(3)]
    assert [each["data"] for frame in received if frame["op"] == "record" for each in frame["records"]] == [2]


def test_tail_and_node_and_limit_hold_for_this_subscription_alone(client: Client, topic: TopicApi) -> None:
    topic.append(0)
    client.ask(op="subscribe", topic=topic.name, tail=True, node="me", limit=1)
    assert client.next()["op"] == "caught_up"
    topic.append_records({"data": 1, "node": "me"}, {"data": 2}, {"data": 3})
    assert [[each["data"] for each in client.next()["records"]] for _ in range(2)] == [[2], [3]]


def test_a_second_subscription_to_a_topic_takes_the_place_of_the_first(client: Client, topic: TopicApi) -> None:
    topic.append(1)
    client.ask(op="subscribe", topic=topic.name)
    assert [client.next()["op"] for _ in range(2)] == ["record", "caught_up"]
    client.ask(op="subscribe", topic=topic.name, from_seq=0, include_data=False)
    assert set(client.next()["records"][0]) == {"$seq", "$ts"}


def test_no_records_follow_an_unsubscribe(client: Client, topic: TopicApi) -> None:
    topic.append(1)
    client.ask(op="subscribe", topic=topic.name, tail=True)
    client.next()
    answer = client.ask(op="unsubscribe", request_id=5, topic=topic.name)
    assert answer == {"op": "unsubscribed", "request_id": 5, "topic": topic.name}
    topic.append(2)
    assert client.ask(op="ping")["op"] == "pong"
    assert client.ask(op="unsubscribe", topic=topic.name)["op"] == "unsubscribed"


def test_losses_and_the_end_of_a_topic_are_sent(client: Client, topic: TopicApi) -> None:
    topic.configure(cap_records=1)
    topic.append(1)
    topic.append(2)
    client.ask(op="subscribe", topic=topic.name)
    assert client.next() == {
        "op": "tombstone",
        "topic": topic.name,
        "reason": "from_seq_too_old",
        "gap_from": 1,
        "gap_to": 1,
        "earliest_seq": 2,
        "head_seq": 2,
    }
    assert [client.next()["op"] for _ in range(2)] == ["record", "caught_up"]
    topic.drop()
    assert client.next() == {"op": "topic_deleted", "topic": topic.name, "head_seq": 2, "reason": "deleted"}
    topic.append("new")
    assert client.ask(op="ping")["op"] == "pong"
    client.ask(op="subscribe", topic=topic.name)
    assert [each["data"] for each in client.next()["records"]] == ["new"]


def test_a_subscription_that_is_refused_changes_nothing(client: Client, topic: TopicApi) -> None:
    topic.append(1)
    for command, code in (
        ({"topic": f"{topic.name}.not"}, "topic_not_found"),
        ({"topics": {topic.name: {}, f"{topic.name}.not": {}}}, "topic_not_found"),
        ({}, "invalid_request"),
        ({"topics": {}}, "invalid_request"),
        ({"topic": "bad name"}, "invalid_request"),
        ({"topic": topic.name, "from_seq": "1"}, "invalid_request"),
        ({"topics": {f"t{number}": {} for number in range(257)}}, "invalid_request"),
    ):
        answer = client.ask(op="subscribe", request_id="r", **command)
        assert (answer["op"], answer["request_id"], answer["code"]) == ("error", "r", code)
        assert answer["message"]
    topic.append(2)
    assert client.ask(op="ping")["op"] == "pong"


# Publishing


def test_a_publish_is_an_append_with_all_its_fields(client: Client, topic: TopicApi) -> None:
    answer = client.ask(
        op="publish",
        request_id="p1",
        topic=topic.name,
        records=[{"data": {"x": 1}, "tag": "t"}, {"data": 2, "node": "own", "meta": {"k": 1}}],
        node="batch",
        config={"cap_records": 7},
        idempotency_key="key",
    )
    assert answer["op"] == "ack"
    assert (answer["request_id"], answer["topic"], answer["seqs"]) == ("p1", topic.name, [1, 2])
    assert (answer["last_seq"], answer["head_seq"], answer["created"]) == (2, 2, True)
    assert answer["performance"]["fsync_ms"] >= 0
    assert topic.state()["config"]["cap_records"] == 7
    assert [record["$node"] for record in topic.read_all()] == ["batch", "own"]
    again = client.ask(op="publish", topic=topic.name, records=[{"data": 3}], idempotency_key="key", return_seqs=False)
    assert (again["deduped"], again["last_seq"]) == (True, 2)
    assert "seqs" not in again


def test_payloads_pass_byte_for_byte_in_both_directions(client: Client, topic: TopicApi) -> None:
    data = '{"b" :1.0,\n"a":-0, "b":1E5,"\\u0041\\/":[ 1e400,\r\n123456789012345678901234567890 ],"é":""}'
    client.connection.send(f'{{"op":"publish","topic":"{topic.name}","records":[{{"data":{data}}}]}}')
    assert client.next()["op"] == "ack"
    client.send(op="subscribe", topic=topic.name)
    client.next()
    message = client.connection.recv(PATIENCE_SECONDS)
    assert isinstance(message, str)
    assert data in message


def test_commands_are_carried_out_in_order_without_waiting_for_answers(client: Client, topic: TopicApi) -> None:
    client.send(op="publish", request_id=1, topic=topic.name, records=[{"data": 1}], config={"durability": "fsync"})
    client.send(op="publish", request_id=2, topic=topic.name, records=[{"data": 2}])
    client.send(op="publish", request_id=3, topic=f"{topic.name}.not", records=[{"data": 2}], create=False)
    client.send(op="subscribe", request_id=4, topic=topic.name)
    client.send(op="ping", request_id=5)
    received = [client.next() for _ in range(7)]
    answers = [message for message in received if "request_id" in message]
    assert [message["request_id"] for message in answers] == [1, 2, 3, 4, 5]
    assert [message["op"] for message in answers] == ["ack", "ack", "error", "subscribed", "pong"]
    (record,) = [message for message in received if message["op"] == "record"]
    assert [each["data"] for each in record["records"]] == [1, 2]


def test_many_publishes_at_once_are_answered_in_order(client: Client, topic: TopicApi) -> None:
    for number in range(3000):
        client.send(op="publish", request_id=number, topic=topic.name, records=[{"data": number}])
    answers = [client.next() for _ in range(3000)]
    assert [answer["request_id"] for answer in answers] == list(range(3000))
    assert [answer["last_seq"] for answer in answers] == list(range(1, 3001))


def test_a_write_that_is_refused_is_an_error_message(client: Client, topic: TopicApi) -> None:
    for fields, code in (
        ({"topic": topic.name, "records": []}, "invalid_request"),
        ({"topic": topic.name}, "invalid_request"),
        ({"records": [{"data": 1}]}, "invalid_request"),
        ({"topic": "bad name", "records": [{"data": 1}]}, "invalid_request"),
        ({"topic": topic.name, "records": [{"data": 1}], "create": False}, "topic_not_found"),
        ({"topic": topic.name, "records": [{"data": 1}] * 10_001}, "batch_too_large"),
    ):
        answer = client.ask(op="publish", request_id="r", **fields)
        assert (answer["op"], answer["request_id"], answer["code"]) == ("error", "r", code)
    assert not topic.exists()


# Messages that are no commands


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ("{broken", None),
        ("[]", None),
        ("5", None),
        ("", None),
        ('{"op":"dance","request_id":"x"}', "x"),
        ('{"op":5,"request_id":"x"}', "x"),
        ('{"request_id":[1]}', [1]),
        ('{"op":"ping"}{"op":"ping"}', None),
        (b'{"op":"ping"}', None),
    ],
)
def test_what_is_no_command_gets_an_error_and_the_socket_stays_open(
    client: Client, message: str | bytes, request_id: Any
) -> None:
    client.connection.send(message)
    answer = client.next()
    assert (answer["op"], answer["code"]) == ("error", "invalid_request")
    assert answer.get("request_id") == request_id
    assert client.ask(op="ping", request_id=1)["request_id"] == 1


def test_a_message_in_fragments_is_one_message(client: Client) -> None:
    client.connection.send(iter(['{"op":"pi', 'ng","request', '_id":1}']))
    assert client.next()["request_id"] == 1


def test_text_that_is_not_utf_8_gets_an_error(client: Client) -> None:
    client.connection.socket.sendall(Frame(Opcode.TEXT, b'{"op":"\xff"}').serialize(mask=True))
    assert client.next()["code"] == "invalid_request"


def test_a_message_that_is_too_large_closes_the_socket(
    stack: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = start(stack, tmp_path_factory, TOPICS_MAX_BODY_BYTES="1000")
    with socket_to(url) as client:
        client.connection.send("x" * 1001)
        assert client.close_code() == 1009
    with socket_to(url) as client:
        with suppress(ConnectionClosed):  # the close may come before the frame that ends the message has gone out
            client.connection.send(iter(["x" * 600, "x" * 600]))
        assert client.close_code() == 1009


def test_a_frame_that_breaks_the_protocol_closes_the_socket(client: Client) -> None:
    client.connection.socket.sendall(Frame(Opcode.TEXT, b"unmasked").serialize(mask=False))
    assert client.close_code() == 1002


def test_pings_are_answered_by_pongs(client: Client) -> None:
    assert client.connection.ping("are you there").wait(PATIENCE_SECONDS)


def test_a_close_is_answered_by_a_close(client: Client) -> None:
    client.connection.close(1000, "done")
    assert client.connection.close_code == 1000


def test_a_silent_socket_is_pinged_and_one_that_does_not_answer_is_closed(
    stack: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = start(stack, tmp_path_factory, TOPICS_PING_MS="20")
    with dumb_socket(url) as raw:
        data = b"".join(iter(lambda: raw.recv(4096), b""))
        assert data.startswith(PING)
        assert b"\x03\xf3" in data  # close code 1011


def test_a_silent_socket_that_answers_pings_stays_open(
    stack: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = start(stack, tmp_path_factory, TOPICS_PING_MS="300")
    with dumb_socket(url) as raw:
        for _ in range(3):
            assert raw.recv(len(PING)) == PING
            raw.sendall(Frame(Opcode.PONG, b"").serialize(mask=True))
        raw.sendall(Frame(Opcode.TEXT, b'{"op":"ping"}').serialize(mask=True))
        assert b'"op":"pong"' in raw.recv(4096)


# Who may


def handshake(**changes: str | None) -> dict[str, str]:
    headers: dict[str, str | None] = {
        "Connection": "keep-alive, Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return {name: value for name, value in headers.items() if value is not None}


@pytest.mark.parametrize(
    "headers",
    [
        handshake(Upgrade=None),
        handshake(Sec_WebSocket_Key=None),
        handshake(Sec_WebSocket_Key="short"),
        handshake(Sec_WebSocket_Version="8"),
        handshake(Connection="keep-alive"),
    ],
)
def test_what_is_no_proper_handshake_is_refused_over_http(api: Api, headers: dict[str, str]) -> None:
    refused(api.get("/v0/ws", headers), 400, "invalid_request")


def test_only_get_opens_a_socket(api: Api) -> None:
    refused(api.post("/v0/ws", {}), 405, "method_not_allowed")


def test_pages_from_elsewhere_may_not_use_a_server_without_keys(server_url: str) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1.evil.example", "http://localhost:3000"):
        assert status_of_refusal(server_url, additional_headers={"Origin": origin}).code == "forbidden"
    with socket_to(server_url, additional_headers={"Origin": server_url}) as client:
        assert client.ask(op="ping")["op"] == "pong"


def status_of_refusal(url: str, **options: Any) -> Answer:
    with pytest.raises(InvalidStatus) as raised, socket_to(url, **options):
        pass
    response = raised.value.response
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    return Answer(response.status_code, headers, bytes(response.body or b""))


def test_a_socket_needs_a_key_and_each_command_its_scope(
    stack: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = start(stack, tmp_path_factory, TOPICS_API_KEYS="all,r:read,w:write,p::mine,a:write+admin,d:delete")
    assert status_of_refusal(url).status == 401
    assert status_of_refusal(url, additional_headers={"Authorization": "Bearer wrong"}).status == 401
    with pytest.raises(InvalidStatus), connect(url.replace("http://", "ws://") + "/v0/ws?token=all"):
        pass

    def outcome(key: str, **command: Any) -> str:
        with socket_to(url, additional_headers={"Authorization": f"Bearer {key}"}) as client:
            answer = client.ask(**command)
            return str(answer.get("code", answer["op"]))

    write = {"op": "publish", "topic": "mine.a", "records": [{"data": 1}]}
    configure = {**write, "config": {"cap_records": 5}}
    read = {"op": "subscribe", "topic": "mine.a"}
    theirs = {"topic": "theirs"}
    assert outcome("all", **write) == "ack"
    assert outcome("d", op="ping") == "pong"
    assert outcome("d", **write) == outcome("d", **read) == "forbidden"
    assert (outcome("r", **read), outcome("r", **write)) == ("subscribed", "forbidden")
    assert (outcome("w", **read), outcome("w", **write)) == ("forbidden", "ack")
    assert (outcome("w", **configure), outcome("a", **configure)) == ("forbidden", "ack")
    assert (outcome("p", **read), outcome("p", **write)) == ("subscribed", "ack")
    assert outcome("p", **{**read, **theirs}) == outcome("p", **{**write, **theirs}) == "forbidden"
    dead_letter = {**write, "topic": "mine.b", "config": {"type": "queue", "dead_letter": "theirs"}}
    assert outcome("p", **dead_letter) == "forbidden"


def test_sockets_count_as_connections(stack: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> None:
    url = start(stack, tmp_path_factory, TOPICS_MAX_SSE_CONNECTIONS="1")
    with socket_to(url) as client:
        client.ask(op="ping")
        answer = status_of_refusal(url)
        assert (answer.status, answer.code) == (429, "throttled")
        assert answer.detail == {"limit": "max_sse_connections", "max": 1}
        client.connection.close()
    with socket_to(url) as client:
        client.ask(op="ping")


# Slow clients and the end


def test_a_socket_that_reads_nothing_gets_an_error_and_is_closed(
    stack: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    url = start(stack, tmp_path_factory, TOPICS_SLOW_CONSUMER_TIMEOUT_MS="100", TOPICS_MAX_SSE_CONNECTIONS="1")
    with Api(url) as api, dumb_socket(url) as raw:
        topic = TopicApi(api, "a")
        topic.configure()
        raw.sendall(Frame(Opcode.TEXT, b'{"op":"subscribe","topic":"a"}').serialize(mask=True))
        for _ in range(100):
            topic.append("x" * 100_000)
        wait_until_closed(api)
        data = b"".join(iter(lambda: raw.recv(1 << 20), b""))
        assert b'"code":"slow_consumer"' in data
        assert b"\x03\xf5" in data  # close code 1013


def wait_until_closed(api: Api) -> None:
    """Until the only connection the server allows is free again."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            with socket_to(api.url):
                return
        except InvalidStatus:
            time.sleep(0.005)
    raise AssertionError("the socket was never closed")


def test_a_stopping_server_says_that_it_goes_away(stack: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> None:
    with ExitStack() as inner:
        url = start(inner, tmp_path_factory)
        client = stack.enter_context(socket_to(url))
        client.ask(op="ping")
    assert client.close_code() == 1001


@contextmanager
def dumb_socket(url: str) -> Iterator[socket.socket]:
    """A WebSocket whose client has little room and answers nothing by itself."""
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(PATIENCE_SECONDS)
        raw.connect((host, int(port)))
        lines = "".join([f"{name}: {value}\r\n" for name, value in handshake().items()])
        raw.sendall(f"GET /v0/ws HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += raw.recv(1)
        assert head.startswith(b"HTTP/1.1 101")
        yield raw
