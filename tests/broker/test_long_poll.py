"""A long poll is answered once: by what it waits for, by its time, by a stop of the server, or not at all."""

from typing import Any

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.long_poll import LongPoll
from topics.model.errors import TopicsError


class Waiting:
    """A long poll on topic "a", what it answered and how often its topic changed."""

    def __init__(self, under_test: BrokerUnderTest) -> None:
        self.under_test = under_test
        self.answers: list[Any] = []
        self.changes = 0
        self.poll = LongPoll(under_test.broker, lambda: self.answers.append("answered"), self.answers.append)
        self.poll.watch(under_test.broker.topic("a"), self._changed)

    def _changed(self) -> None:
        self.changes += 1

    @property
    def is_forgotten(self) -> bool:
        """Whether the broker has nothing of the poll any more."""
        broker = self.under_test.broker
        return self.poll.over and not broker.polls and not broker.watchers


@pytest.fixture
def waiting() -> Waiting:
    under_test = BrokerUnderTest()
    under_test.configure("a")
    return Waiting(under_test)


def test_a_change_of_the_topic_is_seen_while_the_poll_waits(waiting: Waiting) -> None:
    waiting.poll.wait(1000)
    waiting.under_test.append("a", 1)
    assert waiting.changes
    assert waiting.answers == []


def test_the_poll_is_answered_when_its_time_is_over_and_only_once(waiting: Waiting) -> None:
    waiting.poll.wait(1000)
    waiting.under_test.wait(999)
    assert waiting.answers == []
    waiting.under_test.wait(1)
    waiting.poll.finish()
    waiting.poll.refuse(TopicsError("late"))
    assert waiting.answers == ["answered"]
    assert waiting.is_forgotten


def test_the_owner_decides_what_happens_when_the_time_is_over(waiting: Waiting) -> None:
    timeouts: list[int] = []
    waiting.poll.wait(10, on_timeout=lambda: timeouts.append(1))
    waiting.under_test.wait(10)
    assert (timeouts, waiting.answers, waiting.poll.over) == ([1], [], False)


def test_a_poll_whose_client_has_disconnected_is_not_answered(waiting: Waiting) -> None:
    ended: list[int] = []
    waiting.poll.on_end(lambda: ended.append(1))
    waiting.poll.wait(10)
    waiting.poll.end()
    waiting.poll.end()
    waiting.under_test.wait(10)
    assert (waiting.answers, ended) == ([], [1])
    assert waiting.is_forgotten


def test_a_refused_poll_gets_the_error(waiting: Waiting) -> None:
    error = TopicsError("no")
    waiting.poll.wait()
    waiting.poll.refuse(error)
    assert waiting.answers == [error]
    assert waiting.is_forgotten


def test_a_stopping_server_answers_polls_that_wait_and_those_that_would(waiting: Waiting) -> None:
    waiting.poll.wait()
    waiting.under_test.broker.finish_polls()
    assert waiting.answers == ["answered"]
    later = Waiting(waiting.under_test)
    later.poll.wait(1000)
    assert later.answers == ["answered"]


def test_a_change_of_a_version_answers_the_poll(waiting: Waiting) -> None:
    version = waiting.under_test.broker.state.versions.routes
    waiting.poll.watch_version(version)
    waiting.poll.wait(1000)
    (watcher,) = version.watchers
    watcher()
    assert waiting.answers == ["answered"]
    assert not version.watchers
