"""Where the server is and how to reach it: arguments first, then the environment, then defaults.

    url      argument, TOPICS_URL, http://127.0.0.1:4000
    token    argument, the user in the URL, TOPICS_TOKEN
    proxy    argument, HTTP_PROXY, HTTPS_PROXY or ALL_PROXY unless NO_PROXY names the host; never for loopback addresses

Nothing here shows a credential in its `repr`.
"""

import os
from binascii import b2a_base64
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from topics.model.errors import InvalidRequest

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "http://127.0.0.1:4000"


class Credential:
    """The value of an `Authorization` header, which a login replaces. Copies of a client share it."""

    def __init__(self, authorization: str | None = None) -> None:
        self.authorization = authorization

    def __repr__(self) -> str:
        return f"Credential({'***' if self.authorization else None})"


class Proxy:
    """An HTTP proxy."""

    def __init__(self, host: str, port: int, authorization: str | None) -> None:
        self.host = host
        self.port = port
        self.authorization = authorization

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


class Certificates(Struct, frozen=True):
    """Files in PEM format. `ca`: authorities to trust instead of those of the system; `client`: our own certificate."""

    ca: str | None = None
    client: str | None = None
    client_key: str | None = None

    def context(self) -> "ssl.SSLContext":
        """The TLS settings of a connection. Raises InvalidRequest when a file cannot be used."""
        # 20 ms that plain HTTP need not wait for.
        import ssl

        used = self.ca
        try:
            context = ssl.create_default_context(cafile=self.ca)
            used = self.client
            if self.client is not None:
                context.load_cert_chain(self.client, self.client_key)
        except OSError as error:
            raise InvalidRequest(f"the certificate {used} cannot be used: {error.strerror or error}") from None
        return context


class Address(Struct, frozen=True):
    """A server, without credentials. `base` is a path before /v0, when a proxy serves it below one."""

    url: str
    host: str
    port: int
    tls: bool
    base: str
    proxy: Proxy | None = None
    certificates: Certificates = Certificates()

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The value of `Host`."""
        return self.authority


def find_address(
    url: str | None = None, *, proxy: str | None = None, certificates: Certificates | None = None
) -> Address:
    """The address of the server. Raises InvalidRequest for a URL that is not http or https.

    `proxy` is the URL of a proxy, or "" for none.
    """
    parts = _split(url or os.environ.get("TOPICS_URL") or DEFAULT_URL)
    tls = parts.scheme == "https"
    host = parts.hostname or ""
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
    return Address(
        shown,
        host,
        parts.port or (443 if tls else 80),
        tls,
        parts.path.rstrip("/"),
        find_proxy(parts.scheme, host, proxy),
        certificates or Certificates(),
    )


def find_credential(url: str | None, token: str | None, username: str | None, password: str | None) -> Credential:
    """What to send as `Authorization`: the token, or the user and the password."""
    if token is not None and username is not None:
        raise InvalidRequest("give a token or a username, not both")
    if (username is None) != (password is None):
        raise InvalidRequest("username and password belong together")
    if token is not None:
        return _bearer(token, "the token")
    if username is not None and password is not None:
        return Credential(_basic(username, password))
    parts = _split(url or os.environ.get("TOPICS_URL") or DEFAULT_URL)
    if parts.username is not None:
        return Credential(_basic(unquote(parts.username), unquote(parts.password or "")))
    return _bearer(os.environ.get("TOPICS_TOKEN", ""), "TOPICS_TOKEN")


def _bearer(token: str, where: str) -> Credential:
    if not all(["!" <= sign <= "~" for sign in token]):
        raise InvalidRequest(f"{where} holds a space, a line break or a character that is not ASCII: it is no token")
    return Credential(f"Bearer {token}" if token else None)


def find_proxy(scheme: str, host: str, proxy: str | None) -> Proxy | None:
    """The proxy for a host."""
    if proxy is None:
        if host == "localhost" or host == "::1" or host.startswith("127.") or _bypassed(host):
            return None
        proxy = _variable(f"{scheme}_proxy") or _variable("all_proxy")
    if not proxy:
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http" or not parts.hostname or not _has_valid_port(parts):
        raise InvalidRequest(f"proxy {_shown(parts)!r} is not supported; it looks like http://proxy.example:3128")
    authorization = None
    if parts.username is not None:
        authorization = _basic(unquote(parts.username), unquote(parts.password or ""))
    return Proxy(parts.hostname, parts.port or 80, authorization)


def _split(url: str) -> SplitResult:
    parts = urlsplit(url.rstrip("/"))
    path_is_valid = all(["!" <= sign <= "~" for sign in parts.path])
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_valid_port(parts) or not path_is_valid:
        raise InvalidRequest(f"{_shown(parts)!r} is not a server's URL; it looks like {DEFAULT_URL}")
    return parts


def _has_valid_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def _shown(parts: SplitResult) -> str:
    """The URL without a user and a password."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _basic(username: str, password: str) -> str:
    return "Basic " + b2a_base64(f"{username}:{password}".encode(), newline=False).decode()


def _variable(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def _bypassed(host: str) -> bool:
    """Whether NO_PROXY names the host: `*`, the host itself, or a domain that it is in."""
    for entry in _variable("no_proxy").split(","):
        name = entry.strip().lstrip(".").partition(":")[0].lower()
        if name == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return True
    return False
