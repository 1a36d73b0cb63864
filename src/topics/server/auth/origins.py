"""Which web pages may use the server: checks of `Host` and `Origin`, and the CORS headers.

A browser sends requests for any page its user looks at, also to servers on the user's own machine. Where no credentials are
required, these checks are all that keeps such a page out:

    Host     must be an IP address, `localhost` or a configured name. A page of evil.example whose name was made to
             resolve to 127.0.0.1 (DNS rebinding) is of the same origin as the server for the browser; its Host gives it away.
    Origin   a request that changes state, leases jobs or stays open must not come from a page of another origin. Browsers send
             some of these without asking first: forms, `no-cors` fetches, WebSockets. They send no Origin with a plain GET, such
             as that of an image; then Sec-Fetch-Site gives the page away.

Reads need no check: the browser shows their responses only to pages that the CORS headers name. Where credentials are required
a page has none to send, except a user's password that the browser has remembered (Basic); those requests are checked as well.

`TOPICS_CORS_ORIGINS` lists the origins whose pages may use the server. They get the CORS headers with every response, errors and
streams included, and a preflight is answered for every path alike, before credentials are looked at: it never has any.
`Access-Control-Allow-Credentials` is not sent: pages send a key in the Authorization header, which they set themselves.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address

from topics.model.errors import Forbidden
from topics.server.http import Request, RequestHead

# Origin and host of a request are compared without them.
DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443"}
SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS"})
PREFLIGHT_SECONDS = 600
# Hosts that were accepted before, as sent; clients use few.
MAX_KNOWN_HOSTS = 1024

ALLOWED_METHODS = b"GET, HEAD, POST, PUT, DELETE"
ALLOWED_HEADERS = b"Accept, Authorization, Cache-Control, Content-Encoding, Content-Type, Idempotency-Key, Last-Event-ID, Prefer, X-Request-Id"
EXPOSED_HEADERS = b"Allow, Retry-After, WWW-Authenticate, X-Request-Id"
VARY = b"Vary: Origin\r\n"

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


def parse_origin(text: str) -> str | None:
    """An origin as browsers write it: lower case, no default port. None for anything else, also `*` and `null`."""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    scheme, host, port = found.groups()
    return f"{scheme}://{host}" if port in (None, DEFAULT_PORTS.get(scheme)) else f"{scheme}://{host}:{port}"


def parse_host_name(text: str) -> str | None:
    """A host name in lower case; None for anything else."""
    name = text.lower().removesuffix(".")
    return name if len(name) <= 253 and _HOST_NAME.fullmatch(name) else None


class OriginPolicy:
    """The checks of one server."""

    def __init__(self, origins: Iterable[str] = (), host_names: Iterable[str] = ()) -> None:
        """`origins` as `parse_origin` gives them; `host_names` beside localhost."""
        self._host_names = {"localhost", *[name.lower() for name in host_names]}
        self._known_hosts: set[bytes] = set()
        self._headers_of = {origin.encode(): _cors_headers(origin.encode()) for origin in origins}

    def response_headers(self, head: RequestHead) -> bytes:
        """Header lines that every response to this head must have. Empty where no origins are configured."""
        if not self._headers_of:
            return b""
        headers = self._headers_of.get(head.headers.get(b"origin", b""))
        if headers is not None:
            return headers
        # A cache must not give this response to a page of a configured origin.
        return VARY if head.method in SAFE_METHODS else b""

    def check_host(self, head: RequestHead) -> None:
        """Raises Forbidden for a request to a name that is not this server's own. HTTP/1.0 without a Host passes."""
        host = head.headers.get(b"host")
        if host is None or host in self._known_hosts:
            return
        name = _split_port(host.decode("latin-1").lower())[0].removesuffix(".")
        if name not in self._host_names and not _is_address(name):
            raise Forbidden(
                f"a server without api keys does not answer to the host name {name[:255]!r}: use an IP address or "
                "localhost, or add the name to TOPICS_ALLOWED_HOSTS",
                detail={"host": name[:255]},
            )
        if len(self._known_hosts) < MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)

    def check_origin(self, head: RequestHead, *, stays_open: bool) -> None:
        """Raises Forbidden for a page of another origin, if the request could change state, lease jobs or stay open."""
        if head.method in SAFE_METHODS and not stays_open:
            return
        origin = self._foreign_origin(head)
        if origin is not None:
            raise Forbidden(
                f"a page of {origin[:300]} may not use this server; TOPICS_CORS_ORIGINS lists the origins that may",
                detail={"origin": origin[:300]},
            )

    def answer_preflight(self, request: Request, _name: str) -> None:
        """204 for an allowed origin, with what it may send; the response has its `response_headers` besides."""
        head = request.head
        origin = self._foreign_origin(head)
        if origin is not None:
            raise Forbidden(
                f"pages of {origin[:300]} may not use this server; TOPICS_CORS_ORIGINS lists the origins that may",
                detail={"origin": origin[:300]},
            )
        headers = (
            b"Access-Control-Allow-Methods: %b\r\nAccess-Control-Allow-Headers: %b\r\nAccess-Control-Max-Age: %d\r\n"
            % (ALLOWED_METHODS, ALLOWED_HEADERS, PREFLIGHT_SECONDS)
        )
        if head.headers.get(b"access-control-request-private-network") == b"true":
            # A page of a public site asks for a server in the user's own network.
            headers += b"Access-Control-Allow-Private-Network: true\r\n"
        request.respond(204, b"", headers)

    def _foreign_origin(self, head: RequestHead) -> str | None:
        """The origin of the page that sends the request, if it is neither the server's own nor allowed."""
        origin = head.headers.get(b"origin")
        if origin is None:
            site = head.headers.get(b"sec-fetch-site", b"none").lower()
            return "another site" if site in (b"cross-site", b"same-site") else None
        if origin in self._headers_of or _same_origin(origin, head.headers.get(b"host", b"")):
            return None
        return origin.decode("latin-1")


def is_preflight(head: RequestHead) -> bool:
    return head.method == b"OPTIONS" and b"origin" in head.headers and b"access-control-request-method" in head.headers


def _cors_headers(origin: bytes) -> bytes:
    return b"Access-Control-Allow-Origin: %b\r\nAccess-Control-Expose-Headers: %b\r\n%b" % (
        origin,
        EXPOSED_HEADERS,
        VARY,
    )


def has_password(head: RequestHead) -> bool:
    """Whether the request has a user's password, which a browser sends without asking once it knows it."""
    return head.headers.get(b"authorization", b"")[:6].lower() == b"basic "


def _same_origin(origin: bytes, host: bytes) -> bool:
    """Whether a page of `origin` was loaded from `host`. A proxy may have ended TLS, so the scheme does not count."""
    found = _ORIGIN.fullmatch(origin.decode("latin-1").lower())
    if found is None:
        return False
    scheme, origin_host, origin_port = found.groups()
    name, port = _split_port(host.decode("latin-1").lower())
    default = DEFAULT_PORTS.get(scheme, "")
    return bool(name) and (name, port or default) == (origin_host.strip("[]"), origin_port or default)


def _split_port(host: str) -> tuple[str, str]:
    """A Host as (name or address, port); the brackets of an IPv6 address are dropped."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
