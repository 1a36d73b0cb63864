"""The server itself: login, probes, metrics, and the description of the API."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any

from msgspec import Struct, field

from topics.api.common import Response, about
from topics.api.operation import ANY_KEY, JSON, PLAIN, PROBE, PUBLIC, READ, Example, Header, Operation

MAX_LOGIN_BODY_BYTES = 8 << 10
HTML = "text/html; charset=utf-8"
# Of the console's files: script, style sheet, icon.
CONSOLE_MEDIA = ("text/javascript; charset=utf-8", "text/css; charset=utf-8", "image/svg+xml")


class LoginBody(Struct):
    """The name and the password of a user."""

    password: Annotated[str, about("Password of the user.")]
    username: Annotated[str | None, about("Required, under one of its three names.")] = None
    user: Annotated[str | None, about("Another name of the field `username`.")] = None
    name: Annotated[str | None, about("Another name of the field `username`.")] = None


class LoggedIn(Response):
    """A token to send as `Authorization: Bearer ...`."""

    access_token: Annotated[str, about("The token.")]
    token_type: Annotated[str, about("bearer.")]
    expires_in: Annotated[int, about("Seconds.")]
    role: Annotated[str, about("Role of the user.")]


class Health(Response):
    """The process answers."""

    status: Annotated[str, about("ok.")]
    version: Annotated[str, about("Version of the server.")]
    uptime_ms: Annotated[int, about("Since the start of the server.")]


class DegradedReason(Struct):
    """Something of the server's own work that fails."""

    condition: Annotated[str, about("What fails.")]
    reason: Annotated[str, about("Why.")]
    since_ms: Annotated[int, about("How long it has failed.")]
    failures: Annotated[int, about("How often it has failed.")]
    subject: Annotated[str | None, about("File concerned; absent when there is none.")] = None


class Ready(Response):
    """The server serves. It does its work even when it is degraded."""

    status: Annotated[str, about("ready.")]
    wal_replay_complete: Annotated[bool, about("Whether recovery is complete.")]
    topics: Annotated[int, about("Number of topics.")]
    degraded: Annotated[bool, about("Whether some of the server's own work fails.")] = False
    reasons: Annotated[list[DegradedReason], about("Absent unless the server is degraded; at most 100.")] = field(
        default_factory=list
    )


class Metrics(Response):
    """Every metric by name. Those with labels are objects; `topics` lists the topics one by one."""

    topics: Annotated[list[dict[str, Any]], about("The topics, one by one, up to a limit.")]


class WhoAmI(Response):
    """The caller and what it may do."""

    name: Annotated[str, about("Name of the key or the user.")]
    scopes: Annotated[list[str], about("read, write, delete, admin, consume.")]
    prefixes: Annotated[list[str], about("Names that it may touch begin with one of these; empty for all names.")]
    credentials_required: Annotated[bool, about("False when the server has no keys and no users.")]


class OverviewWarning(Struct):
    """Something that needs attention."""

    kind: Annotated[str, about("degraded, disk, dead_letters, lagging_group, pipeline or router.")]
    severity: Annotated[str, about("critical, warning or info.")]
    message: Annotated[str, about("What needs attention.")]
    topic: Annotated[str | None, about("The topic, if it is about one.")] = None
    group: Annotated[str | None, about("Name of the group, if it is about one.")] = None
    pipeline: Annotated[str | None, about("The pipeline, if it is about one.")] = None
    router: Annotated[str | None, about("The router, if it is about one.")] = None


class Sample(Struct):
    """Figures of one moment; rates are those since the sample before."""

    ts: Annotated[int, about("Time of the sample, in Unix milliseconds.")]
    appended_per_s: Annotated[float, about("Records appended a second.")]
    read_per_s: Annotated[float, about("Records read a second.")]
    wal_bytes_per_s: Annotated[float, about("Bytes written to the log a second.")]
    loop_lag_ms: Annotated[float, about("Delay of the event loop.")]
    sync_ms: Annotated[float | None, about("Mean duration of the syncs since the sample before; null without any.")]
    connections: Annotated[int, about("Open connections.")]
    streams: Annotated[int, about("Streams and WebSockets.")]


class Overview(Response):
    """How the server is doing."""

    version: Annotated[str, about("Version of the server.")]
    uptime_ms: Annotated[int, about("Since the start of the server.")]
    topics: Annotated[int, about("Number of topics.")]
    records: Annotated[int, about("Number of records.")]
    bytes: Annotated[int, about("Bytes of the records.")]
    records_appended_total: Annotated[int, about("Records appended since the start.")]
    records_read_total: Annotated[int, about("Records read since the start.")]
    disk_free_bytes: Annotated[int, about("Free bytes of the disk.")]
    disk_total_bytes: Annotated[int, about("Size of the disk.")]
    memory_bytes: Annotated[int, about("Resident memory of the process.")]
    loop_lag_ms: Annotated[float, about("Delay of the event loop.")]
    loop_lag_max_ms: Annotated[float, about("Largest delay of the event loop.")]
    connections: Annotated[int, about("Open connections.")]
    streams: Annotated[int, about("Streams and WebSockets among them.")]
    warnings: Annotated[list[OverviewWarning], about("At most 100, the most severe first.")]
    history: Annotated[list[Sample], about("The last five minutes.")]


class Root(Struct):
    """What this server is, for clients that want JSON."""

    name: Annotated[str, about("topics.")]
    version: Annotated[str, about("Version of the server.")]
    docs: Annotated[str, about("Path of the reference.")]
    openapi: Annotated[str, about("Path of the OpenAPI document.")]
    health: Annotated[str, about("Path of the health check.")]
    console: Annotated[str | None, about("null when the console is off (TOPICS_CONSOLE=0).")]


class OpenApi(Struct):
    """This API as an OpenAPI 3.1 document."""

    openapi: Annotated[str, about("Version of OpenAPI.")]
    info: Annotated[dict[str, Any], about("Title and version.")]
    paths: Annotated[dict[str, Any], about("The operations, by path and method.")]


OPERATIONS = (
    Operation(
        name="log_in", noun="server", method="POST", path="/api/auth/login",
        summary="Exchange a user's name and password for a token.",
        scope=PUBLIC, body=LoginBody, response=LoggedIn, max_body_bytes=MAX_LOGIN_BODY_BYTES, compressed=False,
        during_recovery=True,
        example=Example("/api/auth/login", {"username": "ada", "password": "..."}, {
            "access_token": "eyJ...", "token_type": "Bearer", "expires_in": 3600, "role": "dba",
            "performance": {"server_total_ms": 40.2}}),
    ),
    Operation(
        name="get_health", noun="server", method="GET", path="/v0/health", aliases=("/healthz",),
        summary="Say that the process is alive.", scope=PROBE, response=Health, during_recovery=True,
        example=Example("/v0/health", response={
            "status": "ok", "version": "1.0.0", "uptime_ms": 12034, "performance": {"server_total_ms": 0.02}}),
    ),
    Operation(
        name="get_ready", noun="server", method="GET", path="/v0/ready", aliases=("/readyz",),
        summary="Say whether the server serves: 503 while the log is replayed.", scope=PROBE, response=Ready,
        during_recovery=True,
        example=Example("/v0/ready", response={
            "status": "ready", "wal_replay_complete": True, "topics": 42, "degraded": False,
            "performance": {"server_total_ms": 0.02}}),
    ),
    Operation(
        name="get_metrics", noun="server", method="GET", path="/v0/metrics",
        summary="Metrics, as Prometheus text or as JSON.",
        scope=READ, headers=(Header("Accept", "`application/json` for JSON."),), response=Metrics, media=(PLAIN, JSON),
        during_recovery=True,
        example=Example("/v0/metrics"),
    ),
    Operation(
        name="get_whoami", noun="server", method="GET", path="/v0/whoami",
        summary="Say who the caller is, and what its key may do.", scope=ANY_KEY, response=WhoAmI,
        example=Example("/v0/whoami", response={
            "name": "key 1", "scopes": ["read", "write"], "prefixes": ["chat."], "credentials_required": True,
            "performance": {"server_total_ms": 0.02}}),
    ),
    Operation(
        name="get_overview", noun="server", method="GET", path="/v0/overview",
        summary="Show rates, resources and what needs attention.",
        description="A key with prefixes gets the warnings about names that it may touch.",
        scope=READ, response=Overview,
        example=Example("/v0/overview"),
    ),
    Operation(
        name="get_root", noun="server", method="GET", path="/",
        summary="The console for browsers; for `Accept: application/json`, what this server is. Needs no credential.",
        scope=PUBLIC, during_recovery=True, headers=(Header("Accept", "`application/json` for JSON."),), response=Root, media=(HTML, JSON),
        example=Example("/", response={
            "name": "topics", "version": "1.0.0", "docs": "/docs", "openapi": "/openapi.json", "health": "/v0/health", "console": "/"}),
    ),
    Operation(
        name="get_console_file", noun="server", method="GET", path="/console/{file}",
        aliases=("/console/lib/{file}", "/console/screens/{file}"),
        summary="A file of the console. Needs no credential: it holds no data.",
        scope=PUBLIC, during_recovery=True, media=CONSOLE_MEDIA, errors=("not_found",),
        example=Example("/console/app.js"),
    ),
    Operation(
        name="get_openapi", noun="server", method="GET", path="/openapi.json",
        summary="This API as an OpenAPI 3.1 document. Needs no credential: it describes the API, not the data.",
        scope=PUBLIC, response=OpenApi,
        example=Example("/openapi.json"),
    ),
    Operation(
        name="get_docs", noun="server", method="GET", path="/docs",
        summary="The API reference as one HTML page. Needs no credential.",
        scope=PUBLIC, media=(HTML,),
        example=Example("/docs"),
    ),
)  # fmt: skip
