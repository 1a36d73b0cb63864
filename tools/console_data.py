"""Fill a server with what every screen of the console can show. Used by its tests and its screenshots."""

import random
import time
from typing import Any

from topics.testing.http import Api

HOSTILE = '<img src=x onerror="window.hacked=1">'


def fill(api: Api, *, records: int = 400) -> None:
    """Topics with traffic, a queue with dead letters, groups with lag, routers, routes, a pipeline and an archive."""
    chance = random.Random(7)
    _topics(api, chance, records)
    _queue(api)
    _groups(api)
    _routers(api)
    _pipeline(api)


def _records(api: Api, topic: str, records: list[dict[str, Any]], **more: Any) -> None:
    api.post(f"/v0/topics/{topic}", {"records": records, **more})


def _topics(api: Api, chance: random.Random, count: int) -> None:
    api.put("/v0/topics/orders", {"durability": "fsync"})
    api.put("/v0/topics/clicks", {"durability": "memory", "cap_records": count // 2})
    api.put("/v0/topics/sensor.readings", {"partitions": 4, "ttl_ms": 86_400_000})
    for start in range(0, count, 50):
        numbers = range(start, min(count, start + 50))
        orders = [order(chance, number) for number in numbers]
        _records(api, "orders", orders, node="shop-1")
        _records(
            api, "clicks", [{"data": {"page": f"/product/{number}", "ms": chance.randrange(900)}} for number in numbers]
        )
        for partition in range(4):
            _records(
                api,
                "sensor.readings",
                [{"data": {"celsius": 20 + number % 9}} for number in numbers],
                partition=partition,
            )
    api.post("/v0/topics/orders/delete", {"match": "customer-3"})
    for name in ("audit.logins", "audit.changes", "mail.outbox", "metrics.raw", "metrics.hourly"):
        _records(api, name, [{"data": {"n": number}} for number in range(20)])


def order(chance: random.Random, number: int) -> dict[str, Any]:
    """A record of the topic orders."""
    return {
        "data": {
            "order_id": 10_000 + number,
            "customer": chance.choice(["ada", "grace", "linus", "barbara"]),
            "total": round(chance.uniform(5, 400), 2),
            "items": [{"sku": f"sku-{chance.randrange(90)}", "quantity": chance.randrange(1, 5)}],
        },
        "tag": f"customer-{number % 7}",
        "meta": {"trace": f"{chance.randrange(1 << 32):08x}"},
    }


def _queue(api: Api) -> None:
    api.put("/v0/topics/jobs", {"type": "queue", "lease_ms": 600_000, "max_deliveries": 1, "dead_letter": "jobs.dead"})
    failing = [{"data": {"task": "resize", "image": f"photo-{number}.png"}, "tag": "image"} for number in range(6)]
    _records(api, "jobs", failing)
    claimed = api.post("/v0/topics/jobs/claim", {"node": "worker-1", "max": 10}).json["claimed"]
    api.post(
        "/v0/topics/jobs/nack",
        {"node": "worker-1", "seqs": [job["$seq"] for job in claimed], "reason": "image is not readable"},
    )
    # The next claim finds that they were delivered too often.
    api.post("/v0/topics/jobs/claim", {"node": "worker-1", "max": 10})
    _records(api, "jobs", [{"data": {"task": "resize", "image": f"new-{number}.png"}} for number in range(12)])
    _records(api, "jobs", [{"data": {"task": "report"}, "delay_ms": 3_600_000}])
    hold_jobs(api)
    api.put("/v0/topics/mails", {"type": "queue"})


def hold_jobs(api: Api) -> None:
    """Lease some jobs: a restart of the server ends leases that are not durable."""
    api.post("/v0/topics/jobs/claim", {"node": "worker-1", "max": 2})
    api.post("/v0/topics/jobs/claim", {"node": "worker-2", "max": 1})


def _groups(api: Api) -> None:
    for group, member in (("billing", None), ("warehouse", "c1")):
        body = {"topic": "orders", "group_id": group, "limit": 50, "timeout_seconds": 0}
        polled = api.post("/api/topics/consume", body if member is None else {**body, "consumer_id": member}).json
        offset = polled["messages"][-1]["offset"]
        ack = {"topic": "orders", "group_id": group, "upto_offset": offset}
        api.post("/api/topics/ack", ack if member is None else {**ack, "consumer_id": member})
    for member in ("sensor-a", "sensor-b"):
        body = {
            "topic": "sensor.readings",
            "group_id": "climate",
            "limit": 10,
            "timeout_seconds": 0,
            "consumer_id": member,
        }
        api.post("/api/topics/consume", body)


def _routers(api: Api) -> None:
    for name, source, dest in (
        ("orders-to-audit", "orders", "audit.orders"),
        ("audit-to-archive", "audit.orders", "archive.orders"),
        ("orders-to-mail", "orders", "mail.outbox"),
        ("clicks-to-raw", "clicks", "metrics.raw"),
    ):
        api.put(f"/v0/routers/{name}", {"source": source, "dest": dest, "from": "earliest"})
    for table, topic in (("shop.orders", "orders"), ("shop.customers", "crm.customers")):
        api.put(f"/api/tables/{table}", {"key_columns": ["id"], "columns": {"id": "bigint", "total": "double"}})
        api.post("/api/sql", {"sql": f'CREATE TOPIC IF NOT EXISTS "{topic}"'})
        api.post("/api/sql", {"sql": f'ALTER TOPIC "{topic}" ADD SOURCE {table} ON INSERT'})


def _pipeline(api: Api) -> None:
    now_ms = int(time.time() * 1000)
    report(api, "main", now_ms)
    api.put("/v0/topics/orders/archive", {"uri": "archive/orders"})
    progress = [{"partition": 0, "epoch": api.get("/v0/topics/orders").json["epoch"], "next_seq": 120}]
    api.post("/v0/topics/orders/archive/progress", {"partitions": progress, "table_version": 4})


def fill_hostile(api: Api) -> None:
    """Names and texts that would run a script in a page that takes them for HTML, in every place that accepts them."""
    _records(
        api, "hostile", [{"data": {"note": HOSTILE, HOSTILE: 1}, "tag": HOSTILE, "node": HOSTILE, "meta": {HOSTILE: 1}}]
    )
    api.put("/v0/topics/hostile.jobs", {"type": "queue", "max_deliveries": 1, "dead_letter": "hostile.dead"})
    _records(api, "hostile.jobs", [{"data": {"to": HOSTILE}, "tag": HOSTILE}])
    claimed = api.post("/v0/topics/hostile.jobs/claim", {"node": "w"}).json["claimed"]
    seqs = [job["$seq"] for job in claimed]
    api.post("/v0/topics/hostile.jobs/nack", {"node": "w", "seqs": seqs, "reason": HOSTILE})
    api.post("/v0/topics/hostile.jobs/claim", {"node": "w"})
    _records(api, "hostile.jobs", [{"data": HOSTILE}])
    api.post("/v0/topics/hostile.jobs/claim", {"node": HOSTILE})
    body = {"topic": "hostile", "group_id": HOSTILE, "consumer_id": HOSTILE, "timeout_seconds": 0}
    api.post("/api/topics/consume", body)
    api.put("/v0/topics/hostile/archive", {"uri": f"archive/{HOSTILE}"})
    failed = {"name": HOSTILE, "kind": HOSTILE, "state": "failed", "error": HOSTILE, "notes": {"quarantined": HOSTILE}}
    api.put("/api/pipelines/hostile", {"state": "running", "master": HOSTILE, "started_ts": 1, "jobs": [failed]})


def report(api: Api, name: str, now_ms: int) -> None:
    """A pipeline's report; it counts as lost 15 seconds after the last one."""
    jobs = [
        {"name": "route shop.orders", "kind": "route", "state": "running", "rows": 120_300, "rows_per_s": 812.5, "lag": 14,
         "last_batch": 92, "batch_ms": 310.0},
        {"name": "route shop.customers", "kind": "route", "state": "running", "rows": 8_120, "rows_per_s": 3.5, "lag": 0,
         "last_batch": 40, "batch_ms": 120.0},
        {"name": "archive orders", "kind": "archive", "state": "running", "rows": 120_100, "rows_per_s": 640.0, "lag": 280,
         "last_batch": 31, "batch_ms": 1204.5, "notes": {"quarantined": 3}},
        {"name": "delta customers", "kind": "delta", "state": "failed", "restarts": 4, "error": "column total: expected DOUBLE, got VARCHAR"},
    ]  # fmt: skip
    api.put(
        f"/api/pipelines/{name}",
        {"state": "running", "master": "local[2]", "started_ts": now_ms - 600_000, "jobs": jobs},
    )
