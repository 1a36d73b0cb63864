"""The application: gives each request to the handler of its operation.

`admission` finds the operation and the caller from the head of the request, `operations` checks and decodes the rest. A
TopicsError that is raised on the way becomes the error response.
"""

import logging
import math
from functools import partial

from topics.api.operations import OPERATIONS
from topics.model.errors import TopicsError
from topics.server.admission import Admission, Gate
from topics.server.auth.authentication import Undecided
from topics.server.auth.origins import OriginPolicy
from topics.server.http import Refusal, Request, RequestHead
from topics.server.operations import handler_of
from topics.server.ops.connection_limits import hold_request
from topics.server.ops.logs import fields, request_fields
from topics.server.ops.slow_requests import log_slow
from topics.server.responses import encode, render_error, send_error
from topics.server.routing import Routes
from topics.server.service import Service

log = logging.getLogger("topics.server")


class TopicsApplication:
    """Answers requests with the service's broker."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.routes = Routes()
        settings = service.settings
        origins = OriginPolicy(settings.cors_origins, (settings.host, *settings.allowed_hosts))
        self._gate = Gate(self.routes, service.authority, origins, probe_auth=settings.probe_auth)
        self._max_inflight = settings.limits.max_inflight_per_key
        self.slow_seconds = settings.slow_ms / 1000 if settings.slow_ms else math.inf
        for operation in OPERATIONS:
            self.routes.add(operation, partial(handler_of, service, operation))

    def handle(self, request: Request) -> None:
        try:
            admission: Admission | None = request.head.memo  # type: ignore[assignment]
            if admission is None or admission.once:
                admission = self._gate.admit(request.head)
            # A request whose client has disconnected holds no slot: no event would release it.
            if admission.counted and request.ended is None and not request.closed:
                hold_request(request, admission.caller, self._max_inflight)
            admission.handler(request, admission.name)
        except TopicsError as error:
            send_error(request, error)
        except Undecided as undecided:
            self._handle_later(request, undecided)

    def _handle_later(self, request: Request, undecided: Undecided) -> None:
        """Handle the request again when its credential has been checked."""

        def again() -> None:
            # No event would release what the request of a disconnected client holds.
            if request.closed:
                return
            try:
                self.handle(request)
            except Exception as error:  # noqa: BLE001 - answered with 500, as one that is handled at once
                body = self.error_body(request, error)
                if not request.answered:
                    request.respond(500, body, compressible=False)

        undecided.start(request, again)

    def admit(self, head: RequestHead) -> Refusal | None:
        """Refuse a request from its head, before its large body is read."""
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
