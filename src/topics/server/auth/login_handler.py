"""POST /api/auth/login: the handler; see `login` for the users."""

from topics.api.ops import LoginBody
from topics.model.errors import Unauthorized
from topics.server.operations import Call, handles


@handles("log_in")
def log_in(call: Call[LoginBody, None]) -> None:
    users = call.service.users
    if users is None:
        raise Unauthorized("this server has no users")
    users.log_in(call.request, call.body)
