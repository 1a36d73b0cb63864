"""From a path to what serves it: every resource of the API, its methods, and the names in its path.

A route says which scopes it asks for when it is added; there is none without.
"""

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from topics.model.errors import InvalidRequest, TopicsError
from topics.server.http import Request

Handler = Callable[[Request, str], None]
# Paths are looked up far more often than there are different ones.
KEPT_PATHS = 8192
KEPT_PATH_BYTES = 512
# Kinds of names that an api key's prefixes speak about.
GUARDED_KINDS = frozenset({"topic", "router", "pipeline"})


class Route(Struct):
    """One method of a resource."""

    handler: Handler
    # What the caller must be allowed to do: scopes added up, or one of ANY_KEY, PROBE and PUBLIC (see `access`).
    scope: int
    # The answer stays open: it counts as a connection, not as a request under way.
    stream: bool
    # The key may also come as `?token=`, for clients that cannot send headers.
    query_token: bool


class Resource(Struct):
    """A pattern such as `/v0/topics/*/diff` and its routes by method."""

    pattern: tuple[str, ...]
    routes: dict[bytes, Route]
    # The word an invalid name in the path is called by in the error.
    kind: str


class Match(Struct):
    resource: Resource
    name: str

    @property
    def guarded_name(self) -> str | None:
        """The name that an api key's prefixes must allow, if there is one."""
        return self.name if self.resource.kind in GUARDED_KINDS and "*" in self.resource.pattern else None


class Routes:
    """The resources of a server. Handlers get the request and the name in its path ("" when it has none)."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, ...], Resource] = {}
        self._matches: dict[bytes, Match] = {}

    def add(
        self,
        pattern: str,
        kind: str = "topic",
        *,
        scope: int,
        stream: bool = False,
        query_token: bool = False,
        **handlers: Handler,
    ) -> None:
        """Serve the pattern's methods, given as `get=handler`, to callers with this scope.

        A name in the path is checked against the caller's prefixes when its kind is one of `GUARDED_KINDS`.
        """
        parts = tuple(pattern.strip("/").split("/"))
        resource = self._resources.setdefault(parts, Resource(parts, {}, kind))
        for method, handler in handlers.items():
            resource.routes[method.upper().encode()] = Route(handler, scope, stream, query_token)
        self._matches.clear()

    def find(self, method: bytes, path: bytes) -> tuple[Route, Match]:
        """Raises 404 for an unknown path and 405 for a method the path does not have."""
        match = self._matches.get(path)
        if match is None:
            match = self._match(path)
            if len(path) <= KEPT_PATH_BYTES:
                if len(self._matches) >= KEPT_PATHS:
                    self._matches.clear()
                self._matches[path] = match
        route = match.resource.routes.get(method)
        if route is None:
            allowed = ", ".join(sorted(name.decode() for name in match.resource.routes))
            raise TopicsError(f"this path answers to {allowed}", code="method_not_allowed", detail={"allowed": allowed})
        return route, match

    def all(self) -> list[tuple[str, str, Route]]:
        """Every route as (method, pattern, route)."""
        return [
            (method.decode(), "/" + "/".join(resource.pattern), route)
            for resource in self._resources.values()
            for method, route in resource.routes.items()
        ]

    def _match(self, path: bytes) -> Match:
        parts = path.split(b"/")[1:]
        plain = tuple([part.decode("latin-1") for part in parts])
        resource = self._resources.get(plain)
        if resource is not None:
            return Match(resource, "")
        for star in range(len(plain)):
            resource = self._resources.get((*plain[:star], "*", *plain[star + 1 :]))
            if resource is not None:
                return Match(resource, _name(parts[star], resource.kind))
        raise TopicsError("no such path", code="not_found", detail={"path": path.decode("latin-1")[:300]})


def _name(part: bytes, kind: str) -> str:
    try:
        return unquote_to_bytes(part).decode("ascii")
    except UnicodeDecodeError:
        raise InvalidRequest(f"invalid {kind} name") from None
