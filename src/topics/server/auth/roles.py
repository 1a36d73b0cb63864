"""Roles: what a user may do, in the scopes of the API.

    user      read topics that are not the system's own; no consumer groups unless the server allows it
    service   read and write
    dba       everything
    system    everything

A topic is the system's own when its name begins with `system.` or `system:`.
"""

from collections.abc import Iterable

from topics.api.operation import ALL, CONSUME, READ, WRITE
from topics.model.errors import Forbidden
from topics.server.auth.authorization import Caller

SYSTEM_PREFIXES = ("system.", "system:")


class OrdinaryUser(Caller):
    """A user who does not see the system's own topics."""

    __slots__ = ()

    def may_touch(self, name: str) -> bool:
        return not name.startswith(SYSTEM_PREFIXES) and super().may_touch(name)

    def check_topic(self, name: str, written: str | None = None) -> None:
        if name.startswith(SYSTEM_PREFIXES):
            shown = name if written is None else written
            raise Forbidden("the role user does not reach the system's own topics", detail={"name": shown[:300]})
        super().check_topic(name, written)


def caller_for(name: str, role: str, *, user_may_consume: bool, lasting: bool, prefixes: Iterable[str] = ()) -> Caller:
    """The caller of a user with this role; `lasting` as for a Caller."""
    if role == "user":
        scopes = READ | CONSUME if user_may_consume else READ
        return OrdinaryUser(f"user {name}", scopes, prefixes, lasting=lasting)
    return Caller(f"{role} {name}", READ | WRITE if role == "service" else ALL, prefixes, lasting=lasting)
