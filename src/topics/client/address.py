"""Where the server is and how to introduce oneself: arguments first, then TOPICS_URL and TOPICS_TOKEN, then defaults."""

import os
from urllib.parse import urlsplit

from msgspec import Struct

from topics.model.errors import InvalidRequest

DEFAULT_URL = "http://127.0.0.1:4000"


class Address(Struct, frozen=True):
    url: str
    host: str
    port: int
    tls: bool
    # A path before /v0, when a proxy serves us below one.
    base: str
    token: str | None


def find_address(url: str | None, token: str | None) -> Address:
    """Raises InvalidRequest for a URL that is not http or https."""
    chosen = (url or os.environ.get("TOPICS_URL") or DEFAULT_URL).rstrip("/")
    parts = urlsplit(chosen)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{chosen!r} is not a server's URL; it looks like {DEFAULT_URL}")
    tls = parts.scheme == "https"
    key = token if token is not None else os.environ.get("TOPICS_TOKEN") or None
    return Address(chosen, parts.hostname, parts.port or (443 if tls else 80), tls, parts.path, key)
