"""The client leaves the random numbers of the program that uses it alone."""

import random

from topics.client.transport.retry import RetryPolicy


def test_waiting_before_a_retry_does_not_change_the_numbers_of_a_seeded_program() -> None:
    before = random.getstate()
    waits = {RetryPolicy().wait_s(attempt, None) for attempt in range(1, 6)}
    assert len(waits) == 5
    assert random.getstate() == before
