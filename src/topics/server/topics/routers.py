"""/v0/routers and /v0/routers/:router — forwarding rules: create, change, look at, list and delete them."""

from itertools import chain
from typing import Any

from msgspec import UNSET

from topics.api.routers import RouterBody, RoutersQuery
from topics.broker.broker import Broker
from topics.broker.routers.routers import RouterGone, RouterPut, WantedRouter
from topics.model.errors import InvalidRequest
from topics.model.records.match import parse_match
from topics.model.router import RouterChange, RouterOptions, filter_tuple
from topics.server.operations import Call, handles
from topics.server.paging import first_after, page_of
from topics.server.responses import reply_to, send


@handles("put_router")
def put_router(call: Call[RouterBody, None]) -> None:
    request, name, body = call.request, call.name, call.body
    if body.source == body.dest:
        raise InvalidRequest("source and dest must differ", detail={"source": body.source})
    match = body.filter if body.filter is UNSET or body.filter is None else parse_match(body.filter)
    change = RouterChange(
        preserve_node=body.preserve_node,
        preserve_tag=body.preserve_tag,
        filter=match,
        allow_cycle=body.allow_cycle,
        guarantee=body.guarantee,
    )

    @reply_to(request)
    def reply(outcome: RouterPut) -> None:
        fields = {
            "router": name,
            "created": outcome.created,
            "source": body.source,
            "dest": body.dest,
            **_options(outcome.router.options),
        }
        send(request, 201 if outcome.created else 200, fields)

    wanted = WantedRouter(name, body.source, body.dest, change, body.create_dest, body.from_ == "earliest")
    call.broker.routers.put(wanted, reply, call.caller.may_touch)


@handles("get_router")
def get_router(call: Call[None, None]) -> None:
    broker = call.broker
    router = broker.routers.find(call.name)
    topics = broker.state.by_id
    fields = {
        "router": router.name,
        "source": topics[router.source_id].name,
        "dest": topics[router.dest_id].name,
        **_options(router.options),
        "forwarded_total": router.forwarded_total,
        **_details(broker, router.name),
    }
    send(call.request, 200, fields)


def _details(broker: Broker, name: str) -> dict[str, Any]:
    router = broker.routers.find(name)
    return {"lag": broker.forwarder.lag_of(router), "state": broker.forwarder.state_of(router)}


@handles("list_routers")
def list_routers(call: Call[None, RoutersQuery]) -> None:
    broker, caller, query = call.broker, call.caller, call.query
    after = first_after(query)
    topics = broker.state.by_id
    prefixes = caller.prefixes_within(query.prefix)
    routers = (
        router
        for router in chain.from_iterable([broker.routers.listed(prefix, after) for prefix in prefixes])
        if broker.routers.reached(router, caller.may_touch)
        and query.source in ("", topics[router.source_id].name)
        and query.dest in ("", topics[router.dest_id].name)
    )
    page, next_cursor = page_of(routers, query, lambda router: router.name)
    listed = [
        {
            "router": router.name,
            "source": topics[router.source_id].name,
            "dest": topics[router.dest_id].name,
            "guarantee": router.options.guarantee,
            "forwarded_total": router.forwarded_total,
            **(_details(broker, router.name) if query.details else {}),
        }
        for router in page
    ]
    send(call.request, 200, {"routers": listed, **next_cursor})


@handles("delete_router")
def delete_router(call: Call[None, None]) -> None:
    request, name = call.request, call.name

    @reply_to(request)
    def reply(outcome: RouterGone) -> None:
        send(request, 200, {"router": name, "deleted": outcome.deleted})

    call.broker.routers.delete(name, reply, call.caller.may_touch)


def _options(options: RouterOptions) -> dict[str, Any]:
    return {
        "preserve_node": options.preserve_node,
        "preserve_tag": options.preserve_tag,
        "filter": filter_tuple(options.filter),
        "allow_cycle": options.allow_cycle,
        "guarantee": options.guarantee,
    }
