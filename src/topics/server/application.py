"""The application: every request of the API comes in here and goes to its handler.

Handlers of the data plane need the broker; while it is being recovered, or when the server stops, they are answered
503 here. Errors leave as TopicsError and become the one error body.
"""

import logging
from collections.abc import Callable

from topics.broker.broker import Broker
from topics.model.errors import TopicsError
from topics.server.answers import encode, send_error
from topics.server.deletion import delete_records
from topics.server.diff import diff_records
from topics.server.http import Request
from topics.server.probes import get_health, get_ready, not_ready, shutting_down
from topics.server.records import append_records
from topics.server.routing import Handler, Routes
from topics.server.service import Service
from topics.server.topics import delete_topic, get_topic, list_topics, put_topic

log = logging.getLogger("topics.server")

BrokerHandler = Callable[[Broker, Request, str], None]


class TopicsApplication:
    """Answers requests with the service's broker."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.routes = Routes()
        self._add_routes()

    def handle(self, request: Request) -> None:
        try:
            handler, name = self.routes.find(request.method, request.path)
            handler(request, name)
        except TopicsError as error:
            send_error(request, error)

    def error_body(self, request: Request, error: Exception) -> bytes:
        log.error("unexpected error in %s %s", request.method.decode(), request.path.decode("latin-1"), exc_info=error)
        return encode({"error": {"code": "internal", "message": "internal error"}})

    def _add_routes(self) -> None:
        add = self.routes.add
        add("/v0/topics", get=self._with_broker(list_topics))
        add(
            "/v0/topics/*",
            post=self._with_broker(append_records),
            get=self._with_broker(get_topic),
            put=self._with_broker(put_topic),
            delete=self._with_broker(delete_topic),
        )
        add("/v0/topics/*/diff", post=self._with_broker(diff_records))
        add("/v0/topics/*/delete", post=self._with_broker(delete_records))
        for path in ("/v0/health", "/healthz"):
            add(path, get=lambda request, name: get_health(self.service, request, name))
        for path in ("/v0/ready", "/readyz"):
            add(path, get=lambda request, name: get_ready(self.service, request, name))

    def _with_broker(self, handler: BrokerHandler) -> Handler:
        service = self.service

        def handle(request: Request, name: str) -> None:
            broker = service.broker
            if broker is None:
                raise not_ready(service)
            if service.stopping:
                raise shutting_down()
            handler(broker, request, name)

        return handle
