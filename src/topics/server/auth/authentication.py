"""Authentication: from the credentials of a request to its Caller.

Keys are one method; users with passwords and signed tokens are added by their Authorization scheme. Without any method every caller
is EVERYONE and credentials are ignored.
"""

from collections.abc import Callable
from urllib.parse import parse_qsl

from topics.model.errors import Unauthorized
from topics.server.auth.authorization import EVERYONE, Caller
from topics.server.auth.keys import Keyring
from topics.server.http import Request, RequestHead

Method = Callable[[bytes], Caller | None]


class Undecided(Exception):
    """The credential is not checked yet. `start` checks it, and then calls back, so that the request is handled again, or answers
    the request with an error.
    """

    def __init__(self, start: Callable[[Request, Callable[[], None]], None]) -> None:
        super().__init__("not known yet")
        self.start = start


class Authority:
    """Identifies the callers of requests."""

    def __init__(self, keys: Keyring | None = None) -> None:
        # By scheme in lower case, tried in order.
        self._methods: dict[bytes, list[Method]] = {}
        # By scheme, the message for a credential that no method knows.
        self._refusals: dict[bytes, str] = {}
        self.reset(keys if keys is not None else Keyring())

    def reset(self, keys: Keyring) -> None:
        """Accept these keys and nothing else; other methods must be added again."""
        self.keys = keys
        self._methods = {}
        self._refusals = {}
        if len(keys):
            self.add_method(b"bearer", keys.find, "the key is not known here")

    @property
    def enabled(self) -> bool:
        return bool(self._methods)

    def add_method(self, scheme: bytes, find: Method, refusal: str = "the credential is not known here") -> None:
        """Require credentials, and try those of this scheme with `find` after the methods added before.

        `find` returns None for a credential that it does not know; `refusal` is the message when no method knows it. A Caller
        that is not `lasting` is looked up with every request.
        """
        self._methods.setdefault(scheme.lower(), []).append(find)
        self._refusals[scheme.lower()] = refusal

    def identify(self, head: RequestHead, *, query_token: bool = False) -> Caller:
        """The caller behind the request. Raises Unauthorized, or Undecided when a method of its scheme needs time."""
        if not self._methods:
            return EVERYONE
        header = head.headers.get(b"authorization")
        if header is not None:
            scheme, _, credential = header.partition(b" ")
            scheme, credential = scheme.lower(), credential.strip()
        elif query_token:
            scheme, credential = b"bearer", token_in_query(head.query)
        else:
            raise Unauthorized(f"this server requires credentials: send Authorization: {self._schemes()}")
        if scheme not in self._methods:
            raise Unauthorized(f"this Authorization scheme is not accepted: send Authorization: {self._schemes()}")
        if credential:
            for find in self._methods.get(scheme, ()):
                caller = find(credential)
                if caller is not None:
                    return caller
        raise Unauthorized(self._refusals[scheme])

    def _schemes(self) -> str:
        forms = {b"bearer": "Bearer <key>", b"basic": "Basic <base64 of name:password>"}
        return " or ".join([forms.get(scheme, scheme.decode()) for scheme in self._methods])


def token_in_query(query: bytes) -> bytes:
    """The first `token` of a query string, form-decoded; empty when there is none."""
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1"):
        if name == "token":
            return value.encode("latin-1")
    return b""
