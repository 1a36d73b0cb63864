"""Section 8: health, readiness and metrics."""

from topics.conformance.checks import cases, check, equal, fields, true
from topics.conformance.server import Server

METRICS = (
    "topics_topics",
    "topics_topics_by_class",
    "topics_routers",
    "topics_records_live",
    "topics_bytes_live",
    "topics_queue_topics",
    "topics_queue_leases_in_flight",
    "topics_sse_connections",
    "topics_watch_sessions",
    "topics_ready",
    "topics_recovery_progress",
    "topics_uptime_ms",
    "topics_topic_head_seq",
    "topics_topic_earliest_seq",
    "topics_topic_records_live",
    "topics_topic_bytes_live",
    "topics_wal_frames_total",
    "topics_wal_batches_total",
    "topics_wal_fsyncs_total",
    "topics_wal_bytes_written_total",
    "topics_wal_rotations_total",
    "topics_wal_queue_depth",
    "topics_wal_queue_depth_peak",
    "topics_wal_submit_full_total",
    "topics_wal_read_only",
    "topics_wal_fsync_latency_us_bucket",
    "topics_wal_fsync_latency_us_sum",
    "topics_wal_fsync_latency_us_count",
)


def _metrics(server: Server) -> list[tuple[str, float]]:
    """Every sample of the text form, as name with labels and value."""
    lines = server.get("/v0/metrics").text().splitlines()
    samples = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
    return [(name, float(value)) for name, _, value in samples]


@cases({"/v0/health": "/v0/health", "/healthz": "/healthz"})
def health_is_ok(server: Server, path: str) -> None:
    response = server.get(path)
    equal(response.status, 200, "status")
    body = response.json()
    fields(body, status="ok")
    true(isinstance(body["version"], str) and body["version"], f"version is {body['version']!r}")
    true(isinstance(body["uptime_ms"], int) and body["uptime_ms"] >= 0, f"uptime_ms is {body['uptime_ms']!r}")


@cases({"/v0/ready": "/v0/ready", "/readyz": "/readyz"})
def ready_counts_topics(server: Server, path: str) -> None:
    server.create()
    response = server.get(path)
    equal(response.status, 200, "status")
    fields(response.json(), status="ready", wal_replay_complete=True)
    true(response.json()["topics"] >= 1, f"topics is {response.json()['topics']!r}")


@check
def metrics_are_in_the_text_format(server: Server) -> None:
    response = server.get("/v0/metrics")
    equal(response.status, 200, "status")
    equal(response.media_type, "text/plain", "Content-Type")
    true("version=0.0.4" in response.headers["content-type"], f"Content-Type is {response.headers['content-type']}")


@cases({name: name for name in METRICS})
def metric_is_present(server: Server, name: str) -> None:
    server.create()
    names = {sample.partition("{")[0] for sample, _ in _metrics(server)}
    true(name in names, f"{name} is missing")


@cases({"ready": "topics_topic_queue_ready", "in flight": "topics_topic_queue_in_flight"})
def queue_gauge_is_for_queues_only(server: Server, metric: str) -> None:
    queue, log = server.create(type="queue"), server.create()
    server.append(queue, 1, 2)
    server.claim(queue)
    samples = dict(_metrics(server))
    equal(samples.get(f'{metric}{{topic="{queue}"}}'), 1.0, f"{metric} of the queue")
    true(f'{metric}{{topic="{log}"}}' not in samples, f"{metric} is present for a log")


@check
def metrics_show_a_topic(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    server.remove(name, before_seq=2)
    samples = dict(_metrics(server))
    for metric, value in (("head_seq", 3.0), ("earliest_seq", 2.0), ("records_live", 2.0)):
        equal(samples.get(f'topics_topic_{metric}{{topic="{name}"}}'), value, metric)


@check
def histogram_buckets_are_cumulative(server: Server) -> None:
    server.append(server.create(durability="fsync"), 1)
    samples = _metrics(server)
    counts = [value for name, value in samples if name.startswith("topics_wal_fsync_latency_us_bucket")]
    true(counts == sorted(counts), f"the buckets decrease: {counts}")
    total = dict(samples)["topics_wal_fsync_latency_us_count"]
    equal(dict(samples).get('topics_wal_fsync_latency_us_bucket{le="+Inf"}'), total, "the last bucket")


@check
def classes_are_counted(server: Server) -> None:
    server.create(durability="ephemeral")
    samples = dict(_metrics(server))
    true(samples.get('topics_topics_by_class{class="ephemeral"}', 0) >= 1, "no ephemeral topic is counted")


@check
def metrics_are_json_when_asked(server: Server) -> None:
    response = server.get("/v0/metrics", {"Accept": "application/json"})
    equal(response.media_type, "application/json", "Content-Type")
    true(isinstance(response.json(), dict) and response.json(), "the JSON form is empty")


@check
def open_streams_are_counted(server: Server) -> None:
    stream = server.watched({server.create(): {}})
    stream.until("caught-up")
    true(dict(_metrics(server))["topics_sse_connections"] >= 1, "the open stream is not counted")
