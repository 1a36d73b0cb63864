"""Admission: the route and the caller of a request, decided from its head alone and kept with the head.

    preflight of a page            answered for every path alike
    no credentials required        403 for a Host that is not ours, 404, 405, 403 for a page of another origin
    credentials required           401 (a client without them does not learn which paths exist), 404, 405, 403 for a scope
                                   or a name that the caller does not have

Equal heads are decided once per connection; a reload of keys or users clears what connections remember.
"""

from topics.api.operation import PROBE, PUBLIC
from topics.model.errors import TopicsError
from topics.server.auth.authentication import Authority
from topics.server.auth.authorization import ANONYMOUS, EVERYONE, Caller
from topics.server.auth.origins import OriginPolicy, has_password, is_preflight
from topics.server.http import RequestHead
from topics.server.ops.logs import sent_id
from topics.server.routing import Handler, Match, Route, Routes


class Admission:
    """What the head of a request decides: its handler, the name in its path, its caller."""

    __slots__ = ("caller", "counted", "handler", "name", "note", "once")

    def __init__(self, handler: Handler, name: str, caller: Caller, counted: bool) -> None:
        self.handler = handler
        self.name = name
        self.caller = caller
        self.counted = counted
        """The request holds one of its caller's slots until it is answered."""
        self.note: object = None
        """Set by the handler: what it derived from the head, reused for the next request with it."""
        self.once = not caller.lasting
        """The next request with an equal head is admitted again: the credential may have expired."""


def _check_body(route: Route, head: RequestHead) -> None:
    """Set the maximum size of the body for the HTTP layer. Raises 415 for a compressed body where none is allowed."""
    head.max_body_bytes = route.max_body_bytes
    if head.coding and not route.compressed:
        raise TopicsError(
            "the body of this request must not be compressed: send it without Content-Encoding",
            code="unsupported_media_type",
        )


class Gate:
    """Admits requests to the routes."""

    def __init__(self, routes: Routes, authority: Authority, origins: OriginPolicy, *, probe_auth: bool) -> None:
        self._routes = routes
        self._authority = authority
        self._origins = origins
        self._probe_auth = probe_auth

    def admit(self, head: RequestHead) -> Admission:
        """Raises what the request is refused with."""
        self._set_response_headers(head)
        origins = self._origins
        if is_preflight(head):
            admission = head.memo = Admission(origins.answer_preflight, "", ANONYMOUS, False)
            return admission
        if not self._authority.enabled:
            origins.check_host(head)
            route, match = self._routes.find(head.method, head.path)
            origins.check_origin(head, stays_open=route.stream)
            _check_body(route, head)
            admission = head.memo = Admission(route.handler(), match.name, EVERYONE, False)
            return admission
        return self._admit_guarded(head)

    def _set_response_headers(self, head: RequestHead) -> None:
        """What all responses to this head have: the request id that the client sent, and the CORS headers."""
        lines = self._origins.response_headers(head)
        if b"x-request-id" in head.headers:
            sent = sent_id(head.headers)
            if sent is not None:
                lines += b"X-Request-Id: %b\r\n" % sent
        if lines:
            head.echo = lines
            head.plain = False

    def _admit_guarded(self, head: RequestHead) -> Admission:
        found: tuple[Route, Match] | None = None
        refusal: TopicsError | None = None
        try:
            found = self._routes.find(head.method, head.path)
        except TopicsError as error:
            refusal = error
        if found is None:
            self._authority.identify(head)
            assert refusal is not None
            raise refusal
        route, match = found
        _check_body(route, head)
        if route.scope == PUBLIC or (route.scope == PROBE and not self._probe_auth):
            admission = head.memo = Admission(route.handler(), match.name, ANONYMOUS, False)
            return admission
        caller = self._authority.identify(head, query_token=route.query_token)
        if route.scope > 0:
            caller.check_scope(route.scope)
        if route.path_prefix is not None:
            caller.check_topic(route.path_prefix + match.name)
        if has_password(head):
            self._origins.check_origin(head, stays_open=route.stream)
        # Set even when it serves one request only: the handler finds its caller here.
        admission = head.memo = Admission(route.handler(), match.name, caller, not route.stream)
        return admission
