"""Leases as a pure state machine: time and tokens are numbers and bytes the test passes in."""

from topics.engine.cache import Cache
from topics.engine.leases.delivery import Delivery
from topics.engine.leases.lease import MIN_SWEEP, Leases
from topics.engine.partitions.partition import Partition, Totals
from topics.model.facts import DeletedBelow, Evicted
from topics.model.records.page import make_page

TOKEN = b"0123456789abcdef"


class Queue:
    """A partition with leases and the few steps tests repeat."""

    def __init__(self, jobs: int = 0) -> None:
        self.partition = Partition(1, 0, Cache(1 << 20), Totals())
        self.leases = self.partition.leases = Leases()
        self.now = 1000
        if jobs:
            self.append(jobs)

    def append(self, count: int) -> None:
        first_seq = self.partition.head_seq + 1
        self.partition.apply_append(make_page(first_seq, count, self.now, b"\0".join([b"1"] * count)))

    def take(self, most: int = 1000, max_deliveries: int = 0) -> list[int]:
        self.leases.expire(self.now)
        return self.leases.take(self.partition, most, max_deliveries).seqs

    def claim(
        self, most: int = 1000, node: str = "w", lease_ms: int = 100, connection_jobs: set[int] | None = None
    ) -> Delivery:
        return self.leases.lease(self.take(most), node, TOKEN, self.now + lease_ms, connection_jobs)

    def ack(self, *seqs: int, node: str = "w") -> list[int]:
        parts, skipped = self.leases.held_by(node, list(seqs), None)
        self.leases.begin_commit(parts)
        self.partition.kill(sorted([seq for _, some in parts for seq in some]))
        return skipped

    @property
    def ready(self) -> int:
        self.leases.expire(self.now)
        return self.leases.ready(self.partition.count)

    @property
    def counters(self) -> tuple[int, int]:
        return self.ready, self.leases.in_flight


def test_fresh_jobs_are_taken_in_order_and_only_once() -> None:
    queue = Queue(5)
    assert queue.claim(3).seqs == [1, 2, 3]
    assert queue.claim(3).seqs == [4, 5]
    assert queue.take() == []
    queue.append(1)
    assert queue.take() == [6]


def test_a_run_of_fresh_jobs_ends_where_the_log_does_or_a_job_is_missing() -> None:
    queue = Queue(10)
    take = queue.leases.take_run
    assert take(queue.partition, 3) == range(1, 4)
    queue.partition.kill([5, 6])
    assert not take(queue.partition, 3), "the long way knows"
    assert take(queue.partition, 1) == range(4, 5)
    queue.partition.apply_deleted_below(DeletedBelow(1, 0, 8))
    assert take(queue.partition, 9) == range(8, 11)
    assert not take(queue.partition, 9)
    queue.append(2)
    queue.leases.delay(11, [0, queue.now + 50])
    assert not take(queue.partition, 2)
    assert queue.take(2) == [11]
    queue.append(3)
    assert take(queue.partition, 3) == range(13, 16)
    queue.now += 50
    assert queue.take() == [12]


def test_no_run_of_fresh_jobs_goes_before_a_returned_one() -> None:
    queue = Queue(5)
    queue.claim(2)
    queue.leases.give_back([1], None)
    assert not queue.leases.take_run(queue.partition, 1)
    assert queue.take(1) == [1]
    assert queue.leases.take_run(queue.partition, 1) == range(3, 4)


def test_a_run_that_is_acked_whole_in_part_or_not_at_all_counts_right() -> None:
    queue = Queue(12)
    runs = [queue.leases.take_run(queue.partition, 4) for _ in range(3)]
    deliveries = [queue.leases.lease(run, "w", TOKEN, queue.now + 100) for run in runs]
    assert queue.ack(1, 2, 3, 4) == []
    assert queue.ack(6) == []
    assert queue.ack(6, 5) == [6]
    assert queue.counters == (0, 6)
    assert [delivery.open for delivery in deliveries] == [0, 2, 4]
    queue.now += 101
    assert queue.counters == (6, 0)
    assert queue.take() == [7, 8, 9, 10, 11, 12]


def test_returned_jobs_come_before_fresh_ones() -> None:
    queue = Queue(5)
    queue.claim(3)
    queue.leases.give_back([3, 2], None)
    assert queue.take(3) == [3, 2, 4]


def test_a_lease_holds_until_its_deadline_and_not_a_moment_longer() -> None:
    queue = Queue(1)
    queue.claim(1, lease_ms=100)
    queue.now += 100
    assert queue.counters == (0, 1)
    queue.now += 1
    assert queue.counters == (1, 0)
    assert queue.take() == [1]


def test_a_clock_that_jumps_backwards_does_not_revive_an_expired_lease() -> None:
    queue = Queue(1)
    queue.claim(1, lease_ms=100)
    queue.now += 101
    assert queue.counters == (1, 0)
    queue.now -= 101
    assert queue.counters == (1, 0)
    assert queue.ack(1) == [1]


def test_extending_sets_the_deadline_and_keeps_the_lease_id_and_the_count() -> None:
    queue = Queue(2)
    delivery = queue.claim(2, lease_ms=100)
    chosen, _ = queue.leases.held_by("w", [2], [delivery.lease_id(2)])
    queue.leases.extend(chosen, queue.now + 500)
    queue.now += 101
    assert queue.counters == (1, 1)
    assert queue.leases.held_by("w", [2], [delivery.lease_id(2)])[1] == []
    assert queue.leases.delivery_count(2) == 1
    queue.now += 400
    assert queue.counters == (2, 0)


def test_extending_can_shorten_a_lease() -> None:
    queue = Queue(1)
    queue.claim(1, lease_ms=10_000)
    chosen, _ = queue.leases.held_by("w", [1], None)
    queue.leases.extend(chosen, queue.now + 100)
    assert queue.leases.next_due() == queue.now + 101
    queue.now += 101
    assert queue.counters == (1, 0)


def test_only_the_holder_with_the_current_lease_id_holds_a_job() -> None:
    queue = Queue(2)
    delivery = queue.claim(2)
    held_by = queue.leases.held_by
    assert held_by("v", [1], None)[1] == [1]
    assert held_by("w", [1, 2], [delivery.lease_id(1), "lease_0"])[1] == [2]
    assert held_by("w", [1, 1], None)[1] == [1], "a job counts once"
    assert held_by("w", [3], None)[1] == [3]
    queue.leases.give_back([1], None)
    again = queue.leases.lease(queue.take(1), "w", b"f" * 16, queue.now + 100)
    assert held_by("w", [1], [delivery.lease_id(1)])[1] == [1], "an older delivery of the same node"
    assert held_by("w", [1], [again.lease_id(1)])[1] == []


def test_committing_job_is_not_delivered_and_is_leased_again_if_the_log_refuses() -> None:
    queue = Queue(2)
    queue.claim(2, lease_ms=100)
    chosen, _ = queue.leases.held_by("w", [1], None)
    queue.leases.begin_commit(chosen)
    assert queue.leases.held_by("w", [1], None)[1] == [1]
    queue.now += 200
    assert queue.take() == [2], "expiry does not free what is leaving"
    queue.leases.cancel_commit(chosen)
    queue.leases.expire(queue.now)
    assert queue.take() == [1], "its deadline has passed meanwhile"


def test_acks_of_one_delivery_that_are_on_their_way_apart_do_not_touch_each_other() -> None:
    """The first job is evicted while its ack is on its way; then the ack of the second is all that is left of the delivery."""
    queue = Queue(2)
    queue.claim(2)
    first, _ = queue.leases.held_by("w", [1], None)
    queue.leases.begin_commit(first)
    queue.partition.apply_evicted(Evicted(1, 0, 2, 1))
    second, _ = queue.leases.held_by("w", [2], None)
    queue.leases.begin_commit(second)
    queue.leases.forget_runs([(1, 2)])
    assert queue.counters == (0, 1)
    queue.leases.cancel_commit(second)
    assert queue.counters == (0, 1)
    assert queue.leases.held_by("w", [2], None)[1] == []
    queue.now += 101
    assert queue.take() == [2]


def test_a_delivery_that_was_deleted_while_its_ack_was_on_its_way_is_counted_once() -> None:
    queue = Queue(2)
    queue.claim(2)
    parts, _ = queue.leases.held_by("w", [1, 2], None)
    queue.leases.begin_commit(parts)
    queue.partition.apply_evicted(Evicted(1, 0, 3, 1))
    queue.leases.forget_runs([(1, 3)])
    assert queue.counters == (0, 0)
    assert queue.leases.open_deliveries == 0


def test_waiting_claims_are_served_again_when_the_log_refuses_an_ack() -> None:
    """The lease may have expired meanwhile."""
    queue = Queue(1)
    queue.claim(1)
    woken: list[int] = []
    parts, _ = queue.leases.held_by("w", [1], None)
    queue.leases.begin_commit(parts)
    queue.leases.on_jobs_freed = lambda: woken.append(1)
    queue.leases.cancel_commit(parts)
    assert woken == [1]


def test_a_delayed_return_counts_nowhere_until_it_is_due() -> None:
    queue = Queue(1)
    queue.claim(1)
    queue.leases.give_back([1], queue.now + 50)
    assert queue.counters == (0, 0)
    queue.now += 49
    assert queue.take() == []
    queue.now += 1
    assert queue.counters == (1, 0)
    assert queue.take() == [1]
    assert queue.leases.delivery_count(1) == 2


def test_jobs_delayed_at_their_append_are_passed_over_until_due() -> None:
    queue = Queue()
    queue.append(6)
    queue.leases.delay(1, [0, queue.now + 10, queue.now + 20, 0, 0, queue.now + 10])
    assert queue.counters == (3, 0)
    assert queue.claim().seqs == [1, 4, 5]
    queue.now += 10
    assert queue.claim().seqs == [2, 6]
    queue.append(1)
    queue.now += 10
    assert sorted(queue.claim().seqs) == [3, 7]


def test_deliveries_count_every_claim_and_the_bound_is_exact() -> None:
    queue = Queue(1)
    for delivery in (1, 2, 3):
        queue.leases.expire(queue.now)
        taken = queue.leases.take(queue.partition, 1, 3)
        assert (taken.seqs, taken.dead) == ([1], [])
        queue.leases.lease(taken.seqs, "w", TOKEN, queue.now + 100)
        assert queue.leases.delivery_count(1) == delivery
        queue.leases.give_back([1], None)
    taken = queue.leases.take(queue.partition, 1, 3)
    assert (taken.seqs, taken.dead) == ([], [1])
    assert queue.counters == (0, 0), "on its way out"
    queue.leases.put_back_dead([1])
    assert queue.counters == (1, 0)


def test_an_undone_delivery_is_not_counted_and_comes_first() -> None:
    queue = Queue(3)
    queue.claim(1)
    queue.leases.give_back([1], None)
    delivery = queue.leases.lease(queue.take(2), "w", TOKEN, queue.now + 100)
    queue.leases.undo(delivery)
    assert queue.counters == (3, 0)
    assert queue.take(3) == [1, 2, 3]
    assert queue.leases.delivery_counts([1, 2]) == [2, 1]


def test_deleted_and_evicted_jobs_leave_every_place() -> None:
    queue = Queue(12)
    connection_jobs: set[int] = set()
    queue.claim(4, connection_jobs=connection_jobs)
    queue.leases.give_back([3, 4], None)
    queue.leases.give_back([2], queue.now + 50)
    queue.partition.apply_evicted(Evicted(1, 0, 4, 1))
    assert connection_jobs == set()
    assert queue.counters == (9, 0)
    queue.claim(4, connection_jobs=connection_jobs)
    assert connection_jobs == {4, 5, 6, 7}
    queue.partition.apply_deleted_below(DeletedBelow(1, 0, 6))
    assert queue.counters == (5, 2)
    queue.partition.kill([6, 9])
    assert queue.counters == (4, 1)
    assert queue.take() == [8, 10, 11, 12]


def test_a_basket_knows_what_is_still_with_its_connection() -> None:
    queue = Queue(6)
    connection_jobs: set[int] = set()
    queue.claim(3, connection_jobs=connection_jobs)
    queue.claim(3)
    chosen, _ = queue.leases.held_by("w", [2], None)
    queue.leases.extend(chosen, queue.now + 1000)
    queue.ack(1)
    assert connection_jobs == {2, 3}
    assert queue.leases.held_by_connection(connection_jobs) == [2, 3]
    queue.leases.give_back(queue.leases.held_by_connection(connection_jobs), None)
    assert connection_jobs == set()
    assert queue.leases.in_flight == 3, "claims of the same node stay"


def test_waiting_parties_are_woken_by_returns_expiry_and_deletes() -> None:
    queue = Queue(3)
    woken: list[int] = []
    queue.claim(3)
    queue.leases.on_jobs_freed = lambda: woken.append(1)
    queue.leases.give_back([1], None)
    assert len(woken) == 1
    queue.partition.kill([2])
    assert len(woken) == 2
    queue.now += 101
    queue.leases.expire(queue.now)
    assert len(woken) == 3


def test_the_next_moment_is_the_first_deadline_or_delay() -> None:
    queue = Queue(3)
    assert queue.leases.next_due() is None
    queue.claim(1, lease_ms=500)
    assert queue.leases.next_due() == queue.now + 501
    queue.claim(1, lease_ms=100)
    assert queue.leases.next_due() == queue.now + 101
    queue.leases.give_back([2], queue.now + 50)
    assert queue.leases.next_due() == queue.now + 50
    queue.ack(1)
    queue.now += 60
    queue.leases.expire(queue.now)
    assert queue.leases.next_due() is None


def test_finished_grants_do_not_pile_up() -> None:
    queue = Queue()
    for _ in range(MIN_SWEEP * 3):
        queue.append(1)
        delivery = queue.claim(1, lease_ms=86_400_000)
        queue.ack(*delivery.seqs)
    assert queue.leases.index_entries <= MIN_SWEEP + 2
    assert queue.counters == (0, 0)


def test_an_image_restores_everything_or_only_what_is_no_lease() -> None:
    queue = Queue(9)
    queue.leases.delay(9, [queue.now + 500])
    queue.claim(4, lease_ms=100)
    queue.leases.give_back([2], None)
    queue.leases.give_back([3], queue.now + 50)
    queue.leases.dead_lettered = 7
    whole, bare = queue.leases.image(durable=True), queue.leases.image(durable=False)

    queue.leases = queue.partition.leases = Leases()
    queue.leases.restore(whole)
    queue.leases.finish_replay(queue.partition.is_live)
    assert queue.leases.dead_lettered == 7
    assert queue.counters == (5, 2)
    assert queue.leases.held_by("w", [1, 4], [f"lease_{seq}{TOKEN.decode()}" for seq in (1, 4)])[1] == []
    taken = queue.take(3)
    assert taken == [2, 5, 6]
    assert queue.leases.delivery_counts(taken) == [2, 1, 1]
    queue.now += 50
    assert queue.take() == [3, 7, 8]
    queue.now += 51
    assert queue.take() == [1, 4]

    queue.leases = queue.partition.leases = Leases()
    queue.leases.restore(bare)
    queue.leases.finish_replay(queue.partition.is_live)
    assert queue.leases.dead_lettered == 7
    queue.now -= 101
    assert queue.take() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_settling_forgets_what_the_log_no_longer_holds() -> None:
    queue = Queue(4)
    queue.claim(3)
    image = queue.leases.image(durable=True)
    fresh = Queue(4)
    fresh.partition.kill([2])
    fresh.leases.restore(image)
    fresh.leases.finish_replay(fresh.partition.is_live)
    assert fresh.counters == (1, 2)
    assert fresh.take() == [4]


def test_a_claim_does_not_walk_over_jobs_that_are_done() -> None:
    queue = Queue()
    for _ in range(50):
        queue.append(1000)
        for _ in range(4):
            queue.ack(*queue.claim(250).seqs)
    assert queue.partition.count == 0
    assert sum([len(segment.pages) for segment in queue.partition.segments]) < 64  # type: ignore[attr-defined]
