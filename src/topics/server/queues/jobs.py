"""GET /v0/topics/:topic/jobs: jobs that are ready, delayed or leased, without leasing them."""

from typing import Any

from msgspec import Raw

from topics.api.queues import JobsQuery
from topics.broker.broker import Broker, Partition, Topic
from topics.model.errors import not_a_queue
from topics.model.records.page import Page, column, page_datas, page_times
from topics.server.limits import at_most
from topics.server.operations import Call, handles
from topics.server.queues.counts import job_counts
from topics.server.responses import send

MAX_JOBS = 500
# Payloads of one response; further jobs are left out. Copying more would hold up the loop.
MAX_PAYLOAD_BYTES = 4 << 20


@handles("list_jobs")
def list_jobs(call: Call[None, JobsQuery]) -> None:
    broker, query = call.broker, call.query
    topic = broker.topic(call.name)
    if topic.config.type != "queue":
        raise not_a_queue(topic.name)
    counts = job_counts(broker, call.caller, topic)
    jobs = _jobs(broker, topic, query.state, at_most(query.limit, MAX_JOBS))
    fields = {"topic": topic.name, "state": query.state, "total": counts[query.state], "counts": counts, "jobs": jobs}
    send(call.request, 200, fields)


def _jobs(broker: Broker, topic: Topic, state: str, limit: int) -> list[dict[str, Any]]:
    found: list[tuple[Partition, dict[str, Any]]] = []
    for partition in topic.partitions:
        leases = partition.leases
        if leases is None:
            continue
        broker.queues.refresh(topic, partition, leases)
        if state == "in_flight":
            for seq, delivery in leases.leased_jobs(limit):
                lease = {"node": delivery.node, "lease_id": delivery.lease_id(seq), "deadline": delivery.deadline}
                found.append((partition, {"seq": seq, "deliveries": leases.delivery_count(seq), **lease}))
        elif state == "delayed":
            for seq, due_ms in leases.delayed_jobs(limit):
                deliveries = leases.past_delivery_counts([seq])[0]
                found.append((partition, {"seq": seq, "deliveries": deliveries, "due_ts": due_ms}))
        else:
            seqs = leases.next_jobs(partition, limit)
            for seq, deliveries in zip(seqs, leases.past_delivery_counts(seqs), strict=True):
                found.append((partition, {"seq": seq, "deliveries": deliveries}))
    if state != "ready":
        ends = "deadline" if state == "in_flight" else "due_ts"
        found.sort(key=lambda each: int(each[1][ends]))
    return _with_data(found[:limit])


def _with_data(found: list[tuple[Partition, dict[str, Any]]]) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = []
    size = 0
    page: Page | None = None
    page_of: Partition | None = None
    datas: list[bytes] = []
    tags: list[bytes] = []
    for partition, job in found:
        seq = job["seq"]
        if page is None or partition is not page_of or not page.first_seq <= seq <= page.last_seq:
            page, page_of = partition.find(seq), partition
            if page is None:
                continue
            # Split once for all jobs of the page.
            datas, tags = page_datas(page), column(page.tags, page.count)
        position = seq - page.first_seq
        size += len(datas[position])
        if size > MAX_PAYLOAD_BYTES and jobs:
            break
        fields = {"partition": partition.number, "ts": page_times(page)[position], "data": Raw(datas[position])}
        jobs.append({**job, **fields, **({"tag": Raw(tags[position])} if tags[position] else {})})
    return jobs
