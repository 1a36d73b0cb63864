"""Events as bytes, and resume tokens."""

import base64
import json

import pytest

from topics.broker.topics.feed import Feed
from topics.engine.topics.live_frames import Subscription
from topics.server.live import sse
from topics.server.live.resume import MAX_NAMED_TOPICS, resume_token, rewind
from topics.testing.broker import BrokerBench
from topics.testing.events import EventParser


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\n", "\r\r", "\n\r"])
def test_white_space_between_tokens_never_ends_an_event(end: str) -> None:
    data = f'{{"a":{end}1{end}}}'
    (event,) = EventParser().feed(sse.event(b"record", data.encode(), b"id1"))
    assert (event.name, event.id) == ("record", "id1")
    assert event.data == {"a": 1}
    assert event.text == data.replace("\r", " ")


def test_an_event_is_read_the_same_however_it_is_cut() -> None:
    raw = sse.RETRY + sse.event(b"record", b'{"a":\n1}', b"x") + sse.heartbeat(5) + sse.event(b"error", b"{}")
    whole = list(EventParser().feed(raw))
    assert [event.name for event in whole] == ["record", "", "error"]
    for cut in range(len(raw)):
        parser = EventParser()
        assert [*parser.feed(raw[:cut]), *parser.feed(raw[cut:])] == whole
        assert parser.retries == [2000]


def test_frame_is_encoded_once_for_all_readers() -> None:
    _, feed = feed_of(1)
    feed.open(lambda: None)
    frame = feed.next()
    assert frame is not None
    assert sse.frame_event(frame) is sse.frame_event(frame)


def feed_of(names: int) -> tuple[BrokerBench, Feed]:
    bench = BrokerBench()
    feed = Feed(bench.broker)
    for number in range(names):
        bench.append(f"t{number}", b"1", b"2", b"3")
        feed.add(bench.broker.topic(f"t{number}"), 3, Subscription())
    return bench, feed


def text_of(token: bytes) -> bytes:
    assert b"=" not in token
    return base64.urlsafe_b64decode(token + b"==")


@pytest.mark.parametrize("names", [1, 2, MAX_NAMED_TOPICS, MAX_NAMED_TOPICS + 1, 256])
def test_a_token_takes_a_feed_back_to_where_it_was_made(names: int) -> None:
    _, feed = feed_of(names)
    for number, place in enumerate(feed.places.values()):
        place.cursor = number % 3
    token = resume_token(feed)
    before = [place.cursor for place in feed.places.values()]
    for place in feed.places.values():
        place.cursor = 3
    rewind(feed, token)
    assert [place.cursor for place in feed.places.values()] == before


def test_a_token_names_its_topics_only_while_that_is_short() -> None:
    assert json.loads(text_of(resume_token(feed_of(2)[1]))) == {"t0": 3, "t1": 3}
    assert b"t0" not in text_of(resume_token(feed_of(MAX_NAMED_TOPICS + 1)[1]))


@pytest.mark.parametrize("names", [2, MAX_NAMED_TOPICS + 1])
def test_resume_token_records_whether_topic_deleted_was_sent(names: int) -> None:
    bench, feed = feed_of(names)
    feed.open(lambda: None)
    while feed.next() is not None:
        pass
    before = resume_token(feed)
    bench.delete_topic("t1")
    assert feed.next() is not None
    after = resume_token(feed)
    feed.close()
    rewind(feed, before)
    assert not feed.places["t1"].over
    assert resume_token(feed) == before
    feed.open(lambda: None)
    while feed.next() is not None:
        pass
    feed.close()
    rewind(feed, after)
    assert feed.places["t1"].over


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"null", b"5", b'{"t0":-1}', b'{"t0":"1"}', b'{"t0":1.5}', b"[0,1]", b"[0,1,2,3,4]", b"[-1,0,0]"],
)
def test_a_token_that_is_not_ours_moves_nothing(text: bytes) -> None:
    _, feed = feed_of(2)
    rewind(feed, base64.urlsafe_b64encode(text).rstrip(b"="))
    assert [place.cursor for place in feed.places.values()] == [3, 3]
