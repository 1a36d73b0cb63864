"""Every setting of a server: its variable, its place in server.toml, its bounds.

A setting is one line here and a field with its default in `Settings`, `Limits`, `StorageSettings` or `LiveSettings`. Reading, checking
and `topics config` are derived from it.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from topics.model.tables.location import parse_root
from topics.server.auth.origins import parse_host_name, parse_origin


class Option(Struct, frozen=True):
    """One setting. Its place is `section.key` in server.toml and the field `field` of the object for its group."""

    variable: str
    section: str
    key: str
    field: str
    # Which object holds the field.
    group: Literal["server", "limits", "storage", "live"] = "server"
    # A list is separated by commas in the variable.
    kind: Literal["number", "text", "flag", "list"] = "text"
    low: int = 0
    high: int = 1 << 62
    choices: tuple[str, ...] = ()
    # Of a list: the item as it is kept, or None if it is wrong; and what an item must be, for the message.
    parse_item: Callable[[str], str | None] = str
    item: str = "a text"
    # Never shown.
    secret: bool = False


def _server(variable: str, section: str, key: str, field: str, **rest: object) -> Option:
    return Option(variable, section, key, field, "server", **rest)  # type: ignore[arg-type]


def _limit(field: str, low: int = 1, variable: str = "") -> Option:
    """`low` is 0 for limits that may be 0 for "unlimited"; the others must allow at least one of their kind."""
    return Option(variable or f"TOPICS_{field.upper()}", "limits", field, field, "limits", "number", low)


def _storage(field: str, variable: str, low: int) -> Option:
    key = variable.removeprefix("TOPICS_").lower()
    return Option(variable, "storage", key, field, "storage", "number", low)


def _live(field: str) -> Option:
    return Option(f"TOPICS_{field.upper()}", "live", field, field, "live", "number", 1)


class RetiredOption(Struct, frozen=True):
    """A setting of an earlier version. It is accepted and has no effect; a server logs that, unless it has the value `silent`."""

    variable: str
    section: str
    key: str
    silent: str
    reason: str


RETIRED_OPTIONS = [
    RetiredOption(
        "TOPICS_WAL_SHARDS",
        "storage",
        "wal_shards",
        "1",
        "the server writes one log, and reads all shards that earlier versions wrote",
    ),
]

OPTIONS = [
    _server("TOPICS_HOST", "server", "host", "host"),
    _server("TOPICS_PORT", "server", "port", "port", kind="number", high=65535),
    _server("TOPICS_PORT_FILE", "server", "port_file", "port_file"),
    _server("TOPICS_DATA_DIR", "server", "data_dir", "data_dir"),
    _server("TOPICS_RUNTIME_DIR", "server", "runtime_dir", "runtime_dir"),
    _server("TOPICS_CONSOLE", "server", "console", "console", kind="flag"),
    _server("TOPICS_DRAIN_MS", "server", "drain_ms", "drain_ms", kind="number"),
    _server("TOPICS_MAX_CONNECTIONS", "server", "max_connections", "max_connections", kind="number", low=1),
    _server("TOPICS_PEER_TIMEOUT_MS", "server", "peer_timeout_ms", "peer_timeout_ms", kind="number", low=1000),
    _server(
        "TOPICS_ALLOWED_HOSTS",
        "server",
        "allowed_hosts",
        "allowed_hosts",
        kind="list",
        parse_item=parse_host_name,
        item="a host name without scheme and port",
    ),
    _server(
        "TOPICS_CORS_ORIGINS",
        "server",
        "cors_origins",
        "cors_origins",
        kind="list",
        parse_item=parse_origin,
        item="an origin such as https://app.example.com, without a path",
    ),
    _server(
        "TOPICS_ARCHIVE_ROOTS",
        "server",
        "archive_roots",
        "archive_roots",
        kind="list",
        parse_item=parse_root,
        item="a directory or a URI without .., query and fragment",
    ),
    _server("TOPICS_PROBE_AUTH", "auth", "probe_auth", "probe_auth", kind="flag"),
    _server("TOPICS_ALLOW_INSECURE_NO_AUTH", "auth", "allow_insecure_no_auth", "allow_insecure_no_auth", kind="flag"),
    _server("TOPICS_JWT_SECRET", "auth", "jwt_secret", "jwt_secret", secret=True),
    _server("TOPICS_JWT_PUBLIC_KEY", "auth", "jwt_public_key", "jwt_public_key"),
    _server("TOPICS_TOKEN_SECONDS", "auth", "token_seconds", "token_seconds", kind="number", low=1),
    _server("TOPICS_LOG_FORMAT", "logs", "format", "log_format", choices=("text", "json")),
    _server("TOPICS_LOG_LEVEL", "logs", "level", "log_level", choices=("debug", "info", "warning", "error")),
    _server("TOPICS_SLOW_MS", "logs", "slow_ms", "slow_ms", kind="number"),
    _server("TOPICS_METRICS_TOPICS_MAX", "metrics", "topics_max", "metrics_topics_max", kind="number"),
    _server("TOPICS_THROTTLE_LAG_MS", "throttle", "lag_ms", "throttle_lag_ms", kind="number"),
    _server("TOPICS_THROTTLE_WAIT_MS", "throttle", "wait_ms", "throttle_wait_ms", kind="number"),
    _server(
        "TOPICS_DEFAULT_CONSUME_TIMEOUT", "topics", "default_consume_timeout", "default_consume_timeout", kind="number"
    ),
    _server("TOPICS_MAX_CONSUME_TIMEOUT", "topics", "max_consume_timeout", "max_consume_timeout", kind="number"),
    _server("TOPICS_CONSUMER_SESSION_MS", "topics", "consumer_session_ms", "consumer_session_ms", kind="number", low=1),
    _server(
        "TOPICS_ALLOW_USER_ROLE_CONSUME", "topics", "allow_user_role_consume", "allow_user_role_consume", kind="flag"
    ),
    _limit("max_batch_records"),
    _limit("max_record_bytes"),
    _limit("max_body_bytes"),
    _limit("max_meta_bytes"),
    _limit("max_meta_keys"),
    _limit("max_tag_bytes"),
    _limit("max_node_bytes"),
    _limit("max_limit"),
    _limit("max_claim"),
    _limit("max_topics", 0),
    _limit("max_routers", 0),
    _limit("max_watch_sessions", 0),
    _limit("max_watch_topics"),
    _limit("max_groups", 0),
    _limit("max_sse_connections", 0),
    _limit("max_sse_connections_per_key", 0),
    _limit("max_inflight_per_key", 0),
    _limit("max_total_bytes", 0),
    _limit("max_idempotency_keys", 0),
    _limit("max_stage_records"),
    _limit("max_staged_bytes", 0),
    _limit("stage_ttl_ms"),
    _limit("max_producers", 0),
    _storage("wal_file_bytes", "TOPICS_WAL_FILE_BYTES", 4096),
    _storage("segment_bytes", "TOPICS_SEGMENT_BYTES", 4096),
    _storage("hot_bytes", "TOPICS_HOT_BYTES", 4096),
    _storage("cache_bytes", "TOPICS_CACHE_BYTES", 0),
    _storage("checkpoint_bytes", "TOPICS_CHECKPOINT_BYTES", 4096),
    _storage("reserve_bytes", "TOPICS_RESERVE_BYTES", 0),
    _storage("sync_interval_ms", "TOPICS_SYNC_INTERVAL_MS", 1),
    _storage("margin", "TOPICS_UNSYNCED_RECORDS", 1),
    _storage("retention_interval_ms", "TOPICS_RETENTION_INTERVAL_MS", 0),
    _live("session_ttl_ms"),
    _live("buffer_grace_ms"),
    _live("slow_consumer_timeout_ms"),
    _live("ping_ms"),
]
