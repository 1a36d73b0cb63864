"""Queues over the log: what survives which end of the process, and who gets which job."""

import errno
import itertools
import json
from collections import Counter
from typing import Any

import pytest

from tests.broker.queue_bench import QueueBench, jobs_of, seqs_of
from topics.broker.log.apply import apply
from topics.broker.queues.claims import ClaimResult
from topics.broker.routers.routers import WantedRouter
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.engine.queues.shares import shares
from topics.model.config import ConfigChange
from topics.model.errors import Conflict, InvalidRequest, NotFound, TopicsError, Unavailable
from topics.model.facts import TopicDeleted
from topics.model.limits import Limits
from topics.model.storage_settings import StorageSettings
from topics.testing.disk.fake_disk import FakeDisk, PowerCut
from topics.testing.disk.survival import Survive

SURVIVALS: tuple[Survive, ...] = ("none", "random", "all")


def queue(**fields: Any) -> QueueBench:
    bench = QueueBench()
    bench.configure(**fields)
    return bench


# Claiming


def test_a_claim_carries_the_record_and_its_lease() -> None:
    bench = queue(lease_ms=500)
    bench.append({"a": 1}, tag="t", node="n", meta={"m": 1})
    bench.append("plain")
    one, two = bench.claim(2)
    now = bench.clock.now_ms()
    assert one == {
        "$seq": 1,
        "lease_id": one["lease_id"],
        "deadline": now + 500,
        "$ts": now,
        "$node": "n",
        "$tag": "t",
        "deliveries": 1,
        "data": {"a": 1},
        "meta": {"m": 1},
    }
    assert set(two) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert one["lease_id"] != two["lease_id"]


def test_claimed_jobs_ascend_although_returned_ones_are_chosen_first() -> None:
    bench = queue()
    bench.append(*range(600))
    bench.claim(500)
    bench.nack(300, 2, 499)
    assert seqs_of(bench.claim(5)) == [2, 300, 499, 501, 502]


def test_lease_ids_differ_between_deliveries_and_restarts() -> None:
    bench = queue()
    bench.append(1)
    seen = {bench.claim()[0]["lease_id"]}
    bench.nack(1)
    seen.add(bench.claim()[0]["lease_id"])
    seen.add(bench.after_kill().claim()[0]["lease_id"])
    assert len(seen) == 3


def test_an_expired_lease_cannot_be_acked_nacked_or_extended() -> None:
    bench = queue(lease_ms=100)
    bench.append(1, 2, 3)
    bench.claim(3)
    bench.pass_time(101)
    assert bench.ack(1).skipped == [1]
    assert bench.nack(2).skipped == [2]
    assert bench.extend(3, lease_ms=1000).skipped == [3]
    assert bench.counters() == (3, 0, 0)


def test_a_job_deleted_expired_or_evicted_is_not_claimable_and_its_lease_is_gone() -> None:
    bench = queue(cap_records=3, ttl_ms=1000)
    bench.append(1, 2, 3)
    bench.claim(2)
    bench.append(4)
    assert bench.counters() == (2, 1, 0), "job 1 was evicted under its lease"
    assert bench.ack(1).skipped == [1]
    bench.broker.delete_records("q", 3, None, 0, lambda _: None)
    bench.runtime.run()
    assert bench.counters() == (2, 0, 0)
    bench.pass_time(500)
    bench.append(5)
    bench.pass_time(501)
    assert bench.counters() == (1, 0, 0)
    assert seqs_of(bench.claim(9)) == [5]


def test_reading_a_queue_changes_nothing() -> None:
    bench = queue()
    bench.append(1, 2)
    bench.claim()
    assert seqs_of(bench.records()) == [1, 2]
    assert bench.counters() == (1, 1, 0)
    bench.ack(1)
    assert seqs_of(bench.records()) == [2]


def test_a_log_is_no_queue_and_an_absent_topic_is_none() -> None:
    bench = queue()
    bench.configure("log", type="log")
    with pytest.raises(Conflict) as refused:
        bench.claim(name="log")
    assert refused.value.code == "not_a_queue"
    with pytest.raises(NotFound):
        bench.ack(1, name="absent")


def test_every_partition_of_a_queue_has_its_own_jobs() -> None:
    bench = queue(partitions=2)
    bench.append(1, 2)
    assert bench.broker.queues.find("q", 1)[1].count == 0
    with pytest.raises(InvalidRequest):
        bench.broker.queues.find("q", 2)
    assert bench.counters() == (2, 0, 0)


# Turns


def test_claims_of_one_turn_are_served_in_the_order_they_came() -> None:
    bench = queue()
    bench.append(*range(5))
    claims = [bench.start_claim(most, node=node)[0] for most, node in ((2, "a"), (2, "b"), (2, "c"), (2, "d"))]
    assert not any(claims), "not before the turn ends"
    bench.runtime.run()
    assert [seqs_of(jobs_of(answers)) for answers in claims] == [[1, 2], [3, 4], [5], []]


def test_returned_jobs_go_first_within_a_turn_too() -> None:
    bench = queue()
    bench.append(*range(6))
    bench.claim(3)
    bench.nack(1, 3)
    claims = [bench.start_claim(2)[0] for _ in range(3)]
    bench.runtime.run()
    assert [seqs_of(jobs_of(answers)) for answers in claims] == [[1, 3], [4, 5], [6]]


def test_a_claim_whose_client_goes_before_the_turn_ends_takes_nothing() -> None:
    bench = queue()
    bench.append(1)
    gone, claim = bench.start_claim(wait_ms=10)
    assert claim is not None
    claim.cancel()
    assert seqs_of(bench.claim()) == [1]
    assert not gone


@pytest.mark.parametrize("leases_durable", [False, True])
def test_claims_fail_when_their_topic_is_deleted_before_the_turn_ends(leases_durable: bool) -> None:
    bench = queue(leases_durable=leases_durable)
    bench.append(1)
    topic = bench.broker.topic("q")
    answers, _ = bench.start_claim()
    apply(bench.broker.state, TopicDeleted(topic.id))
    bench.runtime.run()
    assert isinstance(answers[0], NotFound)


def test_the_durable_leases_of_a_turn_are_one_frame_and_so_are_its_acks() -> None:
    bench = queue(leases_durable=True)
    bench.append(*range(40))
    frames = bench.broker.committer.frames_total
    claims = [bench.start_claim(8, node=node)[0] for node in "abcde"]
    bench.runtime.run()
    assert bench.broker.committer.frames_total == frames + 1
    answers: list[Any] = []
    for node, claim in zip("abde", (claims[0], claims[1], claims[3], claims[4]), strict=True):
        bench.broker.queues.ack("q", 0, node, seqs_of(jobs_of(claim)), None, answers.append)
    bench.runtime.run()
    assert [answer.count for answer in answers] == [8, 8, 8, 8]
    assert bench.broker.committer.frames_total == frames + 2
    again = bench.after_kill()
    assert again.counters() == (0, 8, 0)
    assert again.ack(*range(17, 25), node="c").skipped == []


def test_a_job_that_ran_out_within_the_turn_is_with_its_new_holder_after_the_end_of_the_process() -> None:
    bench = queue(leases_durable=True, lease_ms=100)
    bench.append(1, 2)
    bench.claim(1, node="a")
    claims = [bench.start_claim(1, node="b")[0]]
    bench.clock.advance(101)
    claims.append(bench.start_claim(1, node="c")[0])
    bench.runtime.run()
    assert sorted([seqs_of(jobs_of(answers)) for answers in claims]) == [[1], [2]]
    assert bench.after_kill().counters() == (0, 2, 0)


def test_leases_of_a_turn_that_the_log_refuses_leave_the_jobs_in_their_order() -> None:
    bench = queue(leases_durable=True)
    bench.append(*range(6))
    disk_full(bench)
    claims = [bench.start_claim(2)[0] for _ in range(3)]
    bench.runtime.run()
    assert all([isinstance(answer, Unavailable) for (answer,) in claims])
    bench.disk.fault = None
    assert seqs_of(bench.claim(3)) == [1, 2, 3]
    assert [job["deliveries"] for job in bench.claim(3)] == [1, 1, 1]


# Waiting


def test_a_waiting_claim_is_woken_by_an_append() -> None:
    bench = queue()
    answers, _ = bench.start_claim(wait_ms=1000)
    bench.runtime.run()
    assert not answers
    bench.append("new")
    assert seqs_of(jobs_of(answers)) == [1]


def test_a_waiting_claim_is_woken_by_a_nack_an_expiry_and_a_delay_that_ends() -> None:
    bench = queue(lease_ms=300)
    bench.append(1, 2)
    bench.append(3, delay_ms=500)
    bench.claim(1, node="a")
    bench.claim(1, node="b")
    by_nack, _ = bench.start_claim(wait_ms=5000, node="c", lease_ms=9000)
    bench.nack(1, node="a")
    assert seqs_of(jobs_of(by_nack)) == [1]
    by_expiry, _ = bench.start_claim(wait_ms=5000, node="c", lease_ms=9000)
    bench.pass_time(300)
    assert not by_expiry
    bench.pass_time(1)
    assert seqs_of(jobs_of(by_expiry)) == [2]
    by_delay, _ = bench.start_claim(wait_ms=5000, node="c")
    bench.pass_time(198)
    assert not by_delay
    bench.pass_time(1)
    assert seqs_of(jobs_of(by_delay)) == [3]


def test_a_lease_that_is_shortened_moves_the_moment_of_waking() -> None:
    bench = queue(lease_ms=60_000)
    bench.append(1)
    bench.claim(1)
    waiting, _ = bench.start_claim(wait_ms=30_000, node="v")
    bench.runtime.run()
    bench.extend(1, lease_ms=100)
    bench.pass_time(101)
    assert seqs_of(jobs_of(waiting)) == [1]


def test_a_wait_ends_without_jobs_and_leaves_nothing_behind() -> None:
    bench = queue()
    answers, _ = bench.start_claim(wait_ms=200)
    bench.runtime.run()
    bench.pass_time(199)
    assert not answers
    bench.pass_time(1)
    assert jobs_of(answers) == []
    assert not bench.broker.polls
    assert bench.broker.topic("q").partitions[0].leases.on_jobs_freed is None  # type: ignore[union-attr]
    bench.append(1)
    assert len(answers) == 1
    assert bench.counters() == (1, 0, 0)


def test_a_cancelled_claim_gets_no_jobs() -> None:
    bench = queue()
    answers, claim = bench.start_claim(wait_ms=200)
    bench.runtime.run()
    assert claim is not None
    claim.cancel()
    bench.append(1)
    assert not answers
    assert bench.counters() == (1, 0, 0)


def test_a_claim_cancelled_while_its_lease_is_written_gives_the_jobs_back() -> None:
    bench = queue(leases_durable=True)
    bench.append(1)
    answers, claim = bench.start_claim()
    assert claim is not None
    claim.cancel()
    bench.runtime.run()
    assert not answers
    assert bench.counters() == (1, 0, 0)


def test_waiting_claims_fail_when_the_topic_is_deleted() -> None:
    bench = queue()
    answers, _ = bench.start_claim(wait_ms=1000)
    bench.broker.delete_topic("q", if_empty=False, reply=lambda _: None)
    bench.runtime.run()
    assert isinstance(answers[0], NotFound)
    assert not bench.broker.polls


def test_a_stopping_server_answers_waiting_claims() -> None:
    bench = queue()
    answers, _ = bench.start_claim(wait_ms=1000)
    bench.runtime.run()
    bench.broker.finish_polls()
    assert jobs_of(answers) == []


def test_a_stopping_server_answers_claims_of_its_last_turn() -> None:
    bench = queue()
    answers, _ = bench.start_claim(wait_ms=1000)
    bench.broker.finish_polls()
    bench.runtime.run()
    assert jobs_of(answers) == []
    assert not bench.broker.polls


# Cohorts


def test_ten_claimers_of_one_window_share_evenly() -> None:
    bench = queue(claim_jitter_ms=50)
    bench.append(*range(25))
    cohort = []
    for number in range(10):
        cohort.append(bench.start_claim(16, node=f"w{number}")[0])
        bench.pass_time(4)
    assert not any(cohort)
    bench.pass_time(20)
    counts = [len(jobs_of(answers)) for answers in cohort]
    assert sum(counts) == 25
    assert set(counts) == {2, 3}
    assert bench.counters() == (0, 25, 0)


def test_jobs_of_a_cohort_are_dealt_round_and_round() -> None:
    bench = queue(claim_jitter_ms=50)
    bench.append(*range(6))
    cohort = [bench.start_claim(9, node=f"w{number}")[0] for number in range(3)]
    bench.pass_time(50)
    assert [seqs_of(jobs_of(answers)) for answers in cohort] == [[1, 4], [2, 5], [3, 6]]


def test_a_claim_after_the_window_waits_for_the_next_one() -> None:
    bench = queue(claim_jitter_ms=50)
    bench.append(1, 2)
    first, _ = bench.start_claim(1)
    bench.pass_time(50)
    late, _ = bench.start_claim(1)
    assert seqs_of(jobs_of(first)) == [1]
    bench.pass_time(49)
    assert not late
    bench.pass_time(1)
    assert seqs_of(jobs_of(late)) == [2]


def test_a_window_over_an_empty_queue_answers_empty_and_waiting_claims_go_on_waiting() -> None:
    bench = queue(claim_jitter_ms=50)
    plain, _ = bench.start_claim(1)
    waiting, _ = bench.start_claim(1, wait_ms=1000)
    bench.pass_time(50)
    assert jobs_of(plain) == []
    assert not waiting
    bench.append(1)
    assert not waiting, "others may come within the window"
    bench.pass_time(50)
    assert seqs_of(jobs_of(waiting)) == [1]


def test_who_left_within_the_window_gets_nothing() -> None:
    bench = queue(claim_jitter_ms=50)
    bench.append(1, 2)
    gone, claim = bench.start_claim(2)
    there, _ = bench.start_claim(2)
    assert claim is not None
    claim.cancel()
    bench.pass_time(50)
    assert not gone
    assert seqs_of(jobs_of(there)) == [1, 2]


@pytest.mark.parametrize(
    ("rooms", "jobs", "expected"),
    [
        ([5, 5], 20, [5, 5]),
        ([5, 5], 5, [3, 2]),
        ([1, 9], 6, [1, 5]),
        ([1, 1000], 10, [1, 9]),
        ([10, 30], 20, [5, 15]),
        ([4, 4, 4], 2, [1, 1, 0]),
        ([0, 4], 2, [0, 2]),
        ([3, 0, 3], 0, [0, 0, 0]),
    ],
)
def test_each_claimer_gets_a_job_and_the_rest_is_divided_by_capacity(
    rooms: list[int], jobs: int, expected: list[int]
) -> None:
    assert shares(rooms, jobs) == expected


def test_shares_never_exceed_the_capacity_nor_the_jobs() -> None:
    for rooms in itertools.product(range(5), repeat=3):
        for jobs in range(sum(rooms) + 2):
            got = shares(list(rooms), jobs)
            assert sum(got) == min(jobs, sum(rooms))
            assert all([0 <= each <= room for each, room in zip(got, rooms, strict=True)])


# What survives


def test_leases_that_are_not_durable_leave_no_trace_in_the_log() -> None:
    bench = queue(leases_durable=False)
    bench.append(1, 2, 3)
    frames = bench.broker.committer.frames_total
    bench.claim(3)
    bench.nack(1, delay_ms=50)
    bench.extend(2, lease_ms=1000)
    bench.pass_time(40_000)
    bench.counters()
    assert bench.broker.committer.frames_total == frames
    again = bench.after_kill()
    assert again.counters() == (3, 0, 0)
    assert [job["deliveries"] for job in again.claim(3)] == [1, 1, 1]


@pytest.mark.parametrize("snapshot", [False, True])
def test_durable_leases_survive_the_end_of_the_process(snapshot: bool) -> None:
    bench = queue(leases_durable=True, lease_ms=1000)
    bench.append(*range(8))
    bench.claim(1, node="x")
    bench.nack(1, node="x")
    held = bench.claim(4, node="x")
    bench.extend(2, node="x", lease_ms=5000)
    bench.nack(3, node="x", delay_ms=700)
    bench.ack(4, node="x")
    if snapshot:
        bench.checkpoint()
    again = bench.after_kill()
    assert again.counters() == (4, 2, 0)
    assert seqs_of(again.claim(9, node="y")) == [5, 6, 7, 8]
    again.pass_time(700)
    assert [(job["$seq"], job["deliveries"]) for job in again.claim(9, node="y", lease_ms=60_000)] == [(3, 2)]
    again.pass_time(301)
    back = again.claim(9, node="y", lease_ms=60_000)
    assert [(job["$seq"], job["deliveries"]) for job in back if job["$seq"] == 1] == [(1, 3)]
    lease_ids = {job["$seq"]: job["lease_id"] for job in held}
    assert again.ack(2, node="x", lease_ids=[lease_ids[2]]).skipped == []


def test_an_expiry_once_seen_stays_seen_when_leases_are_durable() -> None:
    bench = queue(leases_durable=True, lease_ms=100)
    bench.append(1)
    bench.claim()
    bench.pass_time(101)
    assert bench.counters() == (1, 0, 0)
    bench.runtime.run()
    bench.clock.set(bench.clock.now_ms() - 101)
    assert bench.after_kill().counters() == (1, 0, 0)


def test_released_jobs_stay_released_after_the_end_of_the_process() -> None:
    bench = queue(leases_durable=True)
    bench.append(1, 2)
    bench.claim(1)
    topic, partition, leases = bench.broker.queues.find("q", 0)
    connection_jobs: set[int] = set()
    leases.lease(leases.take(partition, 1, 0).seqs, "s", b"0" * 16, bench.clock.now_ms() + 1000, connection_jobs)
    bench.broker.queues.release(topic, partition, connection_jobs)
    bench.runtime.run()
    again = bench.after_kill()
    assert again.counters() == (1, 1, 0)
    assert [(job["$seq"], job["deliveries"]) for job in again.claim(2)] == [(2, 2)]


def test_leases_made_durable_later_survive_too() -> None:
    bench = queue()
    bench.append(*range(4))
    bench.claim(3)
    bench.nack(1)
    bench.nack(2, delay_ms=500)
    bench.configure(leases_durable=True)
    again = bench.after_kill()
    assert again.counters() == (2, 1, 0)
    assert [(job["$seq"], job["deliveries"]) for job in again.claim(9)] == [(1, 2), (4, 1)]


def test_leases_no_longer_durable_are_forgotten_at_the_end_of_the_process() -> None:
    bench = queue(leases_durable=True)
    bench.append(1, 2)
    bench.claim(2)
    bench.configure(leases_durable=False)
    assert bench.counters() == (0, 2, 0), "but not before"
    again = bench.after_kill()
    assert again.counters() == (2, 0, 0)
    again.configure(leases_durable=True)
    assert again.after_kill().counters() == (2, 0, 0)


def test_a_lease_that_expires_during_the_change_to_leases_that_are_not_durable_leaves_no_trace() -> None:
    bench = queue(leases_durable=True, lease_ms=100)
    bench.append(1)
    bench.claim()
    bench.clock.advance(101)
    # The expiry is noticed before the change is applied, and is written to the log behind it.
    bench.broker.configure("q", ConfigChange(leases_durable=False), lambda _: None)
    assert bench.counters() == (1, 0, 0)
    bench.runtime.run()
    assert [job["deliveries"] for job in bench.after_kill().claim()] == [1]


def disk_full(bench: QueueBench) -> None:
    bench.disk.fault = lambda step, op, path: errno.ENOSPC if op == "write_at" else None


def test_a_lease_the_log_refuses_was_never_given() -> None:
    bench = queue(leases_durable=True)
    bench.append(1, 2)
    disk_full(bench)
    with pytest.raises(Unavailable):
        bench.claim(2)
    assert bench.counters() == (2, 0, 0)
    bench.disk.fault = None
    assert [(job["$seq"], job["deliveries"]) for job in bench.claim(2)] == [(1, 1), (2, 1)]


@pytest.mark.parametrize("leases_durable", [False, True])
def test_what_the_log_refuses_to_settle_is_still_held(leases_durable: bool) -> None:
    bench = queue(leases_durable=leases_durable)
    bench.append(1)
    bench.claim(1)
    disk_full(bench)
    with pytest.raises(Unavailable):
        bench.ack(1)
    if leases_durable:
        with pytest.raises(Unavailable):
            bench.nack(1)
    assert bench.counters() == (0, 1, 0)
    bench.disk.fault = None
    assert bench.ack(1).count == 1
    assert bench.counters() == (0, 0, 0)


def test_a_dead_letter_the_log_refuses_stays_a_job() -> None:
    bench = dead_letter_queue()
    bench.append(1)
    wear_out(bench, 1)
    disk_full(bench)
    assert bench.claim() == []
    assert bench.counters() == (1, 0, 0)
    bench.disk.fault = None
    assert bench.claim() == []
    assert bench.counters() == (0, 0, 1)
    assert seqs_of(bench.records("dlq")) == [1]


def test_delays_survive_the_end_of_the_process() -> None:
    for snapshot in (False, True):
        bench = queue(durable=True)
        bench.append("now")
        bench.append("later", delay_ms=500)
        if snapshot:
            bench.checkpoint()
        for again in (bench.after_kill(), bench.after_power_cut()):
            clock_ms = again.clock.now_ms()
            assert again.counters() == (1, 0, 0)
            assert seqs_of(again.claim(9)) == [1]
            again.pass_time(500)
            assert seqs_of(again.claim(9)) == [2]
            again.clock.set(clock_ms)


def test_a_delay_is_refused_by_a_log_and_nothing_is_written() -> None:
    bench = queue()
    bench.configure("log", type="log")
    with pytest.raises(InvalidRequest):
        bench.append(1, name="log", delay_ms=5)
    with pytest.raises(InvalidRequest):
        bench.append(1, name="new", delay_ms=5)
    assert "new" not in bench.broker.state.topics
    assert bench.append(1, name="log", delay_ms=0) == [1]


def test_an_ephemeral_queue_works_and_is_empty_afterwards() -> None:
    bench = queue(durability="ephemeral", leases_durable=True)
    bench.append(1, 2, 3)
    bench.append(4, delay_ms=100)
    bench.claim(2)
    bench.ack(1)
    bench.nack(2)
    assert bench.counters() == (2, 0, 0)
    bench.pass_time(100)
    assert bench.counters() == (3, 0, 0)
    again = bench.after_kill()
    assert again.counters() == (0, 0, 0)
    assert again.append(5) == [5]
    assert seqs_of(again.claim(9)) == [5]


# Dead letters


def dead_letter_queue(**fields: Any) -> QueueBench:
    return queue(max_deliveries=2, dead_letter="dlq", **fields)


def wear_out(bench: QueueBench, seq: int, deliveries: int = 2) -> None:
    for _ in range(deliveries):
        assert seq in seqs_of(bench.claim(1))
        bench.nack(seq)


def test_the_delivery_after_the_last_allowed_one_is_a_dead_letter() -> None:
    bench = dead_letter_queue()
    bench.append({"x": 1}, tag="t", node="n", meta={"k": [1.0]})
    bench.append("next")
    wear_out(bench, 1)
    assert bench.counters() == (2, 0, 0)
    assert seqs_of(bench.claim(1)) == [2], "the claim goes on with the next job"
    assert bench.counters() == (0, 1, 1)
    assert seqs_of(bench.records()) == [2]
    (dead,) = bench.records("dlq")
    assert (dead["$seq"], dead["$tag"], dead["$node"], dead["data"]) == (1, "t", "n", {"x": 1})
    assert dead["meta"] == {
        "k": [1.0],
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": 2,
        "$dead_letter_src_seq": 1,
    }


@pytest.mark.parametrize("fields", [{"max_deliveries": 0}, {"dead_letter": None}])
def test_without_a_bound_or_a_place_to_go_jobs_come_back_for_ever(fields: dict[str, Any]) -> None:
    bench = queue(**{"max_deliveries": 1, "dead_letter": "dlq", **fields})
    bench.append(1)
    for delivery in range(1, 6):
        assert bench.claim()[0]["deliveries"] == delivery
        bench.nack(1)
    assert bench.counters() == (1, 0, 0)


def test_one_delivery_is_allowed_when_the_bound_is_one() -> None:
    bench = queue(max_deliveries=1, dead_letter="dlq", lease_ms=100)
    bench.append(1)
    assert len(bench.claim()) == 1
    bench.pass_time(101)
    assert bench.claim() == []
    assert bench.counters() == (0, 0, 1)


def test_a_claim_passes_any_number_of_dead_letters() -> None:
    bench = queue(max_deliveries=1, dead_letter="dlq", lease_ms=100)
    bench.append(*range(2500))
    bench.claim(2499)
    bench.pass_time(101)
    assert seqs_of(bench.claim(1)) == [2500]
    assert bench.counters() == (0, 1, 2499)
    assert len(bench.records("dlq")) == 2499


def test_dead_letters_become_jobs_of_a_queue_and_travel_on_from_there() -> None:
    bench = dead_letter_queue()
    bench.configure("dlq", max_deliveries=1, dead_letter="last")
    bench.append(1, meta={"a": 1})
    wear_out(bench, 1)
    waiting, _ = bench.start_claim(1, wait_ms=1000, name="dlq", node="undertaker")
    assert bench.claim() == []
    (job,) = jobs_of(waiting)
    assert job["meta"]["$dead_letter_from"] == "q"
    bench.nack(1, node="undertaker", name="dlq")
    assert bench.claim(name="dlq") == []
    (last,) = bench.records("last")
    assert last["meta"] == {
        "a": 1,
        "$dead_letter_from": "dlq",
        "$dead_letter_deliveries": 1,
        "$dead_letter_src_seq": 1,
    }


def test_a_job_that_its_dead_letter_topic_refuses_stays() -> None:
    bench = dead_letter_queue()
    bench.configure("dlq", type="log", cap_records=1, discard="reject")
    bench.append(1, 2, 3)
    bench.claim(2)
    bench.nack(1, 2)
    bench.claim(2)
    bench.nack(1, 2)
    assert seqs_of(bench.claim(1)) == [3]
    assert bench.counters() == (1, 1, 1)
    assert bench.claim(1) == [], "and is not delivered again either"
    assert len(bench.records("dlq")) == 1
    bench.broker.delete_records("dlq", 100, None, 0, lambda _: None)
    bench.runtime.run()
    assert bench.claim(1) == []
    assert bench.counters() == (0, 1, 2)


def test_dead_letters_leave_every_segment_although_they_came_back_in_another_order() -> None:
    settings = StorageSettings(wal_file_bytes=8192, segment_bytes=300, margin=100)
    bench = QueueBench(settings=settings)
    bench.configure(max_deliveries=1, dead_letter="dlq")
    for _ in range(3):
        bench.append(*["x" * 100] * 4)
    assert len(bench.broker.topic("q").partitions[0].segments) > 2
    bench.claim(12)
    for seq in (12, 1, 7, 5, 3, 11, 2, 4, 6, 8, 10, 9):
        bench.nack(seq)
    answers, _ = bench.start_claim(12)
    for _ in range(10):
        bench.pass_time(1)
    assert jobs_of(answers) == []
    for each in (bench, bench.after_kill(), bench.after_power_cut()):
        assert each.records() == []
        assert {record["meta"]["$dead_letter_src_seq"] for record in each.records("dlq")} == set(range(1, 13))
        assert each.counters() == (0, 0, 12)


def test_no_dead_letter_topic_is_made_beyond_the_bound_on_topics() -> None:
    bench = QueueBench(limits=Limits(max_topics=1))
    bench.configure(max_deliveries=1, dead_letter="dlq")
    bench.append(1)
    bench.claim()
    bench.nack(1)
    assert bench.claim() == []
    assert bench.counters() == (1, 0, 0)
    assert not bench.broker.state.creating


def test_no_dead_letter_topic_is_made_for_a_queue_that_may_create_none() -> None:
    bench = dead_letter_queue(auto_create=False)
    bench.append(1, 2, 3)
    for _ in range(2):
        bench.claim(2)
        bench.nack(1, 2)
    assert seqs_of(bench.claim(1)) == [3]
    assert bench.claim(1) == [], "and they are not delivered again"
    assert "dlq" not in bench.broker.state.topics
    assert bench.counters() == (2, 1, 0)
    bench.configure("dlq", type="log")
    assert bench.claim(1) == []
    assert [record["data"] for record in bench.records("dlq")] == [1, 2]
    assert bench.counters() == (0, 1, 2)


def test_two_queues_share_one_new_dead_letter_topic() -> None:
    bench = QueueBench()
    for name in ("a", "b"):
        bench.configure(name, max_deliveries=1, dead_letter="dlq")
        bench.append(name, name=name)
        bench.claim(name=name)
        bench.nack(1, name=name)
    first, _ = bench.start_claim(name="a")
    second, _ = bench.start_claim(name="b")
    bench.runtime.run()
    bench.pass_time(2)
    assert jobs_of(first) == jobs_of(second) == []
    assert sorted([record["data"] for record in bench.records("dlq")]) == ["a", "b"]


def test_the_count_of_dead_letters_survives_and_ends_with_the_topic() -> None:
    bench = dead_letter_queue()
    bench.append(1, 2)
    wear_out(bench, 1)
    assert seqs_of(bench.claim()) == [2]
    bench.nack(2)
    again = bench.after_kill()
    assert again.counters() == (1, 0, 1)
    again.checkpoint()
    assert again.after_kill().counters() == (1, 0, 1)
    again.broker.delete_topic("q", if_empty=False, reply=lambda _: None)
    again.runtime.run()
    again.configure()
    assert again.counters() == (0, 0, 0)


@pytest.mark.parametrize("exists", [False, True])
def test_a_power_cut_at_any_step_leaves_a_dead_letter_in_exactly_one_place(exists: bool) -> None:
    places: Counter[str] = Counter()
    for step in itertools.count():
        disk = FakeDisk(step, cut_at=step)
        answered: list[ClaimResult | TopicsError] = []
        safe = False
        settings = StorageSettings(wal_file_bytes=8192, margin=100)
        try:
            disk.make_directory("")
            bench = QueueBench(disk, settings=settings)
            if exists:
                bench.configure("other", type="log")
                bench.configure("dlq", type="log")
            bench.configure(max_deliveries=1, dead_letter="dlq", durable=True)
            bench.append("job")
            safe = True
            bench.claim()
            bench.nack(1)
            answered, _ = bench.start_claim()
            bench.runtime.run()
            bench.pass_time(5)
            bench.append("after", name="dlq")
        except PowerCut:
            pass
        for survive in SURVIVALS if safe else ():
            again = QueueBench(disk.after_power_cut(survive=survive), settings=settings)
            in_queue = again.counters()[0]
            dead = [record for record in again.records("dlq") if record["data"] == "job"]
            assert in_queue + len(dead) == 1, disk.trace
            assert again.counters()[2] == len(dead)
            assert not (answered and in_queue), "what was answered is safe"
            places["queue" if in_queue else "dead"] += 1
        if not disk.was_cut:
            break
    assert places["queue"]
    assert places["dead"]


def test_an_acked_job_never_returns_to_a_synced_queue_whatever_the_crash_point() -> None:
    seen: Counter[int] = Counter()
    settings = StorageSettings(wal_file_bytes=8192, segment_bytes=400, checkpoint_bytes=2000, margin=100)
    for durable_leases in (False, True):
        for step in itertools.count():
            disk = FakeDisk(step, cut_at=step)
            acked: set[int] = set()
            tried: set[int] = set()
            appended: set[int] = set()
            try:
                disk.make_directory("")
                bench = QueueBench(disk, settings=settings)
                bench.configure(durable=True, leases_durable=durable_leases)
                for _ in range(4):
                    appended.update(bench.append(*["x" * 60] * 4))
                    done = seqs_of(bench.claim(3))
                    bench.nack(done[0])
                    tried.update(done[1:])
                    acked.update(bench.ack(*done[1:]) and done[1:])
            except PowerCut:
                pass
            for survive in SURVIVALS:
                again = QueueBench(disk.after_power_cut(survive=survive), settings=settings)
                left = set(seqs_of(again.records())) if appended else set()
                assert not left & acked, (step, survive)
                assert left >= appended - tried, (step, survive)
                if appended:
                    again.pass_time(30_001)
                    assert set(seqs_of(again.claim(1000))) == left
            seen[len(acked)] += 1
            if not disk.was_cut:
                break
    assert len(seen) > 3


def test_a_job_acked_before_its_segment_was_sealed_never_returns_after_two_restarts() -> None:
    """The first snapshot leaves out what is wholly done; the segment sealed behind it still holds those records."""
    settings = StorageSettings(wal_file_bytes=8192, segment_bytes=600, margin=100)
    bench = QueueBench(settings=settings)
    bench.configure(durable=True)
    bench.append("x" * 60, "x" * 60)
    bench.ack(*seqs_of(bench.claim(2)))
    bench.checkpoint()
    bench.append(*["x" * 60] * 10)
    assert bench.broker.topic("q").partitions[0].segments[0].sealed
    again = bench.after_kill()
    again.ack(*seqs_of(again.claim(1)))
    again.checkpoint()
    for each in (again.after_kill(), again.after_power_cut()):
        assert seqs_of(each.records()) == list(range(4, 13))
        assert each.counters() == (9, 0, 0)


# Routers


def route(bench: QueueBench, source: str, dest: str) -> None:
    bench.broker.routers.put(WantedRouter(f"{source}->{dest}", source, dest), lambda _: None)
    bench.runtime.run()


def test_forwarded_records_are_jobs_and_dead_letters_are_forwarded() -> None:
    bench = dead_letter_queue(durable=True)
    bench.configure("dlq", type="log")
    route(bench, "in", "q")
    route(bench, "dlq", "q2")
    waiting, _ = bench.start_claim(wait_ms=1000)
    bench.append("job", name="in")
    bench.runtime.run()
    assert seqs_of(jobs_of(waiting)) == [1]
    bench.nack(1)
    wear_out(bench, 1, deliveries=1)
    assert bench.claim() == []
    bench.runtime.run()
    for each in (bench, bench.after_kill(), bench.after_power_cut()):
        assert [record["data"] for record in each.records("dlq")] == ["job"]
        assert [record["data"] for record in each.records("q2")] == ["job"]
        assert each.records() == []
        assert each.counters() == (0, 0, 1)


# Large jobs


def test_a_claim_ends_where_its_answer_is_full_and_the_next_one_goes_on() -> None:
    bench = QueueBench(limits=Limits(max_claim_bytes=1000))
    bench.configure()
    bench.append(*["x" * 200] * 20)
    bench.append("y" * 3000)
    bench.append(*["z"] * 3)
    seen: list[list[int]] = []
    while True:
        jobs = bench.claim(10)
        if not jobs:
            break
        seen.append(seqs_of(jobs))
        assert sum([len(job["data"]) for job in jobs]) <= 1000 or len(jobs) == 1
    assert [seq for seqs in seen for seq in seqs] == list(range(1, 25))
    assert len(seen) > 5


def test_jobs_that_come_back_are_not_lost_when_an_answer_is_full() -> None:
    bench = QueueBench(limits=Limits(max_claim_bytes=1000))
    bench.configure()
    bench.append(*["x" * 200] * 12)
    claimed = [job for _ in range(4) for job in bench.claim(10)]
    assert seqs_of(claimed) == list(range(1, 13))
    bench.nack(*seqs_of(claimed))
    again = [job for _ in range(4) for job in bench.claim(10)]
    assert sorted(seqs_of(again)) == list(range(1, 13))
    assert {job["deliveries"] for job in again} == {2}, "what was put back counts no delivery"
    assert bench.counters() == (0, 12, 0)


def test_a_waiting_claim_gets_what_fits_of_a_large_batch() -> None:
    bench = QueueBench(limits=Limits(max_claim_bytes=1000))
    bench.configure()
    first, _ = bench.start_claim(10, wait_ms=5000)
    second, _ = bench.start_claim(10, wait_ms=5000)
    bench.runtime.run()
    bench.append(*["x" * 200] * 12)
    bench.runtime.run()
    seqs = sorted(seqs_of(jobs_of(first)) + seqs_of(jobs_of(second)))
    assert len(seqs) == len(set(seqs))
    assert 0 < len(seqs) <= 8
    rest = [job for _ in range(4) for job in bench.claim(10)]
    assert sorted(seqs + seqs_of(rest)) == list(range(1, 13))


def test_many_dead_letters_are_moved_in_order_by_several_commits() -> None:
    bench = QueueBench()
    bench.configure(max_deliveries=1, dead_letter="dead")
    bench.append(*[f"job {number} " + "x" * (number % 7 * 1000) for number in range(700)])
    bench.nack(*seqs_of(bench.claim(700)))
    frames = bench.broker.committer.frames_total
    assert bench.claim(10) == []
    assert bench.broker.committer.frames_total >= frames + 3
    dead = bench.broker.topic("dead").partitions[0]
    assert (dead.count, bench.broker.topic("q").count) == (700, 0)
    for each in (bench, bench.after_kill()):
        log = each.broker.topic("dead").partitions[0]
        records = json.loads(b"[" + read_records(log, 0, 1000, 1 << 30, View()).records + b"]")
        assert [record["data"].split()[1] for record in records] == [str(number) for number in range(700)]
        assert [record["meta"]["$dead_letter_src_seq"] for record in records] == list(range(1, 701))
        assert each.broker.topic("q").count == 0
