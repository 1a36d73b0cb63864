"""Permissions: the checks that the declaration of an operation, a statement or a command requires.

A `Permission` is a `Rule` of `topics.api` made ready at the start. HTTP, SQL and WebSocket check the same rules here; no handler
checks a scope or a prefix.

    HTTP        `admission.Gate` checks the scope and the name in the path, from the head alone; `operations.Endpoint` checks
                the other names when the request is decoded
    SQL         `statements.Execution` checks the rule of the statement
    WebSocket   `commands.Commands` checks the rule of the command

A name is compared with the prefixes of the caller before it is looked up: 403 comes before 404.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topics.api.operation import Kind, Name, Rule, reader
from topics.api.sql import TABLE_SCOPES, UNRESTRICTED_TABLES
from topics.broker.broker import Broker
from topics.engine.transactions.commit_request import check_owner
from topics.model.names import check_router_name, check_topic_name
from topics.model.tables.change import CHANGES, change_topic
from topics.server.auth.authorization import Caller
from topics.server.service import Service


class Access:
    """Who calls, and the state that the checks look at."""

    __slots__ = ("broker", "caller", "name", "service")

    def __init__(self, service: Service, broker: Broker, caller: Caller, name: str = "") -> None:
        self.service = service
        self.broker = broker
        self.caller = caller
        self.name = name
        """The name that the call is about: that in the path or, for a topic named by its alias, the name of the topic."""


class Permission:
    """What one operation, statement or command requires."""

    __slots__ = ("_field_scopes", "_names", "scope")

    def __init__(self, rule: Rule) -> None:
        self.scope = rule.scope
        self._names = NameChecks(rule.names)
        self._field_scopes = [(each.field, each.scope, each.on_creation) for each in rule.field_scopes]

    def check_scope(self, caller: Caller) -> None:
        """Raises Forbidden unless the caller has the scope, if one is required."""
        if self.scope > 0:
            caller.check_scope(self.scope)

    def check_names(self, access: Access, source: Any) -> None:
        """Raises InvalidRequest for a name that is not valid, Forbidden for one that the caller may not touch."""
        self._names.check(access, source)

    def check_fields(self, access: Access, body: Any, *, creates: bool) -> None:
        """Raises Forbidden unless the caller has the scopes that fields of the body require in addition.

        A field that counts only when the topic is created is removed if the topic exists and the caller lacks its scope: a
        write that waits while the topic is deleted must not create it with that field.
        """
        for field, scope, on_creation in self._field_scopes:
            if getattr(body, field) is not None and not access.caller.may(scope):
                if creates or not on_creation:
                    access.caller.check_scope(scope)
                setattr(body, field, None)


class NameChecks:
    """The names of a request, made ready: how each is found, which form it has, and what the caller must be allowed."""

    __slots__ = ("_checks",)

    def __init__(self, names: Iterable[Name]) -> None:
        self._checks = [(reader(name.field), _form(name), CHECKS[name.kind]) for name in names]

    def __bool__(self) -> bool:
        return bool(self._checks)

    def check(self, access: Access, source: Any) -> None:
        """Check the names in `source`: a Struct or a mapping. Their forms are checked first."""
        found = [(read(source), form, allow) for read, form, allow in self._checks]
        for values, form, _ in found:
            if form is not None:
                for value in values:
                    form(value)
        for values, _, allow in found:
            for value in values:
                allow(access, value)


def path_prefix(name: Name | None) -> str | None:
    """What precedes a name in the path before it is compared with the prefixes; None if the head does not decide it."""
    if name is None:
        return None
    return {"table": CHANGES}.get(name.kind, "") if name.kind in _NAMED_BY_PREFIX else None


# Kinds whose names are compared with the prefixes as they are written.
_NAMED_BY_PREFIX: frozenset[Kind] = frozenset(
    {"topic", "aliased_topic", "router", "connected_router", "table", "pipeline"}
)


def _form(name: Name) -> Callable[[str], object] | None:
    label = name.label
    if label is None:
        return None
    if name.kind in ("router", "connected_router"):
        return check_router_name
    if name.kind == "table":
        return change_topic
    return lambda value: check_topic_name(value, label)


def _check_name(access: Access, name: str) -> None:
    access.caller.check_topic(name)


def check_aliased_topic(access: Access, name: str) -> None:
    """Check the topic that has this name or alias, and make it the name of the call."""
    access.name = access.broker.name_of(name)
    access.caller.check_topic(access.name, name)


def _check_router(access: Access, name: str) -> None:
    access.caller.check_topic(name)
    router = access.broker.state.routers.by_name.get(name)
    if router is not None:
        access.broker.routers.check_reached(router, access.caller.may_touch)


def _check_table(access: Access, table: str) -> None:
    """Check the change topic of the table, and make the table the name of the call if it has none: a location is checked with it."""
    access.name = access.name or table
    access.caller.check_topic(CHANGES + table)


def _check_stage(access: Access, stage_id: str) -> None:
    state = access.broker.state
    staged = state.stages.stages.get(stage_id)
    topic = None if staged is None else state.by_id.get(staged.topic_id)
    if topic is not None:
        access.caller.check_topic(topic.name, stage_id)


def _check_producer(access: Access, producer: str) -> None:
    fence = access.broker.state.stages.fences.get(producer)
    if fence is not None:
        check_owner(fence, access.caller.prefixes)


def _check_watch_session(access: Access, wid: str) -> None:
    access.service.live.sessions.check_owner(wid, access.caller)


def _check_connection(access: Access, connection_id: str) -> None:
    live = access.service.live
    opened = live.slots.channels.by_id.get(connection_id)
    session = live.sessions.idle_by_id(connection_id)
    topics = [place.topic for place in opened.places()] if opened is not None else []
    topics += [place.topic.name for place in session.feed.places.values()] if session is not None else []
    for topic in topics:
        access.caller.check_topic(topic, connection_id)


def _check_table_location(access: Access, location: str) -> None:
    # The pipeline reads the location with its own credentials and appends what it finds to the change topic.
    before = access.broker.state.tables.by_name.get(access.name)
    if before is None or before.location != location:
        access.caller.check_unrestricted("setting the location of a table")


def _check_archive_location(access: Access, uri: str) -> None:
    access.service.archive_roots.check(access.broker, access.caller, access.name, uri)


def _check_system_table(access: Access, table: str) -> None:
    access.caller.check_scope(TABLE_SCOPES.get(table, 0))
    if table in UNRESTRICTED_TABLES:
        access.caller.check_unrestricted(f"system.{table}")


CHECKS: Mapping[Kind, Callable[[Access, str], None]] = {
    "topic": _check_name,
    "aliased_topic": check_aliased_topic,
    "router": _check_name,
    "connected_router": _check_router,
    "table": _check_table,
    "pipeline": _check_name,
    "stage": _check_stage,
    "producer": _check_producer,
    "watch_session": _check_watch_session,
    "connection": _check_connection,
    "table_location": _check_table_location,
    "archive_location": _check_archive_location,
    "system_table": _check_system_table,
}
