"""Admission: which route a request takes and who asks, decided from its head alone and kept there.

401 comes before everything else, so that a stranger does not learn which paths exist; then 404 and 405, then 403 for a
scope or a name the caller does not have. Equal heads are decided once per connection: keys do not change while the
process lives.
"""

from topics.model.errors import TopicsError
from topics.server.access import EVERYONE, NOBODY, PROBE, PUBLIC, Caller
from topics.server.authority import Authority
from topics.server.http import RequestHead
from topics.server.logs import sent_id
from topics.server.routing import Handler, Match, Route, Routes


class Admission:
    """The way of a request through the server."""

    __slots__ = ("caller", "counted", "handler", "name", "note", "once")

    def __init__(self, handler: Handler, name: str, caller: Caller, counted: bool) -> None:
        self.handler = handler
        self.name = name
        self.caller = caller
        self.counted = counted
        """The request holds one of its caller's slots until it is answered."""
        self.note: object = None
        """The handler's own: what it concluded from the head and need not work out again."""
        self.once = not caller.lasting
        """Decided anew for the next request, though its head be equal."""


def _echo_id(head: RequestHead) -> None:
    """Whoever names a request finds the name in the answer. Others get no such header."""
    sent = sent_id(head.headers)
    if sent is not None:
        head.echo = b"X-Request-Id: %b\r\n" % sent
        head.plain = False


class Gate:
    """Admits requests to the routes."""

    def __init__(self, routes: Routes, authority: Authority, *, probe_auth: bool) -> None:
        self._routes = routes
        self._authority = authority
        self._probe_auth = probe_auth

    def admit(self, head: RequestHead) -> Admission:
        """Raises what the request is refused with."""
        if b"x-request-id" in head.headers:
            _echo_id(head)
        if not self._authority.enabled:
            route, match = self._routes.find(head.method, head.path)
            admission = head.memo = Admission(route.handler, match.name, EVERYONE, False)
            return admission
        return self._admit_guarded(head)

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
        if route.scope == PUBLIC or (route.scope == PROBE and not self._probe_auth):
            admission = head.memo = Admission(route.handler, match.name, NOBODY, False)
            return admission
        caller = self._authority.identify(head, query_token=route.query_token)
        if route.scope > 0:
            caller.check_scope(route.scope)
        if match.guarded_name is not None:
            caller.check_topic(match.guarded_name)
        # Kept even when it may not be used again: the handler finds its caller here.
        admission = head.memo = Admission(route.handler, match.name, caller, not route.stream)
        return admission
