"""Ready jobs are divided among claims by their capacity."""

from hypothesis import given
from hypothesis import strategies as st

from topics.engine.queues.shares import deal, shares


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 60))
def test_all_jobs_are_given_within_the_capacities(capacities: list[int], jobs: int) -> None:
    got = shares(capacities, jobs)
    assert sum(got) == min(jobs, sum(capacities))
    assert all(0 <= share <= capacity for share, capacity in zip(got, capacities, strict=True))


@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 60))
def test_equal_capacities_differ_by_at_most_one_job(claimers: int, capacity: int, jobs: int) -> None:
    got = shares([capacity] * claimers, jobs)
    assert max(got) - min(got) <= 1


def test_each_claimer_gets_a_job_before_the_rest_is_divided() -> None:
    assert shares([100, 1, 1], 5) == [3, 1, 1]


def test_jobs_are_dealt_in_turn() -> None:
    assert deal([1, 2, 3, 4, 5], [2, 3]) == [[1, 3], [2, 4, 5]]
