"""GET / and GET /console/...: the console, static files that use nothing but the public HTTP API.

Each file is read and compressed once, and served from memory. A path that is not one of them is 404: no path of a request
ever reaches the file system.

The page holds the style sheet, the theme and an import map, so that the first paint needs one request. The import map names each
module by its content (`?v=`): a browser keeps those for a year, and a reload asks only for the page.

The Content-Security-Policy allows the console's files, the three inline parts by their hash, and requests to this server. Trusted
Types forbid every way to turn text into HTML.
"""

import hashlib
import zlib
from base64 import b64encode
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
PREFIX = b"/console/"
_GZIP_WBITS = 31
INDEX = b"/console/index.html"
MAIN = b"/console/app.js"
STYLES = b"/console/styles.css"
THEME = b"/console/theme.js"
# Modules of single screens.
SCREENS = b"/console/screens/"
ICON = b"/console/favicon.svg"
MEDIA_TYPES = {
    ".html": HTML_UTF_8.encode(),
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'none'; script-src 'self' %b; style-src %b; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    b"Content-Security-Policy: %b\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Opener-Policy: same-origin\r\nVary: Accept, Accept-Encoding\r\nETag: %b\r\n"
)
REVALIDATED = b"Cache-Control: no-cache\r\n"
KEPT = b"Cache-Control: max-age=31536000, immutable\r\n"


class ConsoleFile(Struct, frozen=True):
    body: bytes
    content_type: bytes
    headers: bytes
    etag: bytes
    version: bytes


@cache
def console_files() -> dict[bytes, ConsoleFile]:
    """All files by their path in a request."""
    bodies = {
        PREFIX + path.relative_to(FOLDER).as_posix().encode(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in MEDIA_TYPES
    }
    bodies[INDEX], policy = _page(bodies)
    return {path: _console_file(path, body, policy) for path, body in bodies.items()}


def _console_file(path: bytes, body: bytes, policy: bytes) -> ConsoleFile:
    # Weak: the compressed body has the same tag.
    etag = b'W/"%b"' % _version(body)
    media_type = MEDIA_TYPES[Path(path.decode()).suffix]
    return ConsoleFile(body, media_type, HEADERS % (policy, etag), etag, b"v=" + _version(body))


def _page(bodies: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """The page with its inline parts, and the policy that allows them.

    The modules that all screens share are named in the head: the browser then fetches them at once, not level by level
    of imports. The modules of a screen are fetched when it is opened.
    """
    modules = {path: path + b"?v=" + _version(body) for path, body in bodies.items() if path.endswith(b".js")}
    del modules[THEME]
    imports = {path.decode(): versioned.decode() for path, versioned in modules.items()}
    import_map = encode({"imports": imports})
    shared = [versioned for path, versioned in modules.items() if not path.startswith(SCREENS)]
    preloads = b"".join([b'\n    <link rel="modulepreload" href="%b" />' % versioned for versioned in shared])
    page = bodies[INDEX]
    for link, inline in (
        (b'href="%b"' % ICON, b'href="%b?v=%b"' % (ICON, _version(bodies[ICON]))),
        (b'<link rel="stylesheet" href="%b" />' % STYLES, b"<style>%b</style>" % bodies[STYLES]),
        (b'<script src="%b"></script>' % THEME, b"<script>%b</script>" % bodies[THEME]),
        (
            b'<script type="module" src="%b"></script>' % MAIN,
            b'<script type="importmap">%b</script>%b\n    <script type="module" src="%b"></script>'
            % (import_map, preloads, modules[MAIN]),
        ),
    ):
        assert link in page, link
        page = page.replace(link, inline)
    scripts = b" ".join([_source(bodies[THEME]), _source(import_map)])
    return page, POLICY % (scripts, _source(bodies[STYLES]))


@cache
def _compressed(path: bytes) -> bytes:
    return zlib.compress(console_files()[path].body, level=9, wbits=_GZIP_WBITS)


def _version(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _source(inline: bytes) -> bytes:
    """The source expression of the policy that allows this inline script or style sheet."""
    return b"'sha256-%b'" % b64encode(hashlib.sha256(inline).digest())


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
    # Reading all files takes less than 5 ms, once, and compressing one about a millisecond, once.
    file = console_files().get(path)
    if file is None:
        raise TopicsError("the console has no such file", code="not_found")
    headers = file.headers + (KEPT if request.query == file.version else REVALIDATED)
    if request.header(b"if-none-match") == file.etag:
        request.respond(304, b"", headers)
    elif request.head.accepts_gzip:
        headers += b"Content-Encoding: gzip\r\n"
        request.respond(200, _compressed(path), headers, content_type=file.content_type, compressible=False)
    else:
        request.respond(200, file.body, headers, content_type=file.content_type, compressible=False)
