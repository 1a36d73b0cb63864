"""From a path to what serves it: every resource of the API, its methods, and the names in its path."""

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from topics.model.errors import InvalidRequest, TopicsError
from topics.server.http import Request

Handler = Callable[[Request, str], None]
# Paths are looked up far more often than there are different ones.
KEPT_PATHS = 8192


class Resource(Struct):
    """A pattern such as `/v0/topics/*/diff` and its handlers by method."""

    pattern: tuple[str, ...]
    handlers: dict[bytes, Handler]
    # The word an invalid name in the path is called by in the error.
    kind: str


class Match(Struct):
    resource: Resource
    name: str


class Routes:
    """The resources of a server. Handlers get the request and the name in its path ("" when it has none)."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, ...], Resource] = {}
        self._matches: dict[bytes, Match] = {}

    def add(self, pattern: str, kind: str = "topic", **handlers: Handler) -> None:
        parts = tuple(pattern.strip("/").split("/"))
        resource = self._resources.setdefault(parts, Resource(parts, {}, kind))
        for method, handler in handlers.items():
            resource.handlers[method.upper().encode()] = handler
        self._matches.clear()

    def find(self, method: bytes, path: bytes) -> tuple[Handler, str]:
        """Raises 404 for an unknown path and 405 for a method the path does not have."""
        match = self._matches.get(path)
        if match is None:
            match = self._match(path)
            if len(self._matches) >= KEPT_PATHS:
                self._matches.clear()
            self._matches[path] = match
        handler = match.resource.handlers.get(method)
        if handler is None:
            allowed = ", ".join(sorted(name.decode() for name in match.resource.handlers))
            raise TopicsError(f"this path answers to {allowed}", code="method_not_allowed", detail={"allowed": allowed})
        return handler, match.name

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
