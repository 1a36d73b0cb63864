"""Authorization: the scopes that a caller has, and the names that it may touch.

A `Caller` is one key (or one user) for the lifetime of the process; without configured keys every request comes from
`EVERYONE`. What an operation requires is declared in `topics.api` and checked by `permissions`.

The prefixes are a filter over one namespace, not a namespace of their own.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from topics.api.operation import ALL, CONSUME, READ, SCOPE_NAMES, WRITE
from topics.model.errors import Forbidden
from topics.model.tables.change import CHANGES
from topics.server.http import RequestHead


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
        """For logs; independent of the secret."""
        self.scopes = scopes
        self.prefixes = without_covered(prefixes)
        """In order, none of them beginning with another one; empty for every name."""
        self.lasting = lasting
        """False when the credential can expire: it is then checked with every request."""
        self.limited = limited
        """Whether the limits per key apply to this caller."""
        self.inflight = 0
        self.streams = 0

    def allows_the_same_as(self, other: "Caller") -> bool:
        return (self.scopes, self.prefixes) == (other.scopes, other.prefixes)

    def may(self, needed: int) -> bool:
        return self.scopes & needed == needed

    def may_touch(self, name: str) -> bool:
        return not self.prefixes or name.startswith(self.prefixes)

    def check_scope(self, needed: int) -> None:
        """Raises Forbidden unless the caller has all of these scopes. READ and WRITE together include CONSUME."""
        if self.scopes & needed == needed:
            return
        if needed & CONSUME:
            needed = (needed & ~CONSUME) | READ | WRITE
        if self.scopes & needed != needed:
            missing = "+".join([name for bit, name in SCOPE_NAMES.items() if needed & ~self.scopes & bit])
            raise Forbidden(f"api key lacks {missing} scope", detail={"scope": missing})

    def check_topic(self, name: str, written: str | None = None) -> None:
        """Raises Forbidden unless the caller may touch this name, whatever it names.

        The error repeats what the caller has written, if that is not the name itself but an alias or a stage.
        """
        if self.prefixes and not name.startswith(self.prefixes):
            shown = name if written is None else written
            raise Forbidden("the name lies outside the prefixes of this api key", detail={"name": shown[:300]})

    def may_touch_table(self, table: str) -> bool:
        """Whether the caller may touch the topic that holds the changes of this table."""
        return self.may_touch(CHANGES + table)

    def check_unrestricted(self, what: str) -> None:
        """Raises Forbidden for a caller with prefixes. For what concerns the whole server; `what` starts the message."""
        if self.prefixes:
            raise Forbidden(f"{what} requires an api key without prefixes")

    def prefixes_within(self, prefix: str) -> Iterator[str]:
        """The prefixes that together cover all names with `prefix` that the caller may see.

        In order and without overlap, so that a list over them needs no sorting.
        """
        if not self.prefixes:
            yield prefix
        for allowed in self.prefixes:
            if allowed.startswith(prefix):
                yield allowed
            elif prefix.startswith(allowed):
                yield prefix


EVERYONE = Caller("everyone", limited=False)
"""The caller of every request to a server without keys."""


ANONYMOUS = Caller("anonymous", 0, ("/",), limited=False)
"""The caller of an operation that needs no credential, on a server with keys. No name begins with a slash."""


class Admitted(Protocol):
    """What the application derived from a head."""

    @property
    def caller(self) -> Caller: ...


class HasHead(Protocol):
    @property
    def head(self) -> RequestHead: ...


def caller_of(request: HasHead) -> Caller:
    """The caller of the request."""
    admitted: Admitted | None = request.head.memo  # type: ignore[assignment]
    return EVERYONE if admitted is None else admitted.caller
