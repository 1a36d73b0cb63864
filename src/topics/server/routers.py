"""/v0/routers and /v0/routers/:router — forwarding rules: create, change, look at, list and delete them."""

from itertools import chain
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topics.broker.broker import Broker
from topics.broker.routers import RouterGone, RouterPut, WantedRouter
from topics.model.errors import InvalidRequest, TopicsError
from topics.model.match import parse_match
from topics.model.names import check_router_name, check_topic_name
from topics.model.router import Guarantee, RouterChange, RouterOptions, filter_tuple
from topics.server.access import caller_of
from topics.server.answers import send, send_error
from topics.server.bodies import Query, decode, list_cursor, parse_list_cursor, require_json
from topics.server.http import Request
from topics.server.topics import PAGE_SIZE, PAGE_SIZE_MOST


class RouterBody(Struct):
    source: str
    dest: str
    preserve_node: bool | UnsetType = UNSET
    preserve_tag: bool | UnsetType = UNSET
    create_dest: bool = True
    filter: Any | UnsetType = UNSET
    allow_cycle: bool | UnsetType = UNSET
    guarantee: Guarantee | UnsetType = UNSET
    # Additive: also forward what the source holds when the router is created.
    from_: Literal["latest", "earliest"] = msgspec.field(name="from", default="latest")


_decoder = msgspec.json.Decoder(RouterBody)


def put_router(broker: Broker, request: Request, name: str) -> None:
    require_json(request)
    check_router_name(name)
    body = decode(request.body, _decoder)
    check_topic_name(body.source, "source topic")
    check_topic_name(body.dest, "dest topic")
    if body.source == body.dest:
        raise InvalidRequest("source and dest must differ", detail={"source": body.source})
    match = body.filter if body.filter is UNSET or body.filter is None else parse_match(body.filter)
    caller = caller_of(request)
    caller.check_topic(body.source)
    caller.check_topic(body.dest)
    change = RouterChange(
        preserve_node=body.preserve_node,
        preserve_tag=body.preserve_tag,
        filter=match,
        allow_cycle=body.allow_cycle,
        guarantee=body.guarantee,
    )

    def reply(outcome: RouterPut | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {
            "router": name,
            "created": outcome.created,
            "source": body.source,
            "dest": body.dest,
            **_options(outcome.router.options),
        }
        send(request, 201 if outcome.created else 200, fields)

    wanted = WantedRouter(name, body.source, body.dest, change, body.create_dest, body.from_ == "earliest")
    broker.routers.put(wanted, reply)


def get_router(broker: Broker, request: Request, name: str) -> None:
    router = broker.routers.find(name)
    topics = broker.state.by_id
    fields = {
        "router": router.name,
        "source": topics[router.source_id].name,
        "dest": topics[router.dest_id].name,
        **_options(router.options),
        "forwarded_total": router.forwarded_total,
        "lag": broker.forwarder.lag_of(router),
        "state": broker.forwarder.state_of(router),
    }
    send(request, 200, fields)


def list_routers(broker: Broker, request: Request, _name: str) -> None:
    query = Query(request.query)
    after = parse_list_cursor(query.text("cursor"))
    page_size = min(query.number("page_size", PAGE_SIZE, low=1), PAGE_SIZE_MOST)
    wanted_source, wanted_dest = query.text("source"), query.text("dest")
    topics = broker.state.by_id
    page: list[dict[str, Any]] = []
    more = False
    prefixes = caller_of(request).prefixes_within(query.text("prefix"))
    for router in chain.from_iterable([broker.routers.listed(prefix, after) for prefix in prefixes]):
        source, dest = topics[router.source_id].name, topics[router.dest_id].name
        if (wanted_source and source != wanted_source) or (wanted_dest and dest != wanted_dest):
            continue
        if len(page) == page_size:
            more = True
            break
        page.append(
            {
                "router": router.name,
                "source": source,
                "dest": dest,
                "guarantee": router.options.guarantee,
                "forwarded_total": router.forwarded_total,
            }
        )
    fields: dict[str, Any] = {"routers": page}
    if more:
        fields["next_cursor"] = list_cursor(page[-1]["router"])
    send(request, 200, fields)


def delete_router(broker: Broker, request: Request, name: str) -> None:
    check_router_name(name)

    def reply(outcome: RouterGone | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        send(request, 200, {"router": name, "deleted": outcome.deleted})

    broker.routers.delete(name, reply)


def _options(options: RouterOptions) -> dict[str, Any]:
    return {
        "preserve_node": options.preserve_node,
        "preserve_tag": options.preserve_tag,
        "filter": filter_tuple(options.filter),
        "allow_cycle": options.allow_cycle,
        "guarantee": options.guarantee,
    }
