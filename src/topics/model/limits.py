"""The limits of one request and of the whole server. Every one has a stated outcome; 0 means unlimited where allowed."""

from msgspec import Struct


class Limits(Struct, frozen=True):
    """What a request and the server as a whole may hold."""

    max_batch_records: int = 10_000
    max_record_bytes: int = 1 << 20
    max_body_bytes: int = 64 << 20
    max_meta_bytes: int = 16 << 10
    max_meta_keys: int = 64
    max_tag_bytes: int = 256
    max_node_bytes: int = 128
    max_key_chars: int = 256
    max_limit: int = 1000
    max_claim: int = 1000
    # Of the jobs in one answer; one job is always given. Not a setting: more takes more than 10 ms to put together.
    max_claim_bytes: int = 4 << 20
    default_limit: int = 256
    max_wait_ms: int = 30_000
    answer_bytes: int = 1 << 20
    answer_bytes_max: int = 8 << 20
    max_topics: int = 100_000
    max_total_bytes: int = 0
    max_routers: int = 10_000
    max_watch_sessions: int = 10_000
    max_sse_connections: int = 10_000
    max_sse_connections_per_key: int = 1000
    max_inflight_per_key: int = 1000
    max_idempotency_keys: int = 1_000_000
    max_watch_topics: int = 256
    max_staged_bytes: int = 512 << 20
    max_stage_records: int = 1_000_000
    stage_ttl_ms: int = 3_600_000
    max_producers: int = 100_000
    max_groups: int = 10_000
