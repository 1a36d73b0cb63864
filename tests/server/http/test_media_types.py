"""Accept, Accept-Encoding and Content-Type: what each header selects."""

import ast
from pathlib import Path

import pytest

import topics.server
from topics.server.http.media_types import (
    ARROW,
    EVENT_STREAM,
    HTML,
    JSON,
    TEXT,
    accepts,
    accepts_gzip,
    is_media_type,
    preferred,
)

SERVER = Path(topics.server.__file__).parent

ACCEPT_ENCODING = {
    b"gzip": True,
    b"GZip": True,
    b"x-gzip": True,
    b"deflate, gzip;q=0.5, br": True,
    b"gzip;q=1.0": True,
    b"gzip ; q=0.001": True,
    b"*": True,
    b"*;q=0.1": True,
    b"gzip;q=0": False,
    b"gzip;q=0.000": False,
    b"gzip; Q=0": False,
    b"*;q=0": False,
    b"gzip;q=0, *": False,
    b"deflate, br": False,
    b"identity": False,
    b"identity;q=0.5, gzip;q=0.4": False,
    b"identity;q=0.4, gzip;q=0.5": True,
    b"": False,
    b"gzip;q=nonsense": False,
    b"gzip;q=2": False,
    b"gzipx": False,
}

# Header, offered types, selected type.
PREFERRED: list[tuple[bytes | None, tuple[bytes, ...], bytes]] = [
    (None, (JSON, ARROW), JSON),
    (b"", (JSON, ARROW), JSON),
    (b"*/*", (JSON, ARROW), JSON),
    (ARROW, (JSON, ARROW), ARROW),
    (b"Application/Vnd.Apache.Arrow.Stream", (JSON, ARROW), ARROW),
    (ARROW + b", */*", (JSON, ARROW), ARROW),
    (b"*/*, " + ARROW + b";q=0.5", (JSON, ARROW), ARROW),
    (ARROW + b";q=0", (JSON, ARROW), JSON),
    (ARROW + b"; Q=0.000, */*", (JSON, ARROW), JSON),
    (ARROW + b";q=0.5, application/json", (JSON, ARROW), JSON),
    (b"application/json;q=0.5, " + ARROW, (JSON, ARROW), ARROW),
    (ARROW + b", application/json", (JSON, ARROW), ARROW),
    (b"application/json, " + ARROW, (JSON, ARROW), JSON),
    (ARROW + b"x", (JSON, ARROW), JSON),
    (b"x/y;about=" + ARROW, (JSON, ARROW), JSON),
    (ARROW + b";q=nonsense", (JSON, ARROW), JSON),
    (ARROW + b";q=2", (JSON, ARROW), JSON),
    (None, (TEXT, JSON), TEXT),
    (b"text/plain", (TEXT, JSON), TEXT),
    (b"application/json", (TEXT, JSON), JSON),
    (b"Application/JSON; q=0.9, */*", (TEXT, JSON), JSON),
    (b"application/json, text/plain, */*", (TEXT, JSON), JSON),
    (b"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", (TEXT, JSON), TEXT),
    (b"text/html, application/json", (TEXT, JSON), JSON),
    (b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", (JSON, HTML), HTML),
    (b"application/json, text/html", (JSON, HTML), JSON),
    (b"image/png", (JSON, HTML), JSON),
]

EVENTS = {
    None: True,
    b"text/event-stream": True,
    b"text/html, text/event-stream": True,
    b"*/*": True,
    b"text/*;q=0.5": True,
    b"text/event-stream;q=0": False,
    b"text/event-stream;q=0, */*": False,
    b"text/*;q=0, */*": False,
    b"application/json": False,
    b"text/html, application/xml;q=0.9": False,
    b"": False,
}

IS_JSON = {
    None: False,
    b"application/json": True,
    b"application/json; charset=utf-8": True,
    b'Application/JSON ; Charset="UTF-8"': True,
    b"application/json; charset=us-ascii": True,
    b"application/json; profile=x": True,
    b"application/json; charset=latin-1": False,
    b"application/json; profile=x; charset=utf-16": False,
    b"application/jsonx": False,
    b"text/json": False,
    b"*/*": False,
    b"": False,
}


@pytest.mark.parametrize("value", ACCEPT_ENCODING)
def test_gzip_is_selected_by_its_weight(value: bytes) -> None:
    assert accepts_gzip(value) is ACCEPT_ENCODING[value]


@pytest.mark.parametrize(("accept", "offers", "selected"), PREFERRED)
def test_named_type_with_the_greatest_weight_is_selected(
    accept: bytes | None, offers: tuple[bytes, ...], selected: bytes
) -> None:
    assert preferred(accept, *offers) == selected


@pytest.mark.parametrize("accept", EVENTS)
def test_most_specific_range_decides_what_is_accepted(accept: bytes | None) -> None:
    assert accepts(accept, EVENT_STREAM) is EVENTS[accept]


@pytest.mark.parametrize("content_type", IS_JSON)
def test_content_type_is_compared_without_its_parameters(content_type: bytes | None) -> None:
    assert is_media_type(content_type, JSON) is IS_JSON[content_type]


def test_headers_of_media_types_are_parsed_in_one_module() -> None:
    """Other modules pass these headers on: no value of them is split, searched or compared elsewhere."""
    names = {b"accept", b"accept-encoding", b"content-type"}
    found = []
    for path in SERVER.rglob("*.py"):
        tree = ast.parse(path.read_text())
        passed = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("accepts", "accepts_gzip", "is_media_type", "preferred")
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            # Whether a header is there is no matter of its value.
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
                passed |= {id(inner) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            read = isinstance(node, ast.Subscript) or (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("header", "get")
            )
            named = any(isinstance(inner, ast.Constant) and inner.value in names for inner in ast.walk(node))
            if read and named and id(node) not in passed:
                found.append((path.name, ast.unparse(node)))
    assert found == []
