"""Routing: from the method and path of a request to its operation and the name in its path.

Every route comes from the declaration of an operation. A path has at most one parameter.
"""

from collections.abc import Callable
from functools import cache
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from topics.api.operation import Operation
from topics.model.errors import InvalidRequest, TopicsError
from topics.server.auth.permissions import path_prefix
from topics.server.http import Request

Handler = Callable[[Request, str], None]
# The last paths looked up are cached with their results.
MAX_CACHED_PATHS = 8192
MAX_CACHED_PATH_BYTES = 512


class Route(Struct):
    """One method of a resource: what the operation declares about the head of a request, and its handler."""

    operation: Operation
    # The handler is made with the first request.
    handler: Callable[[], Handler]
    scope: int
    stream: bool
    query_token: bool
    max_body_bytes: int
    compressed: bool
    # What precedes the name in the path when it is compared with the prefixes of a key; None if it is not compared.
    path_prefix: str | None


class Resource(Struct):
    """A pattern such as `/v0/topics/*/diff` and its routes by method."""

    pattern: tuple[str, ...]
    routes: dict[bytes, Route]
    # The name of the parameter in the path; empty when there is none.
    parameter: str


class Match(Struct):
    resource: Resource
    name: str


class Routes:
    """The resources of a server. Handlers get the request and the name in its path ("" when it has none)."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, ...], Resource] = {}
        self._matches: dict[bytes, Match] = {}

    def add(self, operation: Operation, make_handler: Callable[[], Handler]) -> None:
        """Serve the operation under all its paths. The handler is made once, with the first request."""
        route = Route(
            operation,
            cache(make_handler),
            operation.scope,
            operation.stream,
            operation.query_token,
            operation.max_body_bytes,
            operation.compressed,
            path_prefix(operation.path_name),
        )
        for path in operation.paths:
            parts = tuple(["*" if part.startswith("{") else part for part in path.strip("/").split("/")])
            resource = self._resources.setdefault(parts, Resource(parts, {}, operation.path_parameter))
            resource.routes[operation.method.encode()] = route
        self._matches.clear()

    def find(self, method: bytes, path: bytes) -> tuple[Route, Match]:
        """Raises 404 for an unknown path and 405 for a method that the path does not have. GET routes serve HEAD too."""
        match = self._matches.get(path)
        if match is None:
            match = self._match(path)
            if len(path) <= MAX_CACHED_PATH_BYTES:
                if len(self._matches) >= MAX_CACHED_PATHS:
                    self._matches.clear()
                self._matches[path] = match
        routes = match.resource.routes
        route = routes.get(method)
        if route is None and method == b"HEAD":
            route = routes.get(b"GET")
        if route is None:
            methods = [*routes, b"HEAD"] if b"GET" in routes else list(routes)
            allowed = ", ".join(sorted([name.decode() for name in methods]))
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
                return Match(resource, _name(parts[star], resource.parameter))
        raise TopicsError("no such path", code="not_found", detail={"path": path.decode("latin-1")[:300]})


def _name(part: bytes, parameter: str) -> str:
    try:
        return unquote_to_bytes(part).decode("ascii")
    except UnicodeDecodeError:
        raise InvalidRequest(f"invalid {parameter} in the path: it has characters that are not ASCII") from None
