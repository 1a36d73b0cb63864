"""The dead-letter topic of a queue is taken away while jobs are on their way to it."""

from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.config import ConfigChange


def test_jobs_stay_in_the_queue_and_claims_are_answered_when_the_dead_letter_topic_is_gone() -> None:
    under_test = BrokerUnderTest()
    # Takes two at a time and no more, so four of them would go in parts.
    under_test.configure("dead", cap_records=2)
    under_test.configure("q", type="queue", max_deliveries=1, dead_letter="dead", lease_ms=100)
    under_test.append("q", 1, 2, 3, 4)
    under_test.broker.queues.claim("q", 0, "node", 10, None, 0, lambda _: None)
    under_test.wait(200)
    answers: list[Any] = []
    # Asked for first, and true only after the change that comes in the same turn.
    under_test.broker.queues.claim("q", 0, "node", 10, None, 0, answers.append)
    under_test.broker.configure("q", ConfigChange(dead_letter=None), lambda _: None)
    under_test.wait(100)
    assert len(answers) == 1
    assert under_test.datas("q") == [1, 2, 3, 4]
    assert under_test.datas("dead") == []
    claimed: list[Any] = []
    under_test.broker.queues.claim("q", 0, "node", 10, None, 0, claimed.append)
    under_test.wait(50)
    assert list(claimed[0].delivery.seqs) == [1, 2, 3, 4]
