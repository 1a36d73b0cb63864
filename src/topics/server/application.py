"""The application: every request of the API comes in here and goes to its handler.

Who may ask is decided before a handler is called, from the head of the request alone: see `admission`. Handlers of
the data plane need the broker; while it is being recovered, or when the server stops, they are answered
503 here. Errors leave as TopicsError and become the one error body.
"""

import logging
import math
from collections.abc import Callable

from topics.broker.broker import Broker
from topics.model.errors import TopicsError, Unauthorized
from topics.server.access import ADMIN, ANY_KEY, DELETE, PROBE, PUBLIC, READ, WRITE
from topics.server.admission import Admission, Gate
from topics.server.answers import encode, render_error, send_error
from topics.server.archives import delete_archive, get_archive, list_archives, post_progress, put_archive
from topics.server.authority import Undecided
from topics.server.changes import post_changes
from topics.server.deletion import delete_records
from topics.server.diff import diff_records
from topics.server.groups import ack_messages, consume_messages, leave_group, seek_group
from topics.server.heads import post_heads
from topics.server.http import Refusal, Request, RequestHead
from topics.server.live import Live
from topics.server.logs import fields, request_fields
from topics.server.metrics import get_metrics
from topics.server.pipelines import delete_pipeline, get_pipeline, list_pipelines, post_stop, put_pipeline
from topics.server.probes import get_health, get_ready, not_serving
from topics.server.queues import acking, claiming, extend_jobs, nack_jobs
from topics.server.records import appending
from topics.server.routers import delete_router, get_router, list_routers, put_router
from topics.server.routes import get_routes
from topics.server.routing import Handler, Routes
from topics.server.service import Service
from topics.server.slots import hold_request
from topics.server.slow import log_slow
from topics.server.sql import run_sql
from topics.server.stages import delete_stage, get_producer, post_commit, post_stage
from topics.server.tables import delete_table, get_table, list_tables, put_known_table
from topics.server.topics import delete_topic, get_topic, list_topics, put_topic
from topics.server.watch import get_watch, post_watch
from topics.server.work import stream_work

log = logging.getLogger("topics.server")

BrokerHandler = Callable[[Broker, Request, str], None]
LiveHandler = Callable[[Live, Broker, Request, str], None]


class TopicsApplication:
    """Answers requests with the service's broker."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.routes = Routes()
        settings = service.settings
        self._gate = Gate(self.routes, service.authority, probe_auth=settings.probe_auth)
        self._max_inflight = settings.limits.max_inflight_per_key
        self.slow_seconds = settings.slow_ms / 1000 if settings.slow_ms else math.inf
        self._add_routes()

    def handle(self, request: Request) -> None:
        try:
            admission: Admission | None = request.head.memo  # type: ignore[assignment]
            if admission is None or admission.once:
                admission = self._gate.admit(request.head)
            # One whose client went while it waited with others holds nothing: nobody would give it back.
            if admission.counted and request.ended is None and not request.closed:
                hold_request(request, admission.caller, self._max_inflight)
            admission.handler(request, admission.name)
        except TopicsError as error:
            send_error(request, error)
        except Undecided as undecided:
            self._handle_later(request, undecided)

    def _handle_later(self, request: Request, undecided: Undecided) -> None:
        """Put the request aside until it is known who asks, then handle it again."""

        def again() -> None:
            # What a client that has gone would count or hold, nobody would give back.
            if request.closed:
                return
            try:
                self.handle(request)
            except Exception as error:  # noqa: BLE001 - as for one that is handled at once: a 500, and whoever calls goes on
                body = self.error_body(request, error)
                if not request.answered:
                    request.respond(500, body, compressible=False)

        try:
            undecided.start(again)
        except TopicsError as error:
            send_error(request, error)

    def admit(self, head: RequestHead) -> Refusal | None:
        """Before a large body is read: what would be refused anyway need not be sent."""
        try:
            self._gate.admit(head)
        except TopicsError as error:
            status, body, headers = render_error(error)
            return Refusal(status, body, headers)
        except Undecided:
            return None
        return None

    def slow(self, request: Request, status: int, body: bytes) -> None:
        log_slow(request, status, body)

    def error_body(self, request: Request, error: Exception) -> bytes:
        about = request_fields(request)
        log.error("unexpected error", extra=fields(**about), exc_info=error)
        detail = {"request_id": about["request_id"]}
        return encode({"error": {"code": "internal", "message": "internal error", "detail": detail}})

    def _add_routes(self) -> None:
        add = self.routes.add
        add("/v0/topics", scope=READ, get=self._with_broker(list_topics))
        add("/v0/topics/*", scope=READ, get=self._with_broker(get_topic))
        add("/v0/topics/*", scope=WRITE, post=appending(self.service))
        add("/v0/topics/*", scope=ADMIN, put=self._with_broker(put_topic))
        add("/v0/topics/*", scope=DELETE, delete=self._with_broker(delete_topic))
        add("/v0/topics/*/diff", scope=READ, post=self._with_broker(diff_records))
        add("/v0/heads", scope=READ, post=self._with_broker(post_heads))
        add("/v0/stages", scope=WRITE, post=self._with_broker(post_stage))
        add("/v0/stages/*", "stage", scope=WRITE, delete=self._with_broker(delete_stage))
        add("/v0/commits", scope=WRITE, post=self._with_broker(post_commit))
        add("/v0/producers/*", "producer", scope=READ, get=self._with_broker(get_producer))
        add("/v0/topics/*/archive", scope=READ, get=self._with_broker(get_archive))
        add("/v0/topics/*/archive", scope=ADMIN, put=self._with_broker(put_archive))
        add("/v0/topics/*/archive", scope=DELETE, delete=self._with_broker(delete_archive))
        add("/v0/topics/*/archive/progress", scope=WRITE, post=self._with_broker(post_progress))
        add("/v0/topics/*/delete", scope=DELETE, post=self._with_broker(delete_records))
        for root in ("/api", "/v1/api"):
            # What these may do to which topic is in their bodies: their handlers check it.
            add(f"{root}/topics/consume", scope=ANY_KEY, post=self._with_service(consume_messages))
            add(f"{root}/topics/ack", scope=ANY_KEY, post=self._with_service(ack_messages))
            add(f"{root}/topics/seek", scope=ANY_KEY, post=self._with_broker(_bare(seek_group)))
            add(f"{root}/routes", scope=READ, get=self._with_broker(_bare(get_routes)))
            add(f"{root}/sql", scope=ANY_KEY, post=self._with_service(run_sql))
            add(f"{root}/topics/leave", scope=ANY_KEY, post=self._with_broker(_bare(leave_group)))
            add(f"{root}/tables", scope=READ, get=self._with_broker(_bare(list_tables)))
            add(f"{root}/tables/*", "table", scope=READ, get=self._with_broker(get_table))
            add(f"{root}/tables/*", "table", scope=ADMIN, put=self._with_broker(put_known_table))
            add(f"{root}/tables/*", "table", scope=DELETE, delete=self._with_broker(delete_table))
            add(f"{root}/tables/*/changes", "table", scope=WRITE, post=self._with_broker(post_changes))
            add(f"{root}/archives", scope=READ, get=self._with_broker(_bare(list_archives)))
            add(f"{root}/pipelines", scope=READ, get=self._with_service(list_pipelines))
            add(f"{root}/pipelines/*", "pipeline", scope=READ, get=self._with_named_service(get_pipeline))
            add(f"{root}/pipelines/*", "pipeline", scope=WRITE, put=self._with_named_service(put_pipeline))
            add(f"{root}/pipelines/*", "pipeline", scope=DELETE, delete=self._with_named_service(delete_pipeline))
            add(f"{root}/pipelines/*/stop", "pipeline", scope=ADMIN, post=self._with_named_service(post_stop))
            add(f"{root}/auth/login", "login", scope=PUBLIC, post=self._log_in)
        add("/v0/metrics", scope=READ, get=lambda request, name: get_metrics(self.service, request, name))
        add("/v0/watch", scope=READ, post=self._with_live(post_watch))
        add(
            "/v0/watch/*", "watch session", scope=ANY_KEY, stream=True, query_token=True, get=self._with_live(get_watch)
        )
        add("/v0/ws", scope=ANY_KEY, stream=True, get=self._with_live(_get_socket))
        add("/v0/topics/*/claim", scope=READ | WRITE, post=claiming(self.service))
        add("/v0/topics/*/ack", scope=WRITE, post=acking(self.service))
        add("/v0/topics/*/nack", scope=WRITE, post=self._with_broker(nack_jobs))
        add("/v0/topics/*/extend", scope=WRITE, post=self._with_broker(extend_jobs))
        add(
            "/v0/topics/*/work",
            scope=READ | WRITE,
            stream=True,
            query_token=True,
            get=self._with_live(stream_work),
        )
        add("/v0/routers", scope=READ, get=self._with_broker(list_routers))
        add("/v0/routers/*", "router", scope=READ, get=self._with_broker(get_router))
        add("/v0/routers/*", "router", scope=ADMIN, put=self._with_broker(put_router))
        add("/v0/routers/*", "router", scope=DELETE, delete=self._with_broker(delete_router))
        for path in ("/v0/health", "/healthz"):
            add(path, scope=PROBE, get=lambda request, name: get_health(self.service, request, name))
        for path in ("/v0/ready", "/readyz"):
            add(path, scope=PROBE, get=lambda request, name: get_ready(self.service, request, name))

    def _log_in(self, request: Request, _name: str) -> None:
        users = self.service.users
        if users is None:
            raise Unauthorized("this server has no users")
        users.log_in(request)

    def _with_service(self, handler: Callable[[Service, Broker, Request], None]) -> Handler:
        return self._with_broker(lambda broker, request, _name: handler(self.service, broker, request))

    def _with_named_service(self, handler: Callable[[Service, Broker, Request, str], None]) -> Handler:
        return self._with_broker(lambda broker, request, name: handler(self.service, broker, request, name))

    def _with_live(self, handler: LiveHandler) -> Handler:
        live = self.service.live
        return self._with_broker(lambda broker, request, name: handler(live, broker, request, name))

    def _with_broker(self, handler: BrokerHandler) -> Handler:
        service = self.service

        def handle(request: Request, name: str) -> None:
            broker = service.broker
            if broker is None or service.stopping:
                raise not_serving(service)
            handler(broker, request, name)

        return handle


def _get_socket(live: Live, broker: Broker, request: Request, name: str) -> None:
    # Imported when the first socket comes: the library takes a tenth of a server's start.
    from topics.server.websocket import get_socket

    get_socket(live, broker, request, name)


def _bare(handler: Callable[[Broker, Request], None]) -> BrokerHandler:
    """A handler whose path holds no name."""
    return lambda broker, request, _name: handler(broker, request)
