"""Facts and results of leases."""

import pytest

from topics.engine.queues.lease_facts import merge_runs


@pytest.mark.parametrize(
    ("runs", "merged"),
    [
        ([(1, 3)], [(1, 3)]),
        ([(5, 6), (1, 3), (3, 5)], [(1, 6)]),
        ([(1, 2), (4, 5)], [(1, 2), (4, 5)]),
    ],
)
def test_adjacent_runs_of_acked_jobs_are_one_run(runs: list[tuple[int, int]], merged: list[tuple[int, int]]) -> None:
    assert merge_runs(runs) == merged
