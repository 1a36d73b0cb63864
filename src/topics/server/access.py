"""What a caller may do: the scopes a route asks for, and the names a key may touch.

A `Caller` stands for one key (or one user) from the start of the process to its end; with no keys configured everybody
is `EVERYONE`. Handlers get theirs with `caller_of(request)` and check with it every name that came in a body; the name in
the path and the scope of the route were checked before the handler was called.

The prefixes are a filter over one namespace, not a namespace of their own.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from topics.model.errors import Forbidden
from topics.server.http import RequestHead

# What a route asks for. Several are added up: a claim needs READ | WRITE.
READ = 1
WRITE = 2
DELETE = 4
ADMIN = 8
ALL = READ | WRITE | DELETE | ADMIN
# To read as a consumer group without the right to write: see `check_consume`.
CONSUME = 16
# Any valid key will do: what is asked for later, in a socket, is authorised one by one.
ANY_KEY = 0
# Open to everybody, unless the server was told to guard its probes.
PROBE = -1
# Open to everybody: static files.
PUBLIC = -2

SCOPE_NAMES = {READ: "read", WRITE: "write", DELETE: "delete", ADMIN: "admin"}


def without_covered(prefixes: Iterable[str]) -> tuple[str, ...]:
    """The prefixes in order, without those that begin with another one of them."""
    kept: list[str] = []
    for prefix in sorted(set(prefixes)):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)


class Caller:
    """One key with what it may do, and how much it is doing at the moment."""

    __slots__ = ("inflight", "lasting", "limited", "name", "prefixes", "scopes", "streams")

    def __init__(
        self,
        name: str,
        scopes: int = ALL,
        prefixes: Iterable[str] = (),
        *,
        lasting: bool = True,
        limited: bool = True,
    ) -> None:
        self.name = name
        """For logs; says nothing about the secret."""
        self.scopes = scopes
        self.prefixes = without_covered(prefixes)
        """In order, none of them beginning with another one; empty for every name."""
        self.lasting = lasting
        """False when the credential can run out, so that it has to be looked at with every request."""
        self.limited = limited
        """Whether the caps per key are about this caller."""
        self.inflight = 0
        self.streams = 0

    def may(self, needed: int) -> bool:
        return self.scopes & needed == needed

    def may_touch(self, name: str) -> bool:
        return not self.prefixes or name.startswith(self.prefixes)

    def check_scope(self, needed: int) -> None:
        """Raises Forbidden unless the caller has all of these scopes."""
        if self.scopes & needed != needed:
            missing = "+".join([name for bit, name in SCOPE_NAMES.items() if needed & ~self.scopes & bit])
            raise Forbidden(f"api key lacks {missing} scope", detail={"scope": missing})

    def check_topic(self, name: str) -> None:
        """Raises Forbidden unless the caller may touch this name. For topics, routers, dead letters: every name."""
        if self.prefixes and not name.startswith(self.prefixes):
            raise Forbidden("the name lies outside the prefixes of this api key", detail={"name": name[:300]})

    def prefixes_within(self, prefix: str) -> Iterator[str]:
        """The prefixes whose names, one after the other, are all names with `prefix` that the caller may see.

        In order and without overlap, so that a list over them needs no sorting and no filtering.
        """
        if not self.prefixes:
            yield prefix
        for allowed in self.prefixes:
            if allowed.startswith(prefix):
                yield allowed
            elif prefix.startswith(allowed):
                yield prefix


EVERYONE = Caller("everyone", limited=False)
"""Whoever calls a server without keys."""


NOBODY = Caller("nobody", 0, ("/",), limited=False)
"""Whoever asks for what is open to all on a server with keys: no name begins with a slash."""


def check_consume(caller: Caller) -> None:
    """Raises Forbidden unless the caller may move a consumer group, which takes read and write, or the role's leave."""
    if not caller.may(READ | CONSUME):
        caller.check_scope(READ | WRITE)


class Admitted(Protocol):
    """What the application concludes from a head, and keeps there."""

    @property
    def caller(self) -> Caller: ...


class Asking(Protocol):
    @property
    def head(self) -> RequestHead: ...


def caller_of(request: Asking) -> Caller:
    """Who asks. Everything the request names is checked against it."""
    admitted: Admitted | None = request.head.memo  # type: ignore[assignment]
    return EVERYONE if admitted is None else admitted.caller
