"""Held jobs: runs and single jobs must answer as one mapping from job to delivery."""

import random

from topics.engine.leases.delivery import MIN_SWEEP, Delivery, LeasedJobs


def delivery(*seqs: int) -> Delivery:
    return Delivery("w", b"0" * 16, 0, list(seqs), None, len(seqs))


def run(first: int, stop: int) -> Delivery:
    return Delivery("w", b"0" * 16, 0, range(first, stop), None, stop - first)


def test_a_run_is_found_whole_by_its_first_job_and_around_each_of_its_jobs() -> None:
    held = LeasedJobs()
    first, second = run(1, 5), run(7, 9)
    held.add(first)
    held.add(second)
    assert held.count == 6
    assert held.run(1) is first
    assert held.run(7) is second
    assert held.run(2) is None
    assert [held.get(seq) for seq in range(10)] == [None, *[first] * 4, None, None, second, second, None]


def test_a_run_from_which_a_job_goes_is_whole_no_more_and_keeps_the_others() -> None:
    held = LeasedJobs()
    one = run(1, 5)
    held.add(one)
    assert held.pop(3) is one
    assert held.pop(3) is None
    assert held.run(1) is None
    assert sorted(held) == [1, 2, 4]
    assert held.count == 3
    assert list(held.remove(one)) == [1, 2, 4]
    assert held.count == 0
    assert held.get(1) is None


def test_jobs_in_front_of_a_run_are_held_one_by_one() -> None:
    held = LeasedJobs()
    behind, before = run(10, 20), run(1, 4)
    held.add(behind)
    held.add(before)
    assert held.run(1) is None
    assert held.get(2) is before
    assert held.get(10) is behind
    assert list(held.remove(before)) == [1, 2, 3]


def test_starts_of_finished_runs_do_not_pile_up() -> None:
    held = LeasedJobs()
    for first in range(0, 10 * MIN_SWEEP, 2):
        one = run(first, first + 2)
        held.add(one)
        held.remove(one)
    assert held.index_entries <= MIN_SWEEP + 2
    assert held.count == 0


def test_any_history_answers_as_a_plain_mapping_would() -> None:
    for seed in range(40):
        choose = random.Random(seed)
        held, plain = LeasedJobs(), dict[int, Delivery]()
        cursor = 0
        gone: list[int] = []
        for _ in range(200):
            step = choose.randrange(5)
            if step == 0:
                first = cursor + choose.randrange(3)
                cursor = first + choose.randrange(1, 9)
                new = run(first, cursor)
                held.add(new)
                plain |= dict.fromkeys(new.seqs, new)
            elif step == 1 and gone:
                again = sorted({gone.pop(choose.randrange(len(gone))) for _ in range(min(3, len(gone)))} - plain.keys())
                if again:
                    new = delivery(*again)
                    held.add(new)
                    plain |= dict.fromkeys(again, new)
            elif step == 2 and plain:
                victim = choose.choice(list(plain.values()))
                expected = [seq for seq, each in plain.items() if each is victim]
                assert sorted(held.remove(victim)) == sorted(expected)
                gone += expected
                for seq in expected:
                    del plain[seq]
            elif step == 3:
                seq = choose.randrange(cursor + 2)
                popped = plain.pop(seq, None)
                assert held.pop(seq) is popped
                gone += [seq] if popped is not None else []
            assert held.count == len(plain)
        assert dict(held.items()) == plain
        assert sorted(held) == sorted(plain)
        assert all(held.get(seq) is plain.get(seq) for seq in range(cursor + 2))
