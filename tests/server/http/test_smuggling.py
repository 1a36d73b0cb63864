"""Ambiguous requests (request smuggling) are refused and the connection is closed."""

import pytest

from tests.server.http.wire import Server, get, serving

HOST = b"Host: a\r\n"
LINE = b"POST /x HTTP/1.1\r\n"
POST = LINE + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED = {
    # Two lengths, or none that is one.
    "length_and_chunked": (400, POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunked_and_length": (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    "length_twice_different": (400, POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    "length_twice_equal": (400, POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    "length_list": (400, POST + b"Content-Length: 3, 3\r\n\r\nabc"),
    "length_plus": (400, POST + b"Content-Length: +3\r\n\r\nabc"),
    "length_minus": (400, POST + b"Content-Length: -3\r\n\r\nabc"),
    "length_hex": (400, POST + b"Content-Length: 0x3\r\n\r\nabc"),
    "length_word": (400, POST + b"Content-Length: three\r\n\r\nabc"),
    "length_empty": (400, POST + b"Content-Length:\r\n\r\nabc"),
    "length_underscore": (400, POST + b"Content-Length: 1_0\r\n\r\n0123456789"),
    "length_inner_space": (400, POST + b"Content-Length: 1 0\r\n\r\n0123456789"),
    "length_overflow": (400, POST + b"Content-Length: 184467440737095516160\r\n\r\nabc"),
    # Transfer codings.
    "xchunked": (501, POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "chunkedx": (501, POST + b"Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n"),
    "gzip_chunked": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "empty_item_chunked": (501, POST + b"Transfer-Encoding: , chunked\r\n\r\n0\r\n\r\n"),
    "identity": (501, POST + b"Transfer-Encoding: identity\r\n\r\n"),
    "chunked_gzip": (400, POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    "chunked_list": (400, POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    "chunked_twice": (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunked_identity": (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    "chunked_vertical_tab": (400, POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "transfer_empty": (400, POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n"),
    "chunked_1_0": (400, b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    # Line ends and white space.
    "bare_lf": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "bare_lf_in_headers": (400, b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"),
    "bare_lf_at_end": (400, b"GET / HTTP/1.1\r\nHost: a\r\n\n"),
    "bare_cr": (400, b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"),
    "folded": (400, b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
    "folded_transfer": (400, POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    "space_before_first_header": (400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    "space_before_colon": (400, POST + b"Content-Length : 3\r\n\r\nabc"),
    "tab_before_colon": (400, POST + b"Content-Length\t: 3\r\n\r\nabc"),
    "no_colon": (400, POST + b"Nonsense\r\n\r\n"),
    "empty_name": (400, POST + b": value\r\n\r\n"),
    "nul_in_value": (400, POST + b"X: a\0b\r\n\r\n"),
    "nul_in_name": (400, POST + b"X\0: b\r\n\r\n"),
    "control_in_value": (400, POST + b"X: a\x01b\r\n\r\n"),
    "space_after_version": (400, b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    # Chunks.
    "chunk_size_lf": (400, CHUNKED + b"3\nabc\r\n0\r\n\r\n"),
    "chunk_extension_lf": (400, CHUNKED + b"3;a\nabc\r\n0\r\n\r\n"),
    "chunk_data_lf": (400, CHUNKED + b"3\r\nabc\n0\r\n\r\n"),
    "chunk_without_end": (400, CHUNKED + b"3\r\nabc0\r\n\r\n"),
    "chunk_hex_prefix": (400, CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n"),
    "chunk_plus": (400, CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n"),
    "chunk_space": (400, CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n"),
    "chunk_empty_size": (400, CHUNKED + b"\r\nabc\r\n0\r\n\r\n"),
    "chunk_overflow": (400, CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    "trailer_length": (400, CHUNKED + b"3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n"),
    "trailer_transfer": (400, CHUNKED + b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    # Host and other headers that may come only once.
    "no_host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "host_twice": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
    "host_twice_1_0": (400, b"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n"),
    "host_with_space": (400, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    "host_with_path": (400, b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    "authorization_twice": (400, POST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"),
    "content_type_twice": (400, POST + b"Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n"),
    # Targets.
    "target_fragment": (400, b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n"),
    "target_non_ascii": (400, b"GET /\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "target_control": (400, b"GET /\x01 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "target_nul": (400, b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "target_space": (400, b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n"),
    "target_relative": (400, b"GET a/b HTTP/1.1\r\n" + HOST + b"\r\n"),
    "target_star": (400, b"GET * HTTP/1.1\r\n" + HOST + b"\r\n"),
    "target_without_authority": (400, b"GET http:// HTTP/1.1\r\n" + HOST + b"\r\n"),
    # Versions and methods.
    "version_missing": (505, b"GET /\r\n\r\n"),
    "version_0_9": (505, b"GET / HTTP/0.9\r\n\r\n"),
    "version_2": (505, b"GET / HTTP/2.0\r\n" + HOST + b"\r\n"),
    "version_1_2": (400, b"GET / HTTP/1.2\r\n" + HOST + b"\r\n"),
    "version_unknown": (400, b"GET / HTTPS/1.1\r\n" + HOST + b"\r\n"),
    "version_lower_case": (400, b"GET / http/1.1\r\n" + HOST + b"\r\n"),
    "method_unknown": (405, b"BREW /x HTTP/1.1\r\n" + HOST + b"\r\n"),
    "method_lower_case": (405, b"get /x HTTP/1.1\r\n" + HOST + b"\r\n"),
    "connect": (405, b"CONNECT a:80 HTTP/1.1\r\n" + HOST + b"\r\n"),
    "tls_hello": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64),
    "expectation": (417, POST + b"Expect: 200-ok\r\nContent-Length: 3\r\n\r\nabc"),
}
CODES = {
    400: "invalid_request",
    405: "method_not_allowed",
    417: "expectation_failed",
    501: "not_implemented",
    505: "http_version_not_supported",
}


@pytest.mark.parametrize("shape", REFUSED)
@serving()
async def test_ambiguous_request_is_refused_and_nothing_after_it_is_served(server: Server, shape: str) -> None:
    status, raw = REFUSED[shape]
    client = await server.connect()
    await client.ask(get("/before"))
    answer = await client.ask(raw + get("/smuggled"))
    assert (answer.status, answer.code) == (status, CODES[status])
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()
    assert [request.path for request in server.app.requests] == [b"/before"]


@serving()
async def test_requests_before_an_ambiguous_one_are_answered_first(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later") + get("/second") + b"\0\0\0" + get("/smuggled"))
    (await server.app.next()).respond(200, b"{}")
    assert (await client.answer()).body == b"{}"
    assert (await client.answer()).json["path"] == "/second"
    assert (await client.answer()).status == 400
    assert await client.is_closed()


@pytest.mark.parametrize("shape", REFUSED)
@serving()
async def test_ambiguous_request_is_refused_however_it_is_cut(server: Server, shape: str) -> None:
    """One byte at a time, straight into the connection's own parser."""
    status, raw = REFUSED[shape]
    client = await server.connect()
    await client.ask(get("/before"))
    connection = server.connection()
    for position in range(len(raw)):
        connection.data_received(raw[position : position + 1])
    answer = await client.answer()
    # Of a method that came in pieces it is not known that it is a word.
    assert answer.status == status or (answer.status, shape) in ((400, "method_unknown"), (400, "method_lower_case"))
    assert await client.is_closed()
    assert [request.path for request in server.app.requests] == [b"/before"]


ACCEPTED = {
    "length_spaces_around": (POST + b"Content-Length: \t3 \t\r\n\r\nabc", "abc"),
    "length_leading_zero": (POST + b"Content-Length: 03\r\n\r\nabc", "abc"),
    "length_without_space": (POST + b"Content-Length:3\r\n\r\nabc", "abc"),
    "chunked_any_case": (POST + b"transfer-encoding: Chunked \r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc"),
    "chunk_extension": (CHUNKED + b'3;a=b;c="d"\r\nabc\r\n0\r\n\r\n', "abc"),
    "chunk_leading_zeros": (CHUNKED + b"0003\r\nabc\r\n0\r\n\r\n", "abc"),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nX-Checksum: 1\r\nAuthorization: Bearer stolen\r\n\r\n", "abc"),
    "empty_host": (LINE + b"Host:\r\nContent-Length: 3\r\n\r\nabc", "abc"),
    "host_and_port": (LINE + b"Host: [::1]:4000\r\nContent-Length: 3\r\n\r\nabc", "abc"),
    "leading_blank_lines": (b"\r\n\r\n" + POST + b"Content-Length: 3\r\n\r\nabc", "abc"),
    "high_bytes_in_value": (POST + b"X: \xff\xfe\r\nContent-Length: 3\r\n\r\nabc", "abc"),
    "absolute_target": (b"POST http://a:80/x HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc", "abc"),
}


@pytest.mark.parametrize("shape", ACCEPTED)
@serving()
async def test_unusual_but_clear_request_is_served_and_so_is_the_next(server: Server, shape: str) -> None:
    raw, body = ACCEPTED[shape]
    client = await server.connect()
    for _ in range(3):
        answer = await client.ask(raw)
        assert answer.json == {"method": "POST", "path": "/x", "query": "", "body": body}
    await client.send(raw + get("/next"))
    await client.answer()
    assert (await client.answer()).json["path"] == "/next"


@serving()
async def test_trailers_do_not_become_headers_of_this_or_the_next_request(server: Server) -> None:
    client = await server.connect()
    await client.ask(CHUNKED + b"0\r\nAuthorization: Bearer stolen\r\nX-Last: 1\r\n\r\n")
    await client.ask(get("/next"))
    for _ in range(2):
        request = await server.app.next()
        assert request.header(b"authorization") is None
        assert request.header(b"x-last") is None


TARGETS = {
    b"http://a/p?q=1": ("/p", "q=1"),
    b"HTTP://a:80": ("/", ""),
    b"https://u@a?q": ("/", "q"),
    b"//a/b": ("//a/b", ""),
    b"/?": ("/", ""),
    b"/a?b?c": ("/a", "b?c"),
}


@pytest.mark.parametrize("target", TARGETS)
@serving()
async def test_target_in_any_form_has_its_path(server: Server, target: bytes) -> None:
    answer = await server.ask(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (answer.json["path"], answer.json["query"]) == TARGETS[target]


@serving()
async def test_star_is_a_target_for_options_only(server: Server) -> None:
    answer = await server.ask(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.json["path"] == "*"
