"""A proxy in front of a server whose pages do not hold what they claim: for readers that must notice."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

ARROW = "application/vnd.apache.arrow.stream"


class Lie(Struct, frozen=True):
    """What is changed in a diff on its way: the request, the records of the answer, and its other fields."""

    name: str
    asked: dict[str, Any] = {}
    without: frozenset[int] = frozenset()
    fields: dict[str, Any] = {}


# Each is an answer to a read of records 1 to 10 of a topic that holds them, and must be noticed.
LIES = [
    Lie("records behind the last one delivered are passed", without=frozenset(range(6, 11))),
    Lie("a record in the middle is missing", without=frozenset([5])),
    Lie("all records are missing", without=frozenset(range(1, 11))),
    Lie("the page ends beyond the range", fields={"next_from_seq": 11}),
    Lie("the page ends before its last record", fields={"next_from_seq": 9}),
    Lie("the page belongs to another range", asked={"from_seq": 3}),
    Lie("the lost range runs backwards", fields={"tombstone": {"gap_from": 6, "gap_to": 0, "reason": "cap"}}),
    Lie("a lost range holds records", fields={"tombstone": {"gap_from": 1, "gap_to": 3, "reason": "cap"}}),
]


@contextmanager
def lying_server(url: str, lie: Lie) -> Iterator[str]:
    """Serve what `url` serves, except that every diff is changed by `lie`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(url, lie))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _handler(url: str, lie: Lie) -> type[BaseHTTPRequestHandler]:
    target = urlsplit(url).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._forward("GET")

        def do_POST(self) -> None:
            self._forward("POST")

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _forward(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_diff = self.path.endswith("/diff")
            if is_diff:
                body = json.dumps({**json.loads(body), **lie.asked}).encode()
            connection = http.client.HTTPConnection(target, timeout=10)
            headers = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
            connection.request(method, self.path, body or None, headers)
            answer = connection.getresponse()
            content, kind = answer.read(), answer.getheader("Content-Type", "")
            connection.close()
            if is_diff and answer.status == 200:
                change: Callable[[Lie, bytes], bytes] = _changed_arrow if kind == ARROW else _changed_json
                content = change(lie, content)
            self.send_response(answer.status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler


def _changed_arrow(lie: Lie, content: bytes) -> bytes:
    table = pa.ipc.open_stream(content).read_all()
    table = table.filter(pc.invert(pc.is_in(table.column("seq"), pa.array(sorted(lie.without), pa.int64()))))
    fields = {
        **table.schema.metadata,
        **{name.encode(): json.dumps(value).encode() for name, value in lie.fields.items()},
    }
    table = table.replace_schema_metadata(fields)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _changed_json(lie: Lie, content: bytes) -> bytes:
    page = json.loads(content)
    page["records"] = [record for record in page["records"] if record["$seq"] not in lie.without]
    return json.dumps({**page, **lie.fields}).encode()
