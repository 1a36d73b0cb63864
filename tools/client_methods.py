"""How operations become methods of the Python clients: their names, and what a client does differently.

An operation that is not listed becomes a method of its own name, with the parameters of its path, query and body. Streams
and pages for people become no methods; the clients read streams in `watch` and in the worker.
"""

from typing import Any

from msgspec import Struct


class Method(Struct, frozen=True):
    """One method. `operation` may have several, such as one for JSON and one for Arrow."""

    operation: str
    name: str
    # Optional parameters that may be given by position.
    positional: tuple[str, ...] = ()
    # Names of parameters in Python, where they differ from those of the request.
    renamed: dict[str, str] = {}
    # Fields of the request that the method does not take.
    omitted: tuple[str, ...] = ()
    # Fields that are always sent with this value.
    fixed: dict[str, Any] = {}
    # Defaults that differ from those of the server.
    defaults: dict[str, Any] = {}
    # Expression that says whether the request may be sent again after a lost response.
    repeatable: str | None = None
    # Expression for the seconds that the server may wait on purpose.
    wait_s: str | None = None
    # The response, where it is not the one declared.
    response: str | None = None
    # "response" when the response is an Arrow stream, "body" when the body is one.
    arrow: str | None = None
    # Arguments for the example in the docstring, where the declared one does not fit.
    example: str | None = None


GROUP_NAMES = {"group_id": "group", "partition_id": "partition", "consumer_id": "consumer"}
GROUP_OMITTED = ("topic_id",)

METHODS = (
    Method("put_topic", "create"),
    Method("get_topic", "info"),
    Method("delete_topic", "drop"),
    Method("append", "append"),
    Method("append", "append_arrow", arrow="body"),
    Method("diff", "diff", positional=("from_seq",), omitted=("filter",), defaults={"include_tags": True}),
    Method(
        "diff",
        "diff_arrow",
        positional=("from_seq",),
        omitted=("wait_ms",),
        renamed={"filter": "match"},
        defaults={"include_tags": True},
        arrow="response",
        example='"chat.messages", to_seq=1000',
    ),
    Method("delete_records", "delete"),
    Method("post_heads", "heads", renamed={"topics": "known"}, omitted=("describe",)),
    Method("claim", "claim", positional=("max",)),
    Method(
        "consume",
        "consume",
        renamed=GROUP_NAMES,
        omitted=GROUP_OMITTED,
        wait_s="30.0 if timeout_seconds is None else float(timeout_seconds)",
    ),
    Method("group_ack", "ack_group", renamed=GROUP_NAMES, omitted=GROUP_OMITTED),
    Method("group_seek", "seek_group", renamed=GROUP_NAMES, omitted=GROUP_OMITTED),
    Method("group_leave", "leave_group", renamed=GROUP_NAMES, omitted=GROUP_OMITTED),
    Method("run_sql", "run_sql", renamed={"sql": "statement"}),
    Method("get_router", "router"),
    Method("delete_router", "drop_router"),
    Method("post_stage", "stage", omitted=("idempotency_key", "create", "config", "disable_backpressure")),
    Method("post_stage", "stage_arrow", arrow="body"),
    Method("delete_stage", "drop_stage"),
    Method("post_commit", "commit", positional=("stages",), repeatable="producer is not None"),
    Method("get_producer", "get_producer"),
    Method("post_renewal", "renew_stages"),
    Method("get_table", "table"),
    Method("put_table", "put_table", positional=("kind", "location")),
    Method("delete_table", "drop_table"),
    Method(
        "post_changes",
        "send_changes",
        omitted=("key",),
        repeatable='all([isinstance(change, Mapping) and change.get("position") is not None for change in changes])',
    ),
    Method("get_routes", "routes", positional=("version", "wait_ms")),
    Method("get_archive", "get_archive"),
    Method("put_archive", "set_archive"),
    Method("delete_archive", "clear_archive"),
    Method("post_progress", "archive_progress"),
    Method("list_archives", "archives", positional=("version", "wait_ms")),
    Method("get_pipeline", "pipeline"),
    Method("put_pipeline", "report_pipeline", positional=("jobs",)),
    Method("delete_pipeline", "drop_pipeline"),
    Method("post_watch", "create_watch"),
    Method("log_in", "request_token", omitted=("user", "name")),
    Method("get_health", "health"),
    Method("get_ready", "ready"),
    Method("get_metrics", "metrics"),
    Method("get_openapi", "openapi"),
)
# Types that are called differently in the clients: by the name of the declared type.
TYPE_NAMES = {
    "AppendRecord": "RecordIn",
    "Config": "TopicConfig",
    "JobReport": "JobStatus",
    "Message": "GroupMessage",
    "Producer": "LastCommit",
}
