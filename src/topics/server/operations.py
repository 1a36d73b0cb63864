"""Operations as they are served: the handler of each, and what happens before it is called.

A handler registers itself with the name of its operation:

    @handles("delete_topic")
    def delete_topic(call: Call[None, DropQuery]) -> None: ...

It gets a `Call` that is decoded and allowed: everything that the declaration in `topics.api` says was checked, in this order.

    from the head (`admission`)    401, 404, 405, 403 for the scope and the name in the path
    server not ready               503
    Content-Type, size             415, 413
    name in the path, query        400; before Content-Type and size if the operation is declared with `names_first`
    body                           400
    all other names                400 for their form, 403 for the prefixes

A body that is frequent or holds many records has a decoder of its own (`decodes`); append, diff, claim and ack, the hottest
operations, replace all of this by a handler of their own (`serves`), with the same checks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, cast

import msgspec

from topics.api.operation import Operation
from topics.broker.broker import Broker
from topics.model.errors import TopicsError
from topics.server import handlers
from topics.server.auth.authorization import caller_of
from topics.server.auth.permissions import Access, NameChecks
from topics.server.decoding import (
    check_encoded_entries,
    check_entries,
    decode,
    is_arrow,
    query_decoder,
    require_json,
)
from topics.server.http import Request
from topics.server.routing import Handler
from topics.server.service import Service, not_serving

BodyT = TypeVar("BodyT")
QueryT = TypeVar("QueryT")


class Call(Access, Generic[BodyT, QueryT]):
    """One call of an operation. `name` is the name in the path, or that of the topic that was named by its alias."""

    __slots__ = ("body", "query", "request")

    def __init__(self, service: Service, broker: Broker, request: Request, name: str) -> None:
        super().__init__(service, broker, caller_of(request), name)
        self.request = request
        self.body: BodyT
        self.query: QueryT


OperationHandler = Callable[[Call[Any, Any]], None]
Decoder = Callable[[Call[Any, Any], Callable[[Any], None]], None]
HandlerFactory = Callable[[Service], Handler]
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

HANDLERS: dict[str, OperationHandler] = {}
DECODERS: dict[str, Decoder] = {}
FACTORIES: dict[str, HandlerFactory] = {}


def handles(name: str) -> Callable[[HandlerT], HandlerT]:
    """Register the handler of an operation: a function of the Call."""
    return partial(_register, HANDLERS, name)


def decodes(name: str) -> Callable[[HandlerT], HandlerT]:
    """Register the decoder of an operation's body: `decoder(call, take)` calls `take(body)` once, now or later.

    It raises TopicsError to refuse the body, or answers the request itself if it refuses it later.
    """
    return partial(_register, DECODERS, name)


def serves(name: str) -> Callable[[HandlerT], HandlerT]:
    """Register a function that makes the handler of a hot operation; the handler does all checks of the operation itself."""
    return partial(_register, FACTORIES, name)


def _register(registry: dict[str, Any], name: str, handler: HandlerT) -> HandlerT:
    assert name not in registry, f"{name} has two handlers"
    registry[name] = handler
    return handler


def handler_of(service: Service, operation: Operation) -> Handler:
    """What serves the operation. Its module is imported if it is not yet."""
    handlers.register(operation.name)
    factory = FACTORIES.get(operation.name)
    if factory is not None:
        return factory(service)
    return Endpoint(service, operation, HANDLERS[operation.name], DECODERS.get(operation.name)).handle


class Endpoint:
    """One operation as it is served. All that depends on the declaration alone is made ready here, once."""

    __slots__ = (
        "_decode_body",
        "_decode_query",
        "_handler",
        "_later_names",
        "_operation",
        "_path_names",
        "_query_names",
        "_service",
    )

    def __init__(
        self, service: Service, operation: Operation, handler: OperationHandler, decoder: Decoder | None
    ) -> None:
        self._service = service
        self._operation = operation
        self._handler = handler
        self._path_names = NameChecks([name for name in operation.names if name.place == "path"])
        self._query_names = NameChecks([name for name in operation.names if name.place == "query"])
        self._later_names = NameChecks([name for name in operation.names if name.place == "body"])
        self._decode_query = None if operation.query is None else query_decoder(operation.query)
        self._decode_body: Decoder | None = None
        if operation.body is not None:
            self._decode_body = decoder if decoder is not None else _declared_decoder(operation)

    def handle(self, request: Request, name: str) -> None:
        """Serve one request. Raises TopicsError to refuse it."""
        service, operation = self._service, self._operation
        broker = service.broker
        if not operation.during_recovery and (broker is None or service.stopping):
            raise not_serving(service)
        call: Call[Any, Any] = Call(service, cast(Broker, broker), request, name)
        call.body = call.query = None
        if operation.body is not None and not operation.names_first:
            check_content(request, operation)
        if self._path_names:
            self._path_names.check(call, {operation.path_parameter: name})
        if self._decode_query is not None:
            call.query = self._decode_query(request.query)
            if self._query_names:
                self._query_names.check(call, call.query)
        if operation.names_first:
            check_content(request, operation)
        if self._decode_body is not None:
            self._decode_body(call, partial(self._handle_body, call))
        else:
            self._handler(call)

    def _handle_body(self, call: Call[Any, Any], body: Any) -> None:
        call.body = body
        self._later_names.check(call, body)
        self._handler(call)


def check_content(request: Request, operation: Operation) -> None:
    """Raises 415 unless the body has one of the declared types, and 413 when it is too large."""
    if operation.body_optional and has_no_body(request):
        return
    if not (operation.arrow_body and is_arrow(request)):
        require_json(request)
    if 0 < operation.max_body_bytes < len(request.body):
        raise TopicsError(
            f"the body of this request may have at most {operation.max_body_bytes} bytes",
            code="payload_too_large",
            detail={"max": operation.max_body_bytes},
        )


def has_no_body(request: Request) -> bool:
    """Whether there is no body at all. One that is declared but empty is refused as JSON; diffs and claims accept it."""
    return not request.body and request.header(b"content-type") is None


def _declared_decoder(operation: Operation) -> Decoder:
    assert operation.body is not None
    body_type = operation.body
    decoder = msgspec.json.Decoder(body_type)

    def decode_declared(call: Call[Any, Any], take: Callable[[Any], None]) -> None:
        request = call.request
        if operation.body_optional and has_no_body(request):
            take(body_type())
            return
        if operation.max_entries:
            limits = call.broker.limits
            check_encoded_entries(request.body, operation.max_entries, limits)
            body = decode(request.body, decoder)
            check_entries(body, operation.max_entries, limits)
        else:
            body = decode(request.body, decoder)
        take(body)

    return decode_declared
