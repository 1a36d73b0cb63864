"""HTTP responses are read from any pieces, connections are kept, and what is not HTTP is refused."""

import pytest

from tests.client.conftest import make_client
from tests.client.test_connection import Forwarder
from topics.client.transport.address import find_address
from topics.client.transport.http import ResponseReader, request_bytes

RESPONSE = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-Name: Value\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"


@pytest.mark.parametrize("response", [RESPONSE, CHUNKED], ids=["length", "chunked"])
def test_a_response_is_the_same_in_any_pieces(response: bytes) -> None:
    for cut in range(1, len(response)):
        reader = ResponseReader()
        reader.feed(response[:cut])
        if not reader.done:
            reader.feed(response[cut:])
        answer = reader.answer
        assert (answer.status in (200, 201), answer.body, answer.keep_alive) == (True, b"hello", True)


def test_a_response_shows_whether_the_connection_stays_open() -> None:
    reader = ResponseReader()
    reader.feed(RESPONSE.replace(b"X-Name: Value", b"Connection: close"))
    assert not reader.answer.keep_alive


@pytest.mark.parametrize("data", [b"", b"SSH-2.0-OpenSSH\r\n"])
def test_what_is_no_response_is_a_connection_error(data: bytes) -> None:
    with pytest.raises(ConnectionError):
        ResponseReader().feed(data)


def test_a_request_has_the_length_of_its_body_and_the_path_of_a_reverse_proxy() -> None:
    address = find_address("http://[::1]:4000/topics/")
    assert request_bytes(address, "PUT", "/v0/x", {"A": "b"}, b"{}") == (
        b"PUT /topics/v0/x HTTP/1.1\r\nHost: [::1]:4000\r\nA: b\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert b"Content-Length: 0" in request_bytes(address, "POST", "/v0/x", {}, None)


def test_one_connection_serves_many_requests(kind: str, url: str, topic: str) -> None:
    accepted = Forwarder(url)
    client = make_client(kind, f"http://127.0.0.1:{accepted.port}")
    for number in range(10):
        client.append(topic, [number])
    assert accepted.connections == 1
    client.close()
    accepted.close()
