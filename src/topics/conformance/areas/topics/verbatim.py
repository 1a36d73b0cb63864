"""Section 0.3: `data` and `meta` are returned byte for byte, on every path."""

from topics.conformance.checks import cases, check, equal, true
from topics.conformance.server import Server

TEXTS = {
    "a float that is whole": "1.0",
    "negative zero": "-0",
    "an exponent": "1E5",
    "an exponent with a sign": "1e+05",
    "a number beyond a double": "1e400",
    "a 30-digit integer": "123456789012345678901234567890",
    "a long fraction": "0.1000000000000000055511151231257827",
    "an escaped letter": r'"\u0041"',
    "an escaped slash": r'"\/"',
    "a surrogate pair": r'"\ud83d\ude00"',
    "a lone surrogate": r'"\ud800"',
    "an escaped NUL": r'"\u0000"',
    "raw UTF-8": '"é😀"',
    "the line separator U+2028": '"\u2028"',
    "key order": '{"b":1,"a":2}',
    "duplicate keys": '{"a":1,"a":2}',
    "an empty key": '{"":1}',
    "spaces between tokens": '{ "a" : [ 1 , 2 ] }',
    "nesting of 100 levels": "[" * 100 + "]" * 100,
    "dollar keys": '{"$seq":1,"$ts":2}',
}


def _append_text(server: Server, text: str, meta: str | None = None) -> str:
    name = server.create()
    member = "" if meta is None else f',"meta":{meta}'
    body = f'{{"records":[{{"data":{text}{member}}}]}}'.encode()
    equal(server.post(server.topic_path(name), body).status, 200, "status of the append")
    return name


@cases(TEXTS)
def diff_returns_data_unchanged(server: Server, text: str) -> None:
    name = _append_text(server, text)
    body = server.post(server.topic_path(name, "/diff"), {}).body
    true(f'"data":{text}'.encode() in body, f"data is not returned as it was written: {body[:300]!r}")


@cases({what: TEXTS[what] for what in ("key order", "duplicate keys", "spaces between tokens", "dollar keys")})
def diff_returns_meta_unchanged(server: Server, text: str) -> None:
    name = _append_text(server, "1", text)
    body = server.post(server.topic_path(name, "/diff"), {}).body
    true(f'"meta":{text}'.encode() in body, f"meta is not returned as it was written: {body[:300]!r}")


@cases({what: TEXTS[what] for what in ("an exponent", "a 30-digit integer", "an escaped letter", "duplicate keys")})
def claim_returns_data_unchanged(server: Server, text: str) -> None:
    name = server.create(type="queue")
    server.post(server.topic_path(name), f'{{"records":[{{"data":{text}}}]}}'.encode())
    body = server.post(server.topic_path(name, "/claim"), {"node": "w"}).body
    true(f'"data":{text}'.encode() in body, f"data is not returned as it was written: {body[:300]!r}")


@cases({what: TEXTS[what] for what in ("a float that is whole", "an escaped letter", "duplicate keys", "raw UTF-8")})
def watch_returns_data_unchanged(server: Server, text: str) -> None:
    name = _append_text(server, text)
    event = server.watched({name: {"from_seq": 0}}).until("record")
    true(f'"data":{text}' in event.text, f"data is not returned as it was written: {event.text[:300]!r}")


@cases({what: TEXTS[what] for what in ("an exponent", "an escaped slash", "key order")})
def router_copies_data_unchanged(server: Server, text: str) -> None:
    source, dest = server.create(), server.create()
    server.route(source, dest)
    server.post(server.topic_path(source), f'{{"records":[{{"data":{text}}}]}}'.encode())
    server.wait_for(lambda: server.state(dest)["count"] == 1, "the record was not forwarded")
    body = server.post(server.topic_path(dest, "/diff"), {}).body
    true(f'"data":{text}'.encode() in body, f"data is not copied as it was written: {body[:300]!r}")


@cases({"LF": "[1,\n2]", "CRLF": "[1,\r\n2]", "CR": "[1,\r2]"})
def line_ends_between_tokens_do_not_break_an_event_stream(server: Server, text: str) -> None:
    name = _append_text(server, text)
    event = server.watched({name: {"from_seq": 0}}).until("record")
    equal(event.data["records"][0]["data"], [1, 2], "data")


@check
def data_survives_being_read_twice(server: Server) -> None:
    name = _append_text(server, "[1.50,1e2]")
    bodies = [server.post(server.topic_path(name, "/diff"), {}).body for _ in range(2)]
    true(all([b"[1.50,1e2]" in body for body in bodies]), f"data changed: {bodies}")
