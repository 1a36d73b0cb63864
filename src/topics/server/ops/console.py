"""GET / and GET /console/...: the console, static files that use nothing but the public HTTP API.

The files are read once, in a thread, and served from memory. A path that is not one of them is 404: no path of a request ever
reaches the file system. The Content-Security-Policy allows only these files and requests to this server, and Trusted Types
forbid every way to turn text into HTML.
"""

import hashlib
from functools import cache
from pathlib import Path

from msgspec import Struct

from topics import __version__
from topics.api.ops import HTML as HTML_UTF_8
from topics.model.errors import TopicsError
from topics.server.http import Request
from topics.server.http.media_types import HTML, JSON, preferred
from topics.server.operations import Call, handles
from topics.server.responses import encode

FOLDER = Path(__file__).resolve().parent.parent.parent / "console"
INDEX = b"/console/index.html"
MEDIA_TYPES = {
    ".html": HTML_UTF_8.encode(),
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    b"Content-Security-Policy: %b\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-cache\r\nVary: Accept\r\n" % POLICY
)


class ConsoleFile(Struct, frozen=True):
    body: bytes
    content_type: bytes
    headers: bytes
    etag: bytes


@cache
def console_files() -> dict[bytes, ConsoleFile]:
    """All files by their path in a request."""
    files = {}
    for path in sorted(FOLDER.rglob("*")):
        media_type = MEDIA_TYPES.get(path.suffix)
        if media_type is not None:
            body = path.read_bytes()
            etag = b'"%b"' % hashlib.sha256(body).hexdigest()[:20].encode()
            name = b"/console/" + path.relative_to(FOLDER).as_posix().encode()
            files[name] = ConsoleFile(body, media_type, HEADERS + b"ETag: %b\r\n" % etag, etag)
    return _preloading(files)


def _preloading(files: dict[bytes, ConsoleFile]) -> dict[bytes, ConsoleFile]:
    """Name all modules in the head of the page: the browser then fetches them at once, not level by level of imports."""
    links = [b'<link rel="modulepreload" href="%b">' % name for name in files if name.count(b"/") == 3]
    index = files[INDEX]
    body = index.body.replace(b"</head>", b"".join([b"  %b\n  " % link for link in links]) + b"</head>")
    files[INDEX] = ConsoleFile(body, index.content_type, index.headers, index.etag)
    return files


@handles("get_root")
def get_root(call: Call[None, None]) -> None:
    if call.service.settings.console and preferred(call.request.header(b"accept"), JSON, HTML) == HTML:
        _send_file(call.request, INDEX)
        return
    links = {"docs": "/docs", "openapi": "/openapi.json", "health": "/v0/health"}
    fields = {
        "name": "topics",
        "version": __version__,
        **links,
        "console": "/" if call.service.settings.console else None,
    }
    call.request.respond(200, encode(fields), b"Vary: Accept\r\n")


@handles("get_console_file")
def get_console_file(call: Call[None, None]) -> None:
    if not call.service.settings.console:
        raise TopicsError("the console is off (TOPICS_CONSOLE=0)", code="not_found")
    _send_file(call.request, call.request.path)


def _send_file(request: Request, path: bytes) -> None:
    # Read in less than 5 ms, once: about thirty small files.
    file = console_files().get(path)
    if file is None:
        raise TopicsError("the console has no such file", code="not_found")
    if request.header(b"if-none-match") == file.etag:
        request.respond(304, b"", file.headers)
    else:
        request.respond(200, file.body, file.headers, content_type=file.content_type)
