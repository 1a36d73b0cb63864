"""Everything a server can be told from outside: `TOPICS_*` variables, each with its default.

Problems are collected and reported together, each naming its variable; a server with any of them does not start.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from topics.broker.checkpoint import StorageSettings
from topics.model.limits import Limits


class Settings(Struct, frozen=True):
    """The effective settings of one server."""

    host: str = "127.0.0.1"
    port: int = 4000
    port_file: str | None = None
    data_dir: str = "./topics-data"
    drain_ms: int = 10_000
    limits: Limits = Limits()
    storage: StorageSettings = StorageSettings()


class BadSettings(Exception):
    """Lists every problem, one per line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


_LIMITS = {
    "TOPICS_MAX_BATCH_RECORDS": "max_batch_records",
    "TOPICS_MAX_RECORD_BYTES": "max_record_bytes",
    "TOPICS_MAX_BODY_BYTES": "max_body_bytes",
    "TOPICS_MAX_META_BYTES": "max_meta_bytes",
    "TOPICS_MAX_TAG_BYTES": "max_tag_bytes",
    "TOPICS_MAX_NODE_BYTES": "max_node_bytes",
    "TOPICS_MAX_LIMIT": "max_limit",
    "TOPICS_MAX_CLAIM": "max_claim",
    "TOPICS_MAX_TOPICS": "max_topics",
    "TOPICS_MAX_TOTAL_BYTES": "max_total_bytes",
    "TOPICS_MAX_IDEMPOTENCY_KEYS": "max_idempotency_keys",
    "TOPICS_MAX_WATCH_TOPICS": "max_watch_topics",
}
# Limits that may be 0 for "unlimited"; the others must allow at least one of their kind.
_MAY_BE_ZERO = {"max_topics", "max_total_bytes", "max_idempotency_keys"}
_STORAGE = {
    "TOPICS_WAL_SHARDS": ("shards", 1),
    "TOPICS_WAL_FILE_BYTES": ("wal_file_bytes", 4096),
    "TOPICS_SEGMENT_BYTES": ("segment_bytes", 4096),
    "TOPICS_HOT_BYTES": ("hot_bytes", 4096),
    "TOPICS_CACHE_BYTES": ("cache_bytes", 0),
    "TOPICS_CHECKPOINT_BYTES": ("checkpoint_bytes", 4096),
    "TOPICS_SYNC_INTERVAL_MS": ("sync_interval_ms", 1),
    "TOPICS_UNSYNCED_RECORDS": ("margin", 1),
}


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Raises BadSettings with everything that is wrong."""
    reader = _Reader(environment)
    limits = {
        field: reader.number(name, getattr(Limits(), field), low=0 if field in _MAY_BE_ZERO else 1)
        for name, field in _LIMITS.items()
    }
    storage = {
        field: reader.number(name, getattr(StorageSettings(), field), low=low)
        for name, (field, low) in _STORAGE.items()
    }
    defaults = Settings()
    settings = Settings(
        host=environment.get("TOPICS_HOST") or defaults.host,
        port=reader.number("TOPICS_PORT", defaults.port, high=65535),
        port_file=environment.get("TOPICS_PORT_FILE") or None,
        data_dir=environment.get("TOPICS_DATA_DIR") or defaults.data_dir,
        drain_ms=reader.number("TOPICS_DRAIN_MS", defaults.drain_ms),
        limits=msgspec.structs.replace(Limits(), **limits),
        storage=msgspec.structs.replace(StorageSettings(), **storage),
    )
    if reader.problems:
        raise BadSettings(reader.problems)
    return settings


class _Reader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def number(self, name: str, default: int, *, low: int = 0, high: int = 1 << 62) -> int:
        text = self._environment.get(name, "").strip()
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
            upper = f" and at most {high}" if high < 1 << 62 else ""
            self.problems.append(f"{name} must be a whole number of at least {low}{upper}, not {text!r}")
            return default
        return int(text)
