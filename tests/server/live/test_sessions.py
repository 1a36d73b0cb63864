"""How long a watch session lives, and whose it is."""

import pytest

from topics.broker.topics.feed import Feed
from topics.model.errors import NotFound, Throttled, Unauthorized
from topics.model.limits import Limits
from topics.server.auth.authorization import Caller
from topics.server.live.sessions import Session, Sessions
from topics.testing.broker import BrokerBench

TTL_MS = 1000
ONE = Caller("key-1")
TWO = Caller("key-2")


class Stream:
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(Limits(max_watch_sessions=2), TTL_MS)


def made(sessions: Sessions, now_ms: int = 0, caller: Caller = ONE) -> Session:
    return sessions.make(caller, Feed(BrokerBench().broker), 15_000, now_ms)


def test_a_session_without_a_stream_is_over_after_its_time_and_not_before(sessions: Sessions) -> None:
    session = made(sessions)
    assert sessions.find(session.wid, TTL_MS - 1) is session
    with pytest.raises(NotFound):
        sessions.find(session.wid, TTL_MS)
    assert len(sessions) == 0


def test_a_session_with_a_stream_is_never_over(sessions: Sessions) -> None:
    session = made(sessions)
    stream = Stream()
    sessions.opened(session, stream)
    assert sessions.find(session.wid, 1000 * TTL_MS) is session
    sessions.closed(session, stream, 1000 * TTL_MS)
    assert sessions.find(session.wid, 1001 * TTL_MS - 1) is session
    with pytest.raises(NotFound):
        sessions.find(session.wid, 1001 * TTL_MS)


def test_there_are_no_more_sessions_than_allowed_and_those_that_are_over_make_room(sessions: Sessions) -> None:
    made(sessions, 0)
    streaming = made(sessions, 1)
    sessions.opened(streaming, Stream())
    with pytest.raises(Throttled):
        made(sessions, TTL_MS - 1)
    made(sessions, TTL_MS)
    assert len(sessions) == 2


def test_a_session_belongs_to_the_caller_who_made_it(sessions: Sessions) -> None:
    session = made(sessions)
    with pytest.raises(Unauthorized):
        sessions.check_owner(session.wid, TWO)
    fleeting = Caller("user bob", lasting=False)
    of_a_user = made(sessions, 0, fleeting)
    sessions.check_owner(of_a_user.wid, Caller("user bob", lasting=False))
    with pytest.raises(Unauthorized):
        sessions.check_owner(of_a_user.wid, Caller("user eve", lasting=False))


def test_the_end_of_a_stream_that_was_replaced_means_nothing(sessions: Sessions) -> None:
    session = made(sessions)
    first, second = Stream(), Stream()
    sessions.opened(session, first)
    sessions.opened(session, second)
    assert first.closed
    sessions.closed(session, first, 5)
    assert session.stream is second
    assert sessions.find(session.wid, 10 * TTL_MS) is session


def test_wids_hold_at_least_128_bits_of_chance(sessions: Sessions) -> None:
    assert len(made(sessions).wid.removeprefix("wid_")) >= 22
