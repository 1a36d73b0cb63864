"""GET /v0/whoami: the caller, its scopes and its prefixes."""

from topics.api.operation import CONSUME, READ, SCOPE_NAMES, WRITE
from topics.server.operations import Call, handles
from topics.server.responses import send


@handles("get_whoami")
def get_whoami(call: Call[None, None]) -> None:
    caller = call.caller
    scopes = [name for bit, name in SCOPE_NAMES.items() if caller.may(bit)]
    # A key with READ and WRITE may move consumer groups.
    if caller.may(READ | CONSUME) or caller.may(READ | WRITE):
        scopes.append("consume")
    fields = {
        "name": caller.name,
        "scopes": scopes,
        "prefixes": list(caller.prefixes),
        "credentials_required": call.service.authority.enabled,
    }
    send(call.request, 200, fields)
