"""GET /v0/metrics: metrics of the process and its topics, as Prometheus text or as JSON.

Figures of the process are read where they are counted. Figures of topics are collected and rendered in slices, one in each loop
turn, and requests are served in between: 10,000 topics take 43 ms, no turn more than 2 (bench/pressure.py). The number of topics
that are listed one by one is limited; a key with prefixes sees only the topics that it may touch.

Other parts of the server add their figures with `Service.gauges`.
"""

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from msgspec import Raw, Struct

from topics.api.operation import PLAIN
from topics.api.tables.pipelines import JobReport
from topics.broker.broker import Broker, Topic
from topics.broker.log.committer import SYNC_BUCKETS_US, Committer
from topics.runtime.health import Health
from topics.server.auth.authorization import Caller
from topics.server.http.media_types import JSON, TEXT, preferred
from topics.server.lag import total_lag
from topics.server.operations import Call, handles
from topics.server.responses import encode, send
from topics.server.service import Service
from topics.server.tables.pipeline_registry import Pipelines

PROMETHEUS_TEXT = PLAIN.encode()
# Topics looked at in one turn of the loop: about 0.5 ms.
SLICE_TOPICS = 100

# Damaged ranges that are listed one by one; topics_degraded_conditions counts all of them.
MAX_DAMAGE_SHOWN = 100

CLASSES = ("ephemeral", "memory", "disk", "fsync")

# Of each topic: name and help. Those of queues are the last ones, and are left out for other topics.
TOPIC_FIGURES = {
    "head_seq": "Highest assigned seq per topic.",
    "earliest_seq": "Lowest seq that can still be read per topic.",
    "records_live": "Records that can be read per topic.",
    "bytes_live": "Bytes of records that can be read per topic.",
    "queue_ready": "Jobs ready to be claimed per queue.",
    "queue_in_flight": "Jobs leased per queue.",
    "queue_dead_lettered": "Jobs moved to the dead-letter topic per queue, since it was created.",
}


class Metric(Struct):
    """One metric with its samples: label text (such as `{class="disk"}`) and value."""

    name: str
    kind: str
    help: str
    samples: list[tuple[str, float]]


class TopicFigures(Struct):
    """What was collected from the topics so far."""

    by_class: dict[str, int]
    queues: int = 0
    jobs_in_flight: int = 0
    # The topics of the current slice, and the rendered slices before it: by figure for text.
    topics: list[tuple[str, tuple[int, ...]]] = []
    lines: dict[str, list[bytes]] = {}
    objects: list[bytes] = []
    listed: int = 0
    truncated: bool = False
    group_records: list[tuple[str, float]] = []
    group_seconds: list[tuple[str, float]] = []
    routers: list[Metric] = []
    pipelines: list[Metric] = []


@handles("get_metrics")
def get_metrics(call: Call[None, None]) -> None:
    """While the log is replayed, the metrics are those of the process alone."""
    service, request, caller = call.service, call.request, call.caller
    as_json = preferred(request.header(b"accept"), TEXT, JSON) == JSON
    found = TopicFigures(dict.fromkeys(CLASSES, 0), lines={name: [] for name in TOPIC_FIGURES})

    def answer() -> None:
        metrics = process_metrics(service, found)
        if as_json:
            send(request, 200, render_json(metrics, found))
        else:
            request.respond(200, render_text(metrics, found), content_type=PROMETHEUS_TEXT)

    broker = service.broker
    if broker is None:
        answer()
        return
    max_topics = service.settings.metrics_topics_max
    found.routers = router_metrics(broker, caller, max_topics)
    found.pipelines = pipeline_metrics(service.pipelines, caller, max_topics, broker.runtime.now_ms())
    gather(broker, caller, max_topics, found, as_json, lambda: request.closed, answer)


def gather(
    broker: Broker,
    caller: Caller,
    max_topics: int,
    found: TopicFigures,
    as_objects: bool,
    given_up: Callable[[], bool],
    done: Callable[[], None],
) -> None:
    """Collect the figures of every topic that exists now, one slice per loop turn, then call `done`."""
    topics = list(broker.state.topics.values())
    position = 0

    def collect_step() -> None:
        nonlocal position
        if given_up():
            return
        for topic in topics[position : position + SLICE_TOPICS]:
            collect_topic(broker, topic, caller, max_topics, found)
        if found.topics:
            render_slice(found, as_objects)
        position += SLICE_TOPICS
        if position < len(topics):
            broker.runtime.call_soon(collect_step)
        else:
            done()

    collect_step()


def collect_topic(broker: Broker, topic: Topic, caller: Caller, max_topics: int, found: TopicFigures) -> None:
    config = topic.config
    found.by_class[config.durability] += 1
    if config.ttl_ms:
        for partition in topic.partitions:
            broker.evict(topic, partition)
    jobs: tuple[int, int, int] | None = None
    if config.type == "queue":
        found.queues += 1
        counters = broker.queues.stats(topic)
        jobs = (counters.ready, counters.in_flight, counters.dead_lettered)
        found.jobs_in_flight += counters.in_flight
    if not caller.may_touch(topic.name):
        return
    if found.listed >= max_topics:
        found.truncated = True
        return
    found.listed += 1
    first = topic.partitions[0]
    values: tuple[int, ...]
    if len(topic.partitions) == 1:
        values = (first.head_seq, first.earliest_seq, first.count, first.bytes)
    else:
        values = (first.head_seq, first.earliest_seq, topic.count, topic.bytes)
    found.topics.append((topic.name, values if jobs is None else values + jobs))
    for group in topic.groups.values():
        if group.positions:
            lag = total_lag(broker, topic, group)
            labels = _labels(topic=topic.name, group=group.name)
            found.group_records.append((labels, lag.records))
            found.group_seconds.append((labels, lag.seconds))


def render_slice(found: TopicFigures, as_objects: bool) -> None:
    topics, found.topics = found.topics, []
    if as_objects:
        objects = [{"topic": name, **dict(zip(TOPIC_FIGURES, values, strict=False))} for name, values in topics]
        found.objects.append(encode(objects)[1:-1])
        return
    for index, figure in enumerate(TOPIC_FIGURES):
        # Names hold nothing that would need an escape.
        line = f'topics_topic_{figure}{{topic="%s"}} %d\n'
        lines = [line % (name, values[index]) for name, values in topics if index < len(values)]
        if lines:
            found.lines[figure].append("".join(lines).encode())


def process_metrics(service: Service, found: TopicFigures) -> list[Metric]:
    """Every figure that is not about one topic."""
    broker = service.broker
    throttle = service.throttle
    metrics = [
        _gauge("topics_ready", "1 when the server serves.", int(broker is not None and not service.stopping)),
        _gauge("topics_recovery_progress", "How much of the log is replayed, 0 to 1.", service.recovery_progress),
        _gauge("topics_uptime_ms", "Milliseconds since the process started.", int(service.uptime_ms())),
        _gauge("topics_topics", "Topics.", len(broker.state.topics) if broker is not None else 0),
        Metric(
            "topics_topics_by_class",
            "gauge",
            "Topics by durability class.",
            [(f'{{class="{name}"}}', count) for name, count in found.by_class.items()],
        ),
        _gauge("topics_queue_topics", "Topics that are queues.", found.queues),
        _gauge("topics_queue_leases_in_flight", "Jobs leased to workers.", found.jobs_in_flight),
        _gauge("topics_routers", "Routers.", len(broker.state.routers.by_id) if broker is not None else 0),
        _gauge("topics_sse_connections", "Open SSE streams and WebSockets.", service.streams.open),
        _gauge("topics_loop_lag_ms", "How late the event loop runs, smoothed.", round(throttle.pressure.lag_ms, 3)),
        _gauge("topics_loop_lag_ms_max", "The largest lag of the last 60 seconds.", round(throttle.lag_ms_max, 3)),
        _gauge("topics_throttle_closed", "1 while low priorities have to wait.", int(throttle.closed)),
        _gauge("topics_throttle_parked", "Writes that wait for the pressure to pass.", throttle.parked),
        _counter("topics_throttle_parked_total", "Writes that had to wait.", throttle.parked_total),
        _counter(
            "topics_throttle_wait_ms_total",
            "Milliseconds that writes waited for the pressure to pass.",
            round(throttle.waited_ms_total, 3),
        ),
        _counter("topics_throttled_total", "Writes refused because of pressure.", throttle.throttled_total),
        _gauge("topics_topic_metrics_truncated", "1 when not all topics are listed.", int(found.truncated)),
    ]
    for name, (text, read) in service.gauges.items():
        metrics.append((_counter if name.endswith("_total") else _gauge)(name, text, read()))
    if broker is not None:
        metrics += broker_metrics(broker)
    return metrics + group_metrics(found) + found.routers + found.pipelines


def group_metrics(found: TopicFigures) -> list[Metric]:
    """The lag of each consumer group whose topic is listed."""
    metrics = [
        Metric("topics_group_lag_records", "gauge", "Records that the group has yet to read.", found.group_records),
        Metric(
            "topics_group_lag_seconds", "gauge", "Age of the first record that it has yet to read.", found.group_seconds
        ),
    ]
    return [metric for metric in metrics if metric.samples]


def router_metrics(broker: Broker, caller: Caller, max_topics: int) -> list[Metric]:
    """What routers have done together; and of each that the caller may see, up to `max_topics`, how it is doing."""
    forwarder = broker.forwarder
    visible = (each for each in broker.routers.listed("", "") if broker.routers.reached(each, caller.may_touch))
    shown = list(islice(visible, max_topics))
    states = [(each.name, forwarder.state_of(each)) for each in shown]
    each_router = [
        Metric(
            "topics_router_forwarded_total",
            "counter",
            "Records forwarded per router.",
            [(f'{{router="{each.name}"}}', each.forwarded_total) for each in shown],
        ),
        Metric(
            "topics_router_lag",
            "gauge",
            "Seqs of the source that the router has not examined yet.",
            [(f'{{router="{each.name}"}}', forwarder.lag_of(each)) for each in shown],
        ),
        Metric(
            "topics_router_blocked",
            "gauge",
            "1 while the router's dest is full.",
            [(f'{{router="{name}"}}', int(state == "blocked")) for name, state in states],
        ),
        Metric(
            "topics_router_backoff",
            "gauge",
            "1 while the router waits to repeat a write that failed.",
            [(f'{{router="{name}"}}', int(state == "backoff")) for name, state in states],
        ),
    ]
    total = _counter("topics_records_forwarded_total", "Records that routers have copied.", forwarder.forwarded_total)
    return [total, *each_router] if shown else [total]


def pipeline_metrics(pipelines: Pipelines, caller: Caller, max_topics: int, now_ms: int) -> list[Metric]:
    """Whether the pipelines that the caller may see are up, and how their jobs are doing: together up to `max_topics`."""
    shown = pipelines.shown_to(caller)
    jobs = [(each.name, job) for each in shown for job in each.report.jobs][:max_topics]
    up = [(_labels(pipeline=each.name), float(each.up(now_ms))) for each in shown]
    metrics = [Metric("topics_pipeline_up", "gauge", "1 while the pipeline reports.", up)]
    for name, (kind, about, read) in JOB_FIGURES.items():
        samples = [(_labels(pipeline=pipeline, job=job.name), read(job)) for pipeline, job in jobs]
        known = [(labels, value) for labels, value in samples if value is not None]
        metrics.append(Metric(f"topics_pipeline_job_{name}", kind, about, known))
    return [metric for metric in metrics if metric.samples]


JOB_FIGURES: dict[str, tuple[str, str, Callable[[JobReport], float | None]]] = {
    "up": ("gauge", "1 while the job runs.", lambda job: int(job.state == "running")),
    "lag_records": ("gauge", "Records that the job has yet to take.", lambda job: job.lag),
    "rows_total": ("counter", "Rows that the job has written since it was started.", lambda job: job.rows),
    "rows_per_second": ("gauge", "Rows that the job writes a second.", lambda job: job.rows_per_s),
    "batch_ms": ("gauge", "How long the job's last batch took.", lambda job: job.batch_ms),
    "lag_seconds": ("gauge", "Age of what the job has yet to take.", lambda job: job.lag_s),
    "bytes_total": ("counter", "Bytes of records that the job has read since it was started.", lambda job: job.bytes),
    "latency_ms": (
        "gauge",
        "From the write of the newest record of the last batch to the end of that batch.",
        lambda job: job.latency_ms,
    ),
    "restarts_total": ("counter", "Times the job was started again after it had failed.", lambda job: job.restarts),
}


def _labels(**labels: str) -> str:
    """As Prometheus writes them. Line breaks are in none of our names."""
    escaped = {name: value.replace("\\", r"\\").replace('"', r"\"") for name, value in labels.items()}
    return "{" + ",".join([f'{name}="{value}"' for name, value in escaped.items()]) + "}"


def broker_metrics(broker: Broker) -> list[Metric]:
    totals = broker.state.totals
    counts = broker.counts
    committer = broker.committer
    book = broker.state.stages
    return [
        _gauge("topics_stages", "Stages that wait for a commit.", len(book.stages)),
        _gauge("topics_staged_bytes", "Bytes of the stages that wait for a commit.", book.bytes),
        _counter("topics_stages_expired_total", "Stages that expired without a commit.", book.expired_total),
        _gauge("topics_producers", "Producers whose last batch is remembered.", len(book.fences)),
        _counter("topics_commits_total", "Commits that made something readable.", book.commits_total),
        _counter("topics_commit_repeats_total", "Commits of batches that were there already.", book.repeats_total),
        _gauge("topics_records_live", "Records that can be read.", totals.records),
        _gauge("topics_bytes_live", "Bytes of records that can be read.", totals.bytes),
        _counter("topics_appends_total", "Writes acknowledged.", counts.appends),
        _counter("topics_records_appended_total", "Records appended.", totals.appended),
        _counter(
            "topics_reads_total", "Pages, consumes and claims answered, and frames sent to live readers.", counts.reads
        ),
        _counter("topics_records_read_total", "Records sent to readers, consumers and workers.", counts.records_read),
        _counter("topics_records_evicted_total", "Records dropped by a cap or their age.", totals.evicted),
        _counter("topics_tombstones_total", "Lost ranges reported to readers.", counts.tombstones),
        _counter("topics_records_deleted_total", "Records deleted on purpose.", totals.deleted),
        _counter("topics_wal_frames_total", "Frames written to the log.", committer.frames_total),
        _counter(
            "topics_wal_batches_total", "Writes to the log, each with one frame or several.", committer.batches_total
        ),
        _counter("topics_wal_fsyncs_total", "Syncs of the log.", committer.syncs_total),
        _counter("topics_wal_bytes_written_total", "Bytes of log.", committer.wal.bytes_written),
        _counter("topics_wal_rotations_total", "Log files begun.", committer.wal.rotations),
        _gauge("topics_wal_queue_depth", "Commits queued or waiting for a sync.", committer.queue_depth),
        _gauge(
            "topics_wal_queue_depth_peak",
            "Largest number of commits in one write to the log.",
            committer.queue_depth_peak,
        ),
        _counter(
            "topics_wal_submit_full_total",
            "Writes that waited or got 429 because records arrive faster than segments are sealed.",
            counts.no_room,
        ),
        _counter("topics_wal_write_failures_total", "Writes to the log that failed.", committer.write_failures_total),
        _gauge("topics_wal_read_only", "1 when a failed sync has made the log read-only.", int(committer.read_only)),
        sync_histogram(committer),
        *health_metrics(broker.health),
        *damage_metrics(broker),
    ]


def health_metrics(health: Health) -> list[Metric]:
    """What failed since the process started, by kind, and which of it is not repaired yet."""
    raised = dict.fromkeys(health.failures_total, 0)
    for condition in health.conditions:
        raised[condition.kind] += 1
    failures = health.failures_total.items()
    return [
        _gauge("topics_degraded", "1 while /v0/ready reports the server as degraded.", int(health.degraded)),
        Metric(
            "topics_degraded_conditions",
            "gauge",
            "Conditions that make the server degraded, by kind.",
            [(_labels(condition=kind), count) for kind, count in raised.items()],
        ),
        Metric(
            "topics_failures_total",
            "counter",
            "Failures of the server's own work, by kind.",
            [(_labels(condition=kind), count) for kind, count in failures],
        ),
    ]


def damage_metrics(broker: Broker) -> list[Metric]:
    """Which files are damaged, and which records they hold; nothing while none is."""
    damage = [each for known in broker.state.segment_cache.damage.values() for each in known][:MAX_DAMAGE_SHOWN]
    samples = [
        (_labels(file=each.path, first_seq=str(each.first_seq), last_seq=str(each.last_seq)), 1.0) for each in damage
    ]
    about = "1 for each damaged range of a file: its records, or their tag index, cannot be read."
    return [Metric("topics_damaged_range", "gauge", about, samples)] if samples else []


def sync_histogram(committer: Committer) -> Metric:
    times = committer.sync_times
    name = "topics_wal_fsync_latency_us"
    samples: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip(SYNC_BUCKETS_US, times.buckets, strict=False):
        below += count
        samples.append((f'_bucket{{le="{bound}"}}', below))
    samples.append(('_bucket{le="+Inf"}', times.count))
    samples.append(("_sum", round(times.sum_us, 1)))
    samples.append(("_count", times.count))
    return Metric(name, "histogram", "How long syncs of the log took, in microseconds.", samples)


def render_text(metrics: list[Metric], found: TopicFigures) -> bytes:
    parts: list[bytes] = []
    for metric in metrics:
        samples = [f"{metric.name}{labels} {value}\n" for labels, value in metric.samples]
        parts.append((_head(metric.name, metric.kind, metric.help) + "".join(samples)).encode())
    for figure, about in TOPIC_FIGURES.items():
        if found.lines[figure]:
            parts.append(_head(f"topics_topic_{figure}", "gauge", about).encode())
            parts += found.lines[figure]
    return b"".join(parts)


def render_json(metrics: list[Metric], found: TopicFigures) -> dict[str, Any]:
    """Metric names with their values; those with labels or buckets as objects; topics one by one under `topics`."""
    fields: dict[str, Any] = {}
    for metric in metrics:
        samples = metric.samples
        fields[metric.name] = samples[0][1] if samples[0][0] == "" else _labelled(samples)
    fields["topics"] = Raw(b"[%b]" % b",".join(found.objects))
    return fields


def _labelled(samples: Iterable[tuple[str, float]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for labels, value in samples:
        name, _, rest = labels.partition("{")
        label = "/".join([_unescape.sub(r"\1", value) for value in _label_value.findall(rest)])
        if name == "_bucket":
            values.setdefault("buckets", {})[label] = value
        else:
            values[label or name.lstrip("_")] = value
    return values


_label_value = re.compile(r'"((?:[^"\\]|\\.)*)"')
_unescape = re.compile(r"\\(.)")


def _head(name: str, kind: str, about: str) -> str:
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def _gauge(name: str, about: str, value: float) -> Metric:
    return Metric(name, "gauge", about, [("", value)])


def _counter(name: str, about: str, value: float) -> Metric:
    return Metric(name, "counter", about, [("", value)])
