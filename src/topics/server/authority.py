"""Who is asking: from a request's credentials to a Caller.

Keys are one way to be known; others (users with passwords, signed tokens) add themselves by their Authorization scheme.
With no way at all everybody is EVERYONE and credentials are ignored.
"""

from collections.abc import Callable
from urllib.parse import parse_qsl

from topics.model.errors import Unauthorized
from topics.server.access import EVERYONE, Caller
from topics.server.http import RequestHead
from topics.server.keys import Keyring

Way = Callable[[bytes], Caller | None]


class Undecided(Exception):
    """Who is asking has to be found out first. `start` begins that, and calls back when the question can be put again."""

    def __init__(self, start: Callable[[Callable[[], None]], None]) -> None:
        super().__init__("not known yet")
        self.start = start


class Authority:
    """Decides who a request comes from."""

    def __init__(self, keys: Keyring | None = None) -> None:
        self.keys = keys if keys is not None else Keyring()
        # By scheme in lower case, tried in order.
        self._ways: dict[bytes, list[Way]] = {}
        if len(self.keys):
            self.add_way(b"bearer", self.keys.find)

    @property
    def enabled(self) -> bool:
        return bool(self._ways)

    def add_way(self, scheme: bytes, find: Way) -> None:
        """From now on credentials are asked for, and those of this scheme are shown to `find` if nobody knew them before.

        `find` answers None for what it does not know. A Caller that is not `lasting` is asked for with every request.
        """
        self._ways.setdefault(scheme.lower(), []).append(find)

    def identify(self, head: RequestHead, *, query_token: bool = False) -> Caller:
        """The caller behind the request. Raises Unauthorized, or Undecided when a way of its scheme needs time."""
        if not self._ways:
            return EVERYONE
        header = head.headers.get(b"authorization")
        if header is not None:
            scheme, _, credential = header.partition(b" ")
            scheme, credential = scheme.lower(), credential.strip()
        elif query_token:
            scheme, credential = b"bearer", token_in_query(head.query)
        else:
            raise Unauthorized("this server asks for a key: send Authorization: Bearer <key>")
        if credential:
            for find in self._ways.get(scheme, ()):
                caller = find(credential)
                if caller is not None:
                    return caller
        raise Unauthorized("the key is not known here")


def token_in_query(query: bytes) -> bytes:
    """The first `token` of a query string, form-decoded; empty when there is none."""
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1"):
        if name == "token":
            return value.encode("latin-1")
    return b""
