"""Section 10: claim, ack, nack, extend, leases and dead letters."""

import itertools
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from topics.conformance.checks import absent, cases, check, equal, fields, present, refused, succeeded, true
from topics.conformance.server import Server

SHORT_LEASE_MS = 100
LEASE_ID = re.compile(r"lease_[0-9a-fA-F]+")


def _queue(server: Server, jobs: int, **config: Any) -> str:
    name = server.create(type="queue", **config)
    if jobs:
        server.append(name, *range(1, jobs + 1))
    return name


def _seqs(body: dict[str, Any]) -> list[int]:
    return [job["$seq"] for job in body["claimed"]]


def _expire() -> None:
    time.sleep((SHORT_LEASE_MS + 30) / 1000)


CALLS: dict[str, dict[str, Any]] = {
    "claim": {"node": "w"},
    "ack": {"node": "w", "seqs": [1]},
    "nack": {"node": "w", "seqs": [1]},
    "extend": {"node": "w", "seqs": [1], "lease_ms": 1000},
}


@cases({action: action for action in CALLS})
def absent_queue_is_404(server: Server, action: str) -> None:
    refused(server.post(server.topic_path(None, f"/{action}"), CALLS[action]), 404, "topic_not_found")


@cases({action: action for action in CALLS})
def log_is_409(server: Server, action: str) -> None:
    refused(server.post(server.topic_path(server.create(), f"/{action}"), CALLS[action]), 409, "not_a_queue")


BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "claim without a node": ("claim", {}),
    "claim with an empty node": ("claim", {"node": ""}),
    "claim with a node of 129 bytes": ("claim", {"node": "n" * 129}),
    "claim with a number as its node": ("claim", {"node": 5}),
    "claim with max as text": ("claim", {"node": "w", "max": "5"}),
    "claim with a negative max": ("claim", {"node": "w", "max": -1}),
    "claim with lease_ms as text": ("claim", {"node": "w", "lease_ms": "5"}),
    "ack without a node": ("ack", {"seqs": [1]}),
    "ack without seqs": ("ack", {"node": "w"}),
    "ack of no seqs": ("ack", {"node": "w", "seqs": []}),
    "ack with text as a seq": ("ack", {"node": "w", "seqs": ["1"]}),
    "ack with a negative seq": ("ack", {"node": "w", "seqs": [-1]}),
    "ack with too few lease ids": ("ack", {"node": "w", "seqs": [1, 2], "lease_ids": ["lease_a"]}),
    "ack with a number as a lease id": ("ack", {"node": "w", "seqs": [1], "lease_ids": [5]}),
    "nack without a node": ("nack", {"seqs": [1]}),
    "nack with a negative delay": ("nack", {"node": "w", "seqs": [1], "delay_ms": -1}),
    "nack with delay_ms as text": ("nack", {"node": "w", "seqs": [1], "delay_ms": "5"}),
    "nack with too many lease ids": ("nack", {"node": "w", "seqs": [1], "lease_ids": ["lease_a", "lease_b"]}),
    "extend without lease_ms": ("extend", {"node": "w", "seqs": [1]}),
    "extend without a node": ("extend", {"seqs": [1], "lease_ms": 1000}),
    "extend with lease_ms as text": ("extend", {"node": "w", "seqs": [1], "lease_ms": "5"}),
}


@cases(BAD)
def bad_request_is_refused(server: Server, case: tuple[str, dict[str, Any]]) -> None:
    action, body = case
    refused(server.post(server.topic_path(_queue(server, 1), f"/{action}"), body), 400, "invalid_request")


@cases({action: action for action in ("ack", "nack", "extend")})
def more_than_1000_seqs_are_refused(server: Server, action: str) -> None:
    body = {**CALLS[action], "seqs": list(range(1, 1002))}
    refused(server.post(server.topic_path(_queue(server, 1), f"/{action}"), body), 400, "batch_too_large")


# Claim


@check
def claim_returns_the_job_with_its_lease(server: Server) -> None:
    name = server.create(type="queue")
    server.append(name, {"data": {"a": 1}, "tag": "t", "meta": {"m": 1}})
    before = time.time() * 1000
    body = succeeded(server.post(server.topic_path(name, "/claim"), {"node": "w"}))
    fields(body, topic=name, count=1, ready=0)
    job = body["claimed"][0]
    fields(job, **{"$seq": 1, "$tag": "t", "data": {"a": 1}, "meta": {"m": 1}, "deliveries": 1})
    true(LEASE_ID.fullmatch(job["lease_id"]), f"lease_id is {job['lease_id']!r}")
    true(abs(job["deadline"] - before - 30_000) < 5000, f"deadline is {job['deadline'] - before:.0f} ms from now")
    present(job, "$ts")


@check
def job_without_tag_and_meta_has_no_such_fields(server: Server) -> None:
    absent(server.claim(_queue(server, 1))["claimed"][0], "$tag", "meta")


@check
def claim_takes_one_job_by_default(server: Server) -> None:
    fields(server.claim(_queue(server, 3)), count=1, ready=2)


@check
def claim_takes_up_to_max_in_order(server: Server) -> None:
    body = server.claim(_queue(server, 5), max=3)
    equal(_seqs(body), [1, 2, 3], "seqs")
    fields(body, count=3, ready=2)


@check
def claim_of_an_empty_queue_is_empty(server: Server) -> None:
    fields(server.claim(_queue(server, 0), max=5), claimed=[], count=0, ready=0)


@check
def claim_max_is_clamped_to_1000(server: Server) -> None:
    fields(server.claim(_queue(server, 1100), max=5000), count=1000, ready=100)


@check
def leased_job_is_invisible_to_its_holder_too(server: Server) -> None:
    name = _queue(server, 1)
    fields(server.claim(name, "w1"), count=1)
    fields(server.claim(name, "w1"), count=0)
    fields(server.claim(name, "w2"), count=0)


@check
def claim_lease_overrides_the_queue(server: Server) -> None:
    now = time.time() * 1000
    job = server.claim(_queue(server, 1), lease_ms=500_000)["claimed"][0]
    true(abs(job["deadline"] - now - 500_000) < 5000, f"deadline is {job['deadline'] - now:.0f} ms from now")


@check
def claim_lease_is_clamped(server: Server) -> None:
    now = time.time() * 1000
    job = server.claim(_queue(server, 1), lease_ms=1)["claimed"][0]
    true(job["deadline"] - now > 90, f"deadline is {job['deadline'] - now:.0f} ms from now")
    job = server.claim(_queue(server, 1), lease_ms=10**12)["claimed"][0]
    true(job["deadline"] - now < 86_405_000, f"deadline is {job['deadline'] - now:.0f} ms from now")


@check
def concurrent_claims_share_no_job(server: Server) -> None:
    name = _queue(server, 60)
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda number: _seqs(server.claim(name, f"w{number}", max=10)), range(6)))
    equal(sorted(itertools.chain(*claims)), list(range(1, 61)), "seqs of all claims")


@check
def new_jobs_can_be_claimed_later(server: Server) -> None:
    name = _queue(server, 1)
    server.claim(name)
    server.append(name, 2)
    equal(_seqs(server.claim(name)), [2], "seqs")


@check
def claims_within_the_jitter_window_share_evenly(server: Server) -> None:
    name = _queue(server, 8, claim_jitter_ms=400)
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda node=f"w{n}": counts.append(server.claim(name, node, max=8)["count"]))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(sum(counts), 8, "jobs of all claims")
    true(max(counts) <= 4, f"jobs per claim: {counts}")


# Ack


@check
def ack_deletes_the_job(server: Server) -> None:
    name = _queue(server, 2)
    server.claim(name, max=2)
    body = succeeded(server.post(server.topic_path(name, "/ack"), {"node": "w1", "seqs": [1]}))
    fields(body, topic=name, acked=1, skipped=[], ready=0, in_flight=1)
    fields(server.state(name), count=1, earliest_seq=2)
    equal(server.seqs(name), [2], "seqs")


@check
def repeated_ack_is_skipped(server: Server) -> None:
    name = _queue(server, 1)
    server.claim(name)
    fields(server.queue_call(name, "ack", node="w1", seqs=[1]), acked=1)
    fields(server.queue_call(name, "ack", node="w1", seqs=[1]), acked=0, skipped=[1])


@cases({action: action for action in ("ack", "nack", "extend")})
def job_of_another_node_is_skipped(server: Server, action: str) -> None:
    name = _queue(server, 1)
    server.claim(name, "w1")
    done = {"ack": "acked", "nack": "nacked", "extend": "extended"}[action]
    more = {"lease_ms": 1000} if action == "extend" else {}
    fields(server.queue_call(name, action, node="w2", seqs=[1], **more), **{done: 0, "skipped": [1]})


@check
def ack_of_an_unclaimed_job_is_skipped(server: Server) -> None:
    name = _queue(server, 2)
    fields(server.queue_call(name, "ack", node="w1", seqs=[1, 99]), acked=0, skipped=[1, 99])
    fields(server.state(name), count=2)


@check
def ack_counts_held_jobs_and_skips_others(server: Server) -> None:
    name = _queue(server, 3)
    server.claim(name, max=2)
    fields(server.queue_call(name, "ack", node="w1", seqs=[1, 2, 3]), acked=2, skipped=[3], ready=1, in_flight=0)


@check
def ack_on_a_durable_queue_waits_for_the_sync(server: Server) -> None:
    name = _queue(server, 1, durability="fsync")
    server.claim(name)
    performance = server.queue_call(name, "ack", node="w1", seqs=[1])["performance"]
    true(performance.get("fsync_ms", 0) > 0, f"fsync_ms is {performance.get('fsync_ms')!r}")


@check
def acked_job_never_comes_back(server: Server) -> None:
    name = _queue(server, 1, lease_ms=SHORT_LEASE_MS)
    server.claim(name)
    server.queue_call(name, "ack", node="w1", seqs=[1])
    _expire()
    fields(server.claim(name), count=0)


# Nack


@check
def nack_makes_the_job_claimable(server: Server) -> None:
    name = _queue(server, 1)
    server.claim(name)
    body = server.queue_call(name, "nack", node="w1", seqs=[1])
    fields(body, topic=name, nacked=1, skipped=[], ready=1, in_flight=0)
    fields(server.claim(name, "w2")["claimed"][0], deliveries=2)


@check
def returned_jobs_come_before_fresh_ones(server: Server) -> None:
    name = _queue(server, 3)
    server.claim(name, max=2)
    server.queue_call(name, "nack", node="w1", seqs=[2])
    equal(_seqs(server.claim(name)), [2], "seqs")


@check
def nack_with_a_delay_hides_the_job(server: Server) -> None:
    name = _queue(server, 1)
    server.claim(name)
    fields(server.queue_call(name, "nack", node="w1", seqs=[1], delay_ms=300), nacked=1, ready=0, in_flight=0)
    fields(server.claim(name), count=0)
    fields(server.state(name)["queue"], ready=0, in_flight=0)
    server.wait_for(lambda: server.state(name)["queue"]["ready"] == 1, "the job did not return after its delay")
    fields(server.claim(name), count=1)


# Leases


@check
def expired_lease_makes_the_job_claimable(server: Server) -> None:
    name = _queue(server, 1, lease_ms=SHORT_LEASE_MS)
    first = server.claim(name)["claimed"][0]
    _expire()
    fields(server.state(name)["queue"], ready=1, in_flight=0)
    second = server.claim(name, "w2")["claimed"][0]
    fields(second, deliveries=2)
    true(first["lease_id"] != second["lease_id"], "the second delivery has the lease id of the first")


@check
def late_ack_after_another_claim_is_skipped(server: Server) -> None:
    name = _queue(server, 1, lease_ms=SHORT_LEASE_MS)
    server.claim(name, "w1")
    _expire()
    server.claim(name, "w2", lease_ms=60_000)
    fields(server.queue_call(name, "ack", node="w1", seqs=[1]), acked=0, skipped=[1])
    fields(server.queue_call(name, "ack", node="w2", seqs=[1]), acked=1)


@cases({action: action for action in ("ack", "nack", "extend")})
def stale_lease_id_of_the_same_node_is_skipped(server: Server, action: str) -> None:
    name = _queue(server, 1, lease_ms=SHORT_LEASE_MS)
    old = server.claim(name)["claimed"][0]["lease_id"]
    _expire()
    new = server.claim(name, lease_ms=60_000)["claimed"][0]["lease_id"]
    done = {"ack": "acked", "nack": "nacked", "extend": "extended"}[action]
    more = {"lease_ms": 60_000} if action == "extend" else {}
    fields(server.queue_call(name, action, node="w1", seqs=[1], lease_ids=[old], **more), **{done: 0, "skipped": [1]})
    fields(server.queue_call(name, action, node="w1", seqs=[1], lease_ids=[new], **more), **{done: 1, "skipped": []})


@check
def extend_sets_the_deadline_from_now(server: Server) -> None:
    name = _queue(server, 1)
    server.claim(name)
    now = time.time() * 1000
    body = server.queue_call(name, "extend", node="w1", seqs=[1], lease_ms=60_000)
    fields(body, topic=name, extended=1, skipped=[])
    true(abs(body["deadlines"]["1"] - now - 60_000) < 5000, f"deadlines is {body['deadlines']}")


@check
def extend_keeps_the_job_from_expiring(server: Server) -> None:
    name = _queue(server, 1, lease_ms=SHORT_LEASE_MS)
    server.claim(name)
    server.queue_call(name, "extend", node="w1", seqs=[1], lease_ms=60_000)
    _expire()
    fields(server.claim(name, "w2"), count=0)
    fields(server.queue_call(name, "ack", node="w1", seqs=[1]), acked=1)


@check
def extend_counts_no_delivery(server: Server) -> None:
    name = _queue(server, 1)
    server.claim(name)
    server.queue_call(name, "extend", node="w1", seqs=[1], lease_ms=1000)
    server.queue_call(name, "nack", node="w1", seqs=[1])
    fields(server.claim(name)["claimed"][0], deliveries=2)


@check
def expired_lease_cannot_be_extended_after_another_claim(server: Server) -> None:
    name = _queue(server, 1, lease_ms=SHORT_LEASE_MS)
    server.claim(name, "w1")
    _expire()
    server.claim(name, "w2")
    fields(server.queue_call(name, "extend", node="w1", seqs=[1], lease_ms=1000), extended=0, skipped=[1])


# Dead letters


@check
def job_is_moved_after_max_deliveries(server: Server) -> None:
    dead = server.new_name()
    name = server.create(type="queue", max_deliveries=2, dead_letter=dead)
    server.append(name, {"data": "bad", "tag": "t", "meta": {"m": 1}}, {"data": "good"})
    for _ in range(2):
        equal(_seqs(server.claim(name)), [1], "seqs")
        server.queue_call(name, "nack", node="w1", seqs=[1])
    equal(_seqs(server.claim(name)), [2], "seqs after the dead letter")
    record = server.diff(dead, include_tags=True)["records"][0]
    fields(record, **{"data": "bad", "$tag": "t"})
    fields(
        record["meta"], **{"m": 1, "$dead_letter_from": name, "$dead_letter_deliveries": 2, "$dead_letter_src_seq": 1}
    )
    fields(server.state(name)["queue"], dead_lettered=1)
    fields(server.state(name), count=1)


WITHOUT_DEAD_LETTERS: dict[str, dict[str, Any]] = {
    "no dead letter topic": {"max_deliveries": 1},
    "no limit": {"dead_letter": "conformance-unused"},
}


@cases(WITHOUT_DEAD_LETTERS)
def job_is_never_moved_without_both_settings(server: Server, config: dict[str, Any]) -> None:
    name = _queue(server, 1, **config)
    for delivery in range(1, 4):
        fields(server.claim(name)["claimed"][0], deliveries=delivery)
        server.queue_call(name, "nack", node="w1", seqs=[1])


# Counts and other operations


@check
def state_counts_ready_and_in_flight(server: Server) -> None:
    name = _queue(server, 5)
    server.claim(name, max=2)
    fields(server.state(name)["queue"], ready=3, in_flight=2, dead_lettered=0)


@check
def diff_of_a_queue_claims_nothing(server: Server) -> None:
    name = _queue(server, 3)
    equal(server.seqs(name), [1, 2, 3], "seqs")
    fields(server.state(name)["queue"], ready=3, in_flight=0)


@check
def deleted_jobs_are_not_claimable(server: Server) -> None:
    name = _queue(server, 3)
    server.remove(name, before_seq=3)
    equal(_seqs(server.claim(name, max=5)), [3], "seqs")


@check
def expired_jobs_are_not_claimable(server: Server) -> None:
    name = _queue(server, 2, ttl_ms=50)
    time.sleep(0.1)
    fields(server.claim(name, max=5), count=0, ready=0)


@check
def recreated_queue_has_no_leases(server: Server) -> None:
    name = _queue(server, 1)
    server.claim(name)
    server.delete(server.topic_path(name))
    server.put(server.topic_path(name), {"type": "queue"})
    server.append(name, 1)
    fields(server.claim(name)["claimed"][0], deliveries=1)
