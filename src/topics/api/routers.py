"""Routers: forward the records of one topic to another."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from topics.api.common import PageQuery, Response, TopicName, about
from topics.api.operation import ADMIN, DELETE, READ, WRITE_ERRORS, Example, Name, Operation
from topics.model.router import Guarantee

ROUTER_PATH = "/v0/routers/{router}"


class RouterBody(Struct):
    """A forwarding rule. Options that are not named keep their values; a new router takes the defaults."""

    source: Annotated[TopicName, about("Topic to read. Cannot change.")]
    dest: Annotated[TopicName, about("Topic to write. Cannot change; must differ from the source.")]
    preserve_node: Annotated[bool, about("Copies keep `$node`. Default true.")] | UnsetType = UNSET
    preserve_tag: Annotated[bool, about("Copies keep `$tag`. Default true.")] | UnsetType = UNSET
    create_dest: Annotated[bool, about("Create the dest if it does not exist.")] = True
    filter: Annotated[Any, about("Forward records by tag, as in a delete; null for all.")] | UnsetType = UNSET
    allow_cycle: Annotated[bool, about("Allow a cycle of routers. Default false.")] | UnsetType = UNSET
    guarantee: Annotated[Guarantee, about("Default at_least_once.")] | UnsetType = UNSET
    from_: Annotated[
        Literal["latest", "earliest"], about("A new router also forwards what the source holds: earliest.")
    ] = msgspec.field(name="from", default="latest")


class RoutersQuery(PageQuery):
    source: Annotated[str, about("Only routers from this topic.")] = ""
    dest: Annotated[str, about("Only routers to this topic.")] = ""
    details: Annotated[bool, about("Also list the lag and the state of each router.")] = False


class RouterInfo(Response):
    """A router. A list leaves out the options, and a PUT the counters."""

    router: Annotated[str, about("Name of the router.")]
    source: Annotated[str, about("Topic that is read.")]
    dest: Annotated[str, about("Topic that is written.")]
    guarantee: Annotated[str, about("at_least_once or exactly_once.")] = "at_least_once"
    preserve_node: Annotated[bool, about("Whether records keep their node.")] = True
    preserve_tag: Annotated[bool, about("Whether records keep their tag.")] = True
    filter: Annotated[Any, about("The tag predicate, or null.")] = None
    allow_cycle: Annotated[bool, about("Whether the router may close a cycle.")] = False
    created: Annotated[bool, about("PUT only: whether the router is new.")] = False
    forwarded_total: Annotated[int, about("Records forwarded so far.")] = 0
    lag: Annotated[int, about("Seqs of the source that the router has yet to examine; in a list with `details`.")] = 0
    state: Annotated[str, about("running, blocked or backoff; GET, and in a list with `details`.")] = ""


class RouterPage(Response):
    """A page of routers, by name."""

    routers: Annotated[list[RouterInfo], about("The routers.")]
    next_cursor: Annotated[str | None, about("Cursor of the next page; absent on the last one.")] = None


class RouterDropped(Response):
    """A router that was deleted."""

    router: Annotated[str, about("Name of the router.")]
    deleted: Annotated[bool, about("False when there was no such router.")]


OPERATIONS = (
    Operation(
        name="list_routers", noun="routers", method="GET", path="/v0/routers",
        summary="List routers by name.", scope=READ, query=RoutersQuery, response=RouterPage,
        example=Example("/v0/routers?source=orders", response={
            "routers": [{"router": "orders->audit", "source": "orders", "dest": "audit", "guarantee": "at_least_once",
                         "forwarded_total": 41}],
            "performance": {"server_total_ms": 0.1}}),
    ),
    Operation(
        name="put_router", noun="routers", method="PUT", path=ROUTER_PATH,
        summary="Create a router, or change the named options of one.",
        scope=ADMIN,
        names=(
            Name("path", "router", "router", "router"),
            Name("body", "source", "topic", "source topic"),
            Name("body", "dest", "topic", "dest topic"),
        ),
        body=RouterBody, response=RouterInfo, statuses=(200, 201),
        errors=("topic_not_found", "router_cycle", "router_exists_incompatible", "topic_exists_incompatible", *WRITE_ERRORS),
        example=Example("/v0/routers/orders->audit", {"source": "orders", "dest": "audit"}, {
            "router": "orders->audit", "created": True, "source": "orders", "dest": "audit", "preserve_node": True,
            "preserve_tag": True, "filter": None, "allow_cycle": False, "guarantee": "at_least_once",
            "performance": {"server_total_ms": 0.4}}),
    ),
    Operation(
        name="get_router", noun="routers", method="GET", path=ROUTER_PATH,
        summary="Show a router.", scope=READ, names=(Name("path", "router", "connected_router"),), response=RouterInfo,
        errors=("router_not_found",),
        example=Example("/v0/routers/orders->audit", response={
            "router": "orders->audit", "source": "orders", "dest": "audit", "preserve_node": True, "preserve_tag": True,
            "filter": None, "allow_cycle": False, "guarantee": "at_least_once", "forwarded_total": 41, "lag": 0,
            "state": "running", "performance": {"server_total_ms": 0.05}}),
    ),
    Operation(
        name="delete_router", noun="routers", method="DELETE", path=ROUTER_PATH,
        summary="Delete a router. What it has forwarded stays.",
        scope=DELETE, names=(Name("path", "router", "connected_router", "router"),), response=RouterDropped, errors=WRITE_ERRORS,
        example=Example("/v0/routers/orders->audit", response={
            "router": "orders->audit", "deleted": True, "performance": {"server_total_ms": 0.3}}),
    ),
)  # fmt: skip
