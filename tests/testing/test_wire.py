"""A connection without a network: what a stream writes is read when the test reads it."""

from topics.testing.wire import DirectRequest


def test_request_has_its_parts_and_keeps_its_response() -> None:
    direct = DirectRequest(b"POST", b"/v0/topics/t?wait=1", b"body", {b"x-name": b"value"})
    request = direct.request
    assert (request.method, request.path, request.query, request.body) == (b"POST", b"/v0/topics/t", b"wait=1", b"body")
    assert (request.header(b"x-name"), request.header(b"x-other")) == (b"value", None)
    request.respond(404, b"{}")
    assert (direct.status, direct.answer) == (404, b"{}")


def test_stream_above_the_high_water_mark_continues_when_the_client_has_read() -> None:
    direct = DirectRequest(b"GET", b"/", high=4)
    drained: list[int] = []
    stream = direct.request.stream()
    stream.on_drain(lambda: drained.append(stream.buffered))
    stream.write(b"1234")
    assert stream.writable
    stream.write(b"5")
    assert (stream.writable, stream.buffered) == (False, 5)
    assert (direct.wire.take(), drained, stream.writable) == (b"12345", [0], True)
    assert (direct.wire.take(), drained) == (b"", [0])


def test_client_that_is_gone_loses_what_it_has_not_read() -> None:
    direct = DirectRequest(b"GET", b"/", high=4)
    gone: list[bool] = []
    stream = direct.request.stream()
    stream.on_close(lambda: gone.append(True))
    stream.write(b"1")
    direct.wire.cut()
    stream.write(b"2")
    assert (gone, stream.closed, stream.buffered) == ([True], True, 0)
    assert not direct.wire.ended


def test_stream_that_is_closed_ends_the_response() -> None:
    direct = DirectRequest(b"GET", b"/", high=4)
    direct.request.stream(status=201).close()
    assert (direct.status, direct.wire.ended) == (201, True)
