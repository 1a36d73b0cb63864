"""The HTTP client of the tests: exact bytes out, exact bytes in, one connection per thread."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from topics.testing.http import Answer, Api

JSON = {"content-type": "application/json"}
RESPONSE = b"HTTP/1.1 200 OK\r\nX-Name: value\r\nContent-Length: 2\r\n%b\r\n{}"


@pytest.fixture(autouse=True)
def _no_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of the server check every response against its declaration; these responses have none."""
    monkeypatch.setattr(Api, "observer", None)


def receive(connection: socket.socket) -> bytes:
    """One request; empty at the end of the connection."""
    request = b""
    while b"\r\n\r\n" not in request:
        data = connection.recv(1 << 16)
        if not data:
            return b""
        request += data
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    while length is not None and len(body) < int(length[1]):
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


@contextmanager
def listening(*responses: bytes) -> Iterator[tuple[str, list[bytes], list[int]]]:
    """A server with a response for each request in turn: its URL, the requests, and the number of the connection of each."""
    requests: list[bytes] = []
    connections: list[int] = []

    def serve() -> None:
        left = list(responses)
        accepted = 0
        while left:
            connection, _ = listener.accept()
            accepted += 1
            with connection:
                while left and (request := receive(connection)):
                    requests.append(request)
                    connections.append(accepted)
                    connection.sendall(left[0])
                    if b"Connection: close" in left.pop(0):
                        break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests, connections
        thread.join(10)


def test_request_has_what_the_test_says_with_host_and_length_added() -> None:
    with listening(RESPONSE % b"") as (url, requests, _), Api(url, {"X-Always": "1"}) as api:
        answer = api.post("/p?q=1", b'{ "a" :1}', {"X-Once": "2"})
    host = url.removeprefix("http://")
    assert requests == [
        f"POST /p?q=1 HTTP/1.1\r\nHost: {host}\r\nX-Always: 1\r\nContent-Type: application/json\r\nX-Once: 2\r\n"
        'Content-Length: 9\r\n\r\n{ "a" :1}'.encode()
    ]
    assert (answer.status, answer.headers["x-name"], answer.body, answer.json) == (200, "value", b"{}", {})


def test_connection_is_kept_until_the_server_closes_it() -> None:
    closing = RESPONSE % b"Connection: close\r\n"
    with listening(RESPONSE % b"", closing, RESPONSE % b"") as (url, _, connections), Api(url) as api:
        for send in (api.get, api.delete, api.get):
            send("/")
    assert connections == [1, 1, 2]


def test_observer_sees_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, int]] = []
    monkeypatch.setattr(
        Api, "observer", staticmethod(lambda method, path, answer: seen.append((method, path, answer.status)))
    )
    with listening(RESPONSE % b"") as (url, _, _), Api(url) as api:
        api.put("/p", {"a": 1})
    assert seen == [("PUT", "/p", 200)]


def test_server_that_never_serves_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with Api(url) as api, pytest.raises(TimeoutError, match="not ready"):
        api.wait_until_ready(0.02)


def refused(body: bytes, headers: dict[str, str] = JSON) -> Callable[[], str]:
    return lambda: Answer(400, headers, body).code


def test_code_and_detail_of_an_error() -> None:
    answer = Answer(400, JSON, b'{"error":{"code":"bad_name","message":"m","detail":{"n":1}},"performance":{}}')
    assert (answer.code, answer.detail) == ("bad_name", {"n": 1})


@pytest.mark.parametrize(
    "code",
    [
        refused(b'{"error":{"code":"bad_name","message":"m"}}', {"content-type": "text/html"}),
        refused(b'{"error":{"code":"bad_name","message":"m"},"more":1}'),
        refused(b'{"error":{"code":"bad_name"}}'),
        refused(b'{"error":{"code":"bad_name","message":""}}'),
        refused(b'{"error":{"code":"bad_name","message":"m","hint":"h"}}'),
        refused(b'{"error":{"code":"BadName","message":"m"}}'),
    ],
)
def test_error_of_another_shape_has_no_code(code: Callable[[], str]) -> None:
    with pytest.raises(AssertionError):
        code()
