"""The dead-letter topic of a queue is taken away while jobs are on their way to it."""

from typing import Any

from tests.broker.house import House
from topics.model.config import ConfigChange


def test_jobs_that_no_topic_takes_any_more_stay_in_the_queue_and_whoever_claimed_is_answered() -> None:
    house = House()
    # Takes two at a time and no more, so four of them would go in parts.
    house.configure("dead", cap_records=2)
    house.configure("q", type="queue", max_deliveries=1, dead_letter="dead", lease_ms=100)
    house.append("q", 1, 2, 3, 4)
    house.broker.queues.claim("q", 0, "node", 10, None, 0, lambda _: None)
    house.wait(200)
    answers: list[Any] = []
    # Asked for first, and true only after the change that comes in the same turn.
    house.broker.queues.claim("q", 0, "node", 10, None, 0, answers.append)
    house.broker.configure("q", ConfigChange(dead_letter=None), lambda _: None)
    house.wait(100)
    assert len(answers) == 1
    assert house.datas("q") == [1, 2, 3, 4]
    assert house.datas("dead") == []
    claimed: list[Any] = []
    house.broker.queues.claim("q", 0, "node", 10, None, 0, claimed.append)
    house.wait(50)
    assert list(claimed[0].grant.seqs) == [1, 2, 3, 4]
