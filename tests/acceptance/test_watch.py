"""POST /v0/watch and GET /v0/watch/:wid: many topics on one stream, resumable."""

import base64
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded
from topics.server.ops.settings import load_settings
from topics.testing.events import Event, EventParser, EventStream
from topics.testing.http import Api
from topics.testing.server import running_server


def watch(api: Api, body: dict[str, Any], query: str = "") -> dict[str, Any]:
    return succeeded(api.post(f"/v0/watch{query}", body))


def opened(api: Api, topics: dict[str, Any], **fields: Any) -> EventStream:
    """A stream of a new session."""
    stream = EventStream(api, watch(api, {"topics": topics, **fields})["stream_url"])
    assert stream.status == 200
    return stream


def cursors(event: Event) -> dict[str, int]:
    """The map in an event's id."""
    found: dict[str, int] = json.loads(base64.urlsafe_b64decode(event.id + "=" * (-len(event.id) % 4)))
    return found


@pytest.fixture
def other(api: Api, name: str) -> TopicApi:
    return TopicApi(api, f"{name}-other"[:255])


# Making a session


def test_a_session_says_where_each_topic_begins(api: Api, topic: TopicApi, other: TopicApi) -> None:
    topic.append(1, 2, 3)
    topic.remove(before_seq=2)
    other.append(1)
    begun = watch(api, {"topics": {topic.name: {"from_seq": 1}, other.name: {"tail": True, "from_seq": 0}}})
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22,}", begun["wid"])
    assert begun["stream_url"] == f"/v0/watch/{begun['wid']}"
    assert begun["session_ttl_ms"] == 300_000
    assert begun["topics"] == {
        topic.name: {"from_seq": 1, "head_seq": 3, "earliest_seq": 2, "epoch": topic.state()["epoch"]},
        other.name: {"from_seq": 1, "head_seq": 1, "earliest_seq": 1, "epoch": other.state()["epoch"]},
    }


def test_every_session_has_another_wid(api: Api, topic: TopicApi) -> None:
    topic.append(1)
    assert len({watch(api, {"topics": {topic.name: {}}})["wid"] for _ in range(50)}) == 50


@pytest.mark.parametrize(
    "change",
    [
        {"topics": {}},
        {"topics": None},
        {"topics": []},
        {"topics": {"bad name": {}}},
        {"topics": {"x": {"from_seq": -1}}},
        {"topics": {"x": {"from_seq": "1"}}},
        {"topics": {"x": {"from_seq": 2**64}}},
        {"topics": {"x": {"tail": 1}}},
        {"topics": {"x": 5}},
        {"topics": {f"t{number}": {} for number in range(257)}},
        {"consistency": "sometimes"},
        {"limit": -1},
        {"limit": "5"},
        {"heartbeat_ms": "soon"},
        {"include_meta": "yes"},
        {"include_tags": 1},
        {"include_data": None},
        {"node": 5},
        {"max_batch_bytes": 1.5},
        {"cursor": 5},
        {"cursor": "not base64!"},
        {"cursor": "\u00e9"},
        {"cursor": base64.urlsafe_b64encode(b'{"x":-1}').decode()},
        {"cursor": base64.urlsafe_b64encode(b"[0,1,2]").decode()},
    ],
)
def test_a_malformed_watch_is_refused(api: Api, topic: TopicApi, change: dict[str, Any]) -> None:
    topic.append(1)
    refused(api.post("/v0/watch", {"topics": {topic.name: {}}, **change}), 400, "invalid_request")


def test_an_unknown_topic_is_not_found_unless_the_watch_is_lenient(api: Api, topic: TopicApi, other: TopicApi) -> None:
    topic.append(1)
    body = {"topics": {topic.name: {}, other.name: {}}}
    assert refused(api.post("/v0/watch", body), 404, "topic_not_found").detail == {"topic": other.name}
    assert list(watch(api, body, "?lenient=true")["topics"]) == [topic.name]
    assert not other.exists()


def test_a_watch_needs_a_json_body(api: Api) -> None:
    refused(api.send("POST", "/v0/watch", b"{}", {"Content-Type": "text/plain"}), 415, "unsupported_media_type")


# Opening a stream


def test_a_stream_begins_with_its_headers_and_the_time_to_wait_before_coming_back(api: Api, topic: TopicApi) -> None:
    topic.append(1)
    with opened(api, {topic.name: {}}) as stream:
        stream.until("caught-up")
        topic.append(2)
        stream.next()
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.headers["connection"] == "keep-alive"
        assert "content-encoding" not in stream.headers
        assert stream.parser.retries == [2000]


def test_an_unknown_wid_is_not_found(api: Api) -> None:
    for wid in ("wid_AAAAAAAAAAAAAAAAAAAAAA", "nonsense", "wid_%00"):
        with EventStream(api, f"/v0/watch/{wid}") as stream:
            refused(stream.answer, 404, "not_found")


@pytest.mark.parametrize("accept", ["application/json", "text/html, application/xml;q=0.9", "text/event-stream;q=0"])
def test_a_client_that_takes_no_events_is_refused(api: Api, topic: TopicApi, accept: str) -> None:
    topic.append(1)
    url = watch(api, {"topics": {topic.name: {}}})["stream_url"]
    with EventStream(api, url, {"Accept": accept}) as stream:
        refused(stream.answer, 406, "not_acceptable")


@pytest.mark.parametrize("accept", ["*/*", "text/*;q=0.5", "text/html, text/event-stream"])
def test_a_client_that_takes_events_among_others_gets_them(api: Api, topic: TopicApi, accept: str) -> None:
    topic.append(1)
    url = watch(api, {"topics": {topic.name: {}}})["stream_url"]
    with EventStream(api, url, {"Accept": accept}) as stream:
        assert stream.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_methods_on_a_stream_are_not_allowed(api: Api, method: str) -> None:
    refused(api.send(method, "/v0/watch/wid_x"), 405, "method_not_allowed")


# Frames


def test_backlog_caught_up_and_live_records_in_order(api: Api, topic: TopicApi) -> None:
    topic.append("a", "b")
    with opened(api, {topic.name: {}}) as stream:
        backlog, caught_up = stream.next(), stream.next()
        assert backlog.name == "record"
        body = backlog.data
        assert set(body) == {"topic", "records", "from_seq", "to_seq", "head_seq"}
        assert (body["topic"], body["from_seq"], body["to_seq"], body["head_seq"]) == (topic.name, 0, 2, 2)
        assert [set(record) for record in body["records"]] == [{"$seq", "$ts", "data"}] * 2
        assert cursors(backlog) == {topic.name: 2}
        assert (caught_up.name, caught_up.data) == ("caught-up", {"topic": topic.name, "head_seq": 2})
        assert cursors(caught_up) == {topic.name: 2}
        topic.append("c")
        live = stream.next()
        assert (live.data["from_seq"], live.data["to_seq"]) == (2, 3)
        assert [record["data"] for record in live.data["records"]] == ["c"]


def test_an_empty_topic_is_caught_up_at_once(api: Api, topic: TopicApi) -> None:
    topic.configure()
    with opened(api, {topic.name: {}}) as stream:
        assert (event := stream.next()).name == "caught-up"
        assert event.data["head_seq"] == 0


def test_every_id_holds_the_cursors_of_all_topics(api: Api, topic: TopicApi, other: TopicApi) -> None:
    topic.append(1)
    other.append(1, 2)
    with opened(api, {topic.name: {}, other.name: {"tail": True}}) as stream:
        for event in [stream.next() for _ in range(3)]:
            assert set(cursors(event)) == {topic.name, other.name}
        other.append(3)
        assert cursors(stream.next()) == {topic.name: 1, other.name: 3}


def test_tail_begins_at_the_head_of_the_moment_of_the_post(api: Api, topic: TopicApi) -> None:
    topic.append("old")
    begun = watch(api, {"topics": {topic.name: {"tail": True}}})
    topic.append("between")
    with EventStream(api, begun["stream_url"]) as stream:
        assert [record["data"] for record in stream.records(1)] == ["between"]


def test_a_frame_holds_at_most_limit_records(api: Api, topic: TopicApi) -> None:
    topic.append(*range(5))
    with opened(api, {topic.name: {}}, limit=2) as stream:
        frames = stream.until("caught-up")
        assert [len(frame.data["records"]) for frame in frames[:-1]] == [2, 2, 1]


def test_a_frame_holds_about_max_batch_bytes_and_at_least_one_record(api: Api, topic: TopicApi) -> None:
    topic.append("x" * 600, "y" * 600, "z" * 600)
    with opened(api, {topic.name: {}}, max_batch_bytes=1000) as stream:
        assert [len(frame.data["records"]) for frame in stream.until("caught-up")[:-1]] == [1, 1, 1]
    with opened(api, {topic.name: {}}, max_batch_bytes=0) as stream:
        assert [len(frame.data["records"]) for frame in stream.until("caught-up")[:-1]] == [3]


def test_include_options_choose_the_parts_of_a_record(api: Api, topic: TopicApi) -> None:
    topic.append_records({"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}})
    usual = {"$seq", "$ts", "$node", "data", "meta"}
    for fields, keys in (
        ({}, usual),
        ({"include_tags": True}, usual | {"$tag"}),
        ({"include_meta": False}, usual - {"meta"}),
        ({"include_data": False}, usual - {"data"}),
    ):
        with opened(api, {topic.name: {}}, **fields) as stream:
            assert set(stream.records(1)[0]) == keys


def test_own_records_are_left_out_and_passed_over(api: Api, topic: TopicApi) -> None:
    topic.append_records({"data": 1, "node": "me"}, {"data": 2, "node": "you"}, {"data": 3, "node": "me"})
    with opened(api, {topic.name: {}}, node="me") as stream:
        record, caught_up = stream.next(), stream.next()
        assert [each["data"] for each in record.data["records"]] == [2]
        assert record.data["to_seq"] == 3
        assert caught_up.name == "caught-up"
    with opened(api, {topic.name: {}}, node=["me", "you"]) as stream:
        assert stream.next().name == "caught-up"


def test_payloads_are_sent_byte_for_byte_and_newlines_between_tokens_do_no_harm(api: Api, topic: TopicApi) -> None:
    data = b'{"b" :1.0,\n"a":-0, "b":1E5,"\\u0041\\/":[ 1e400,123456789012345678901234567890 ],\n\n"":"\\n\\r"}'
    succeeded(api.post(topic.path, b'{"records":[{"data":' + data + b',"meta":{\r"m"\r\n:1}}]}'))
    with opened(api, {topic.name: {}}) as stream:
        text = stream.next().text.encode()
        assert b'"data":' + data + b"," in text
        assert json.loads(text)["records"][0]["meta"] == {"m": 1}


def test_tombstones_are_sent_before_the_records_that_are_left(api: Api, topic: TopicApi) -> None:
    topic.configure(cap_records=2)
    topic.append(1, 2)
    topic.append(3, 4)
    with opened(api, {topic.name: {}}) as stream:
        tombstone = stream.next()
        assert tombstone.name == "tombstone"
        assert tombstone.data == {
            "topic": topic.name,
            "reason": "from_seq_too_old",
            "gap_from": 1,
            "gap_to": 2,
            "earliest_seq": 3,
            "head_seq": 4,
        }
        assert cursors(tombstone) == {topic.name: 2}
        assert stream.next().data["from_seq"] == 2


def test_a_deleted_topic_ends_alone_and_its_namesake_stays_silent(api: Api, topic: TopicApi, other: TopicApi) -> None:
    topic.append(1)
    other.append(1)
    with opened(api, {topic.name: {}, other.name: {}}) as stream:
        for _ in range(4):
            stream.next()
        topic.drop()
        gone = stream.next()
        assert gone.name == "topic-deleted"
        assert gone.data == {"topic": topic.name, "head_seq": 1, "reason": "deleted"}
        assert cursors(gone) == {topic.name: 1, other.name: 1}
        topic.append("new")
        other.append("live")
        assert stream.next().data["topic"] == other.name


def test_a_heartbeat_comes_after_silence_only(api: Api, topic: TopicApi) -> None:
    topic.configure()
    with opened(api, {topic.name: {}}, heartbeat_ms=1) as stream:
        stream.until("caught-up")
        beat = stream.next(comments=True)
        assert re.fullmatch(r"hb \d{13}", beat.text)
        assert beat.id == ""
        topic.append(1)
        assert stream.next(comments=True).name == "record"


# Resuming


def test_a_new_stream_goes_on_at_the_session_cursors(api: Api, topic: TopicApi) -> None:
    topic.append(1, 2)
    url = watch(api, {"topics": {topic.name: {}}})["stream_url"]
    with EventStream(api, url) as stream:
        stream.until("caught-up")
    topic.append(3)
    with EventStream(api, url) as stream:
        assert [record["$seq"] for record in stream.records(1)] == [3]


def test_last_event_id_rewinds_all_topics_at_once_and_never_advances(
    api: Api, topic: TopicApi, other: TopicApi
) -> None:
    topic.append(1, 2)
    other.append(1, 2)
    url = watch(api, {"topics": {topic.name: {}, other.name: {}}, "limit": 1})["stream_url"]
    with EventStream(api, url) as stream:
        first = stream.next()
        [stream.next() for _ in range(5)]
    with EventStream(api, url, {"Last-Event-ID": first.id}) as stream:
        events = [event for event in [stream.next() for _ in range(5)] if event.name == "record"]
        found = [(event.data["topic"], event.data["to_seq"]) for event in events]
        assert sorted(found) == sorted([(topic.name, 2), (other.name, 1), (other.name, 2)])
    ahead = base64.urlsafe_b64encode(json.dumps({topic.name: 99, other.name: 99}).encode()).decode()
    topic.append(3)
    with EventStream(api, url, {"Last-Event-ID": ahead}) as stream:
        assert [record["$seq"] for record in stream.records(1)] == [3]


@pytest.mark.parametrize("token", ["garbage!", "e30", "W10", "eyJ4IjotMX0", "bnVsbA", "eyJ4IjoiMSJ9"])
def test_an_id_that_is_not_ours_changes_nothing(api: Api, topic: TopicApi, token: str) -> None:
    topic.append(1)
    url = watch(api, {"topics": {topic.name: {}}})["stream_url"]
    with EventStream(api, url) as stream:
        stream.until("caught-up")
    topic.append(2)
    with EventStream(api, url, {"Last-Event-ID": token}) as stream:
        assert [record["$seq"] for record in stream.records(1)] == [2]


def test_topic_deleted_is_sent_again_only_to_a_client_that_missed_it(
    api: Api, topic: TopicApi, other: TopicApi
) -> None:
    topic.append(1)
    other.append(1)
    url = watch(api, {"topics": {topic.name: {}, other.name: {}}})["stream_url"]
    with EventStream(api, url) as stream:
        before = [stream.next() for _ in range(4)][-1]
        topic.drop()
        gone = stream.next()
    assert cursors(before) == cursors(gone)
    with EventStream(api, url, {"Last-Event-ID": before.id}) as stream:
        names = {stream.next().name for _ in range(2)}
        assert names == {"topic-deleted", "caught-up"}
    with EventStream(api, url, {"Last-Event-ID": gone.id}) as stream:
        assert stream.next().data == {"topic": other.name, "head_seq": 1}
        other.append(2)
        assert stream.next().data["topic"] == other.name


def test_recreation_between_two_streams_is_sent_once_and_again_only_to_a_client_that_missed_it(
    api: Api, topic: TopicApi
) -> None:
    topic.append(1, 2, 3)
    url = watch(api, {"topics": {topic.name: {}}})["stream_url"]
    with EventStream(api, url) as stream:
        before = stream.until("caught-up")[-1]
    topic.drop()
    topic.append(1, 2, 3, 4)
    for _ in range(2):
        with EventStream(api, url, {"Last-Event-ID": before.id}) as stream:
            tombstone, records = stream.next(), stream.next()
            assert tombstone.data["reason"] == "recreated"
            assert [record["$seq"] for record in records.data["records"]] == [1, 2, 3, 4]
    with EventStream(api, url, {"Last-Event-ID": records.id}) as stream:
        assert stream.next().name == "caught-up"


def test_cursor_with_an_epoch_gets_a_tombstone_when_the_topic_was_recreated(api: Api, topic: TopicApi) -> None:
    topic.append(1, 2)
    epoch = topic.state()["epoch"]
    topic.drop()
    topic.append(1, 2, 3)
    with opened(api, {topic.name: {"from_seq": 2, "epoch": epoch}}) as stream:
        assert stream.next().data["reason"] == "recreated"
        assert [record["$seq"] for record in stream.records(3)] == [1, 2, 3]
    with opened(api, {topic.name: {"from_seq": 2, "epoch": topic.state()["epoch"]}}) as stream:
        assert [record["$seq"] for record in stream.records(1)] == [3]


def test_more_topics_than_a_map_is_good_for_are_resumed_by_an_opaque_id(api: Api, name: str) -> None:
    topics = [TopicApi(api, f"{name}-{number}") for number in range(70)]
    for topic in topics:
        topic.append(1)
    url = watch(api, {"topics": {topic.name: {} for topic in topics}})["stream_url"]
    with EventStream(api, url) as stream:
        first = stream.next()
        seen = {first.data["topic"]}
        while len(seen) < 70:
            event = stream.next()
            seen.add(event.data["topic"])
        assert len(first.id) < 400
    with EventStream(api, url, {"Last-Event-ID": first.id}) as stream:
        again = {event.data["topic"] for event in [stream.next() for _ in range(139)] if event.name == "record"}
        assert again == {topic.name for topic in topics} - {first.data["topic"]}


def test_the_id_of_an_event_is_where_a_new_session_may_begin(api: Api, topic: TopicApi, other: TopicApi) -> None:
    topic.append(1, 2, 3)
    other.append(1)
    with opened(api, {topic.name: {}, other.name: {}}, limit=2) as stream:
        first = stream.next()
    assert cursors(first) == {topic.name: 2, other.name: 0}
    starts = {topic.name: {"tail": True}, other.name: {"from_seq": 1}}
    begun = watch(api, {"topics": starts, "cursor": first.id})
    assert [place["from_seq"] for place in begun["topics"].values()] == [2, 0]
    with EventStream(api, begun["stream_url"]) as stream:
        records = [event.data for event in [stream.next() for _ in range(4)] if event.name == "record"]
    assert [(data["topic"], data["from_seq"], data["to_seq"]) for data in records] == [
        (topic.name, 2, 3),
        (other.name, 0, 1),
    ]
    # Topics that are not in the id begin where the request says; those in it that the request does not name are ignored.
    third = TopicApi(api, f"{topic.name}-third"[:255])
    third.append(1, 2)
    begun = watch(api, {"topics": {third.name: {"from_seq": 1}, topic.name: {}}, "cursor": first.id})
    assert {name: place["from_seq"] for name, place in begun["topics"].items()} == {third.name: 1, topic.name: 2}


def test_a_second_stream_takes_the_place_of_the_first(api: Api, topic: TopicApi) -> None:
    topic.append(1)
    url = watch(api, {"topics": {topic.name: {}}})["stream_url"]
    with EventStream(api, url) as first:
        first.until("caught-up")
        with EventStream(api, url) as second:
            with pytest.raises(EOFError):
                first.next()
            topic.append(2)
            assert [record["$seq"] for record in second.records(1)] == [2]


def test_a_watch_on_a_queue_reads_without_claiming(api: Api, topic: TopicApi) -> None:
    topic.configure(type="queue")
    topic.append(1)
    with opened(api, {topic.name: {}}) as stream:
        assert [record["data"] for record in stream.records(1)] == [1]
    assert topic.state()["count"] == 1


# Limits, keys and the end


class Servers:
    """Servers with settings of their own, and who calls them."""

    def __init__(self, data_dirs: pytest.TempPathFactory, stack: ExitStack) -> None:
        self._data_dirs = data_dirs
        self._stack = stack

    def start(self, **settings: str) -> Api:
        """A new server, called without a key or with the key `one`."""
        data_dir = str(self._data_dirs.mktemp("data"))
        environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": data_dir, **settings}
        url = self._stack.enter_context(running_server(load_settings(environment)))
        return self.api(url, "one" if "TOPICS_API_KEYS" in settings else None)

    def api(self, url: str, key: str | None = None) -> Api:
        return self._stack.enter_context(Api(url, {"Authorization": f"Bearer {key}"} if key else None))


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory, stack)


def test_session_and_connection_caps_refuse_what_is_new_and_free_what_ended(servers: Servers) -> None:
    api = servers.start(TOPICS_MAX_WATCH_SESSIONS="2", TOPICS_MAX_SSE_CONNECTIONS="1")
    TopicApi(api, "a").append(1)
    one, two = [watch(api, {"topics": {"a": {}}})["stream_url"] for _ in range(2)]
    answer = refused(api.post("/v0/watch", {"topics": {"a": {}}}), 429, "throttled")
    assert answer.detail == {"limit": "max_watch_sessions", "max": 2}
    assert int(answer.headers["retry-after"]) >= 1
    with EventStream(api, one) as stream:
        stream.until("caught-up")
        with EventStream(api, two) as refusal:
            answer = refused(refusal.answer, 429, "throttled")
            assert answer.detail == {"limit": "max_sse_connections", "max": 1}
        with EventStream(api, "/v0/watch/unknown") as refusal:
            refused(refusal.answer, 404, "not_found")
    # The client of an idle stream has gone: its slot is free as soon as that is noticed.
    wait_for_a_slot(api, two)


def test_a_session_without_a_stream_is_forgotten_after_its_time(servers: Servers) -> None:
    api = servers.start(TOPICS_SESSION_TTL_MS="1", TOPICS_MAX_WATCH_SESSIONS="1")
    topic = TopicApi(api, "a")
    topic.append(1)
    begun = watch(api, {"topics": {"a": {}}})
    assert begun["session_ttl_ms"] == 1
    with EventStream(api, begun["stream_url"]) as stream:
        if stream.status == 200:
            stream.until("caught-up")
            refused(api.post("/v0/watch", {"topics": {"a": {}}}), 429, "throttled")
            topic.append(2)
            assert stream.next().name == "record"
    for _ in range(1000):
        with EventStream(api, begun["stream_url"]) as stream:
            if stream.status == 404:
                break
    assert stream.status == 404


def test_a_stream_is_opened_by_the_key_that_made_its_session_and_by_no_other(servers: Servers) -> None:
    api = servers.start(TOPICS_API_KEYS="one,two,a+b:read,limited::mine")
    TopicApi(api, "a").append(1)
    url = watch(api, {"topics": {"a": {}}})["stream_url"]

    stranger = servers.api(api.url)

    def status(path: str, **headers: str) -> int:
        with EventStream(stranger, path, headers) as stream:
            return stream.status

    assert status(url) == 401
    assert status(url, Authorization="Bearer two") == 401
    assert status(url, Authorization="Bearer wrong") == 401
    assert status(f"{url}?token=two") == 401
    assert status(f"{url}?token=one") == 200
    assert status(f"{url}?token=one&token=two") == 200
    assert status(url, Authorization="Bearer one") == 200
    plus = servers.api(api.url, "a+b")
    escaped = watch(plus, {"topics": {"a": {}}})["stream_url"]
    assert status(f"{escaped}?token=a%2Bb") == 200
    assert status(f"{escaped}?token=a+b") == 401
    assert stranger.post("/v0/watch?token=one", {"topics": {"a": {}}}).status == 401


def test_a_watch_needs_read_scope_and_names_within_the_prefixes(servers: Servers) -> None:
    api = servers.start(TOPICS_API_KEYS="one,writer:write,limited::mine")
    for name in ("mine", "theirs"):
        TopicApi(api, name).append(1)
    limited = servers.api(api.url, "limited")
    watch(limited, {"topics": {"mine": {}}})
    refused(limited.post("/v0/watch", {"topics": {"mine": {}, "theirs": {}}}), 403, "forbidden")
    refused(limited.post("/v0/watch?lenient=true", {"topics": {"theirs.not.there": {}}}), 403, "forbidden")
    writer = servers.api(api.url, "writer")
    refused(writer.post("/v0/watch", {"topics": {"mine": {}}}), 403, "forbidden")


def test_streams_are_counted_for_the_key_that_made_the_session(servers: Servers) -> None:
    api = servers.start(
        TOPICS_API_KEYS="one,two", TOPICS_MAX_SSE_CONNECTIONS_PER_KEY="1", TOPICS_MAX_INFLIGHT_PER_KEY="1"
    )
    TopicApi(api, "a").append(1)
    two = servers.api(api.url, "two")
    urls = [watch(api, {"topics": {"a": {}}})["stream_url"] for _ in range(2)]
    with EventStream(api, urls[0]) as stream:
        stream.until("caught-up")
        with EventStream(api, urls[1]) as refusal:
            assert refused(refusal.answer, 429, "throttled").detail["limit"] == "max_sse_connections_per_key"
        with EventStream(two, watch(two, {"topics": {"a": {}}})["stream_url"]) as other:
            assert other.status == 200
        # An open stream is no request under way.
        assert api.get("/v0/topics").status == 200


def test_a_stopping_server_ends_its_streams(tmp_path: Any) -> None:
    with running_server(load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path)})) as url:
        with Api(url) as api:
            TopicApi(api, "a").append(1)
            stream = opened(api, {"a": {}})
        stream.until("caught-up")
    with stream, pytest.raises(EOFError):
        stream.next()


def test_a_client_that_reads_nothing_gets_an_error_is_closed_and_resumes_without_loss(servers: Servers) -> None:
    api = servers.start(
        TOPICS_SLOW_CONSUMER_TIMEOUT_MS="100", TOPICS_BUFFER_GRACE_MS="10", TOPICS_MAX_SSE_CONNECTIONS="1"
    )
    topic = TopicApi(api, "a")
    topic.configure()
    url = watch(api, {"topics": {"a": {}}})["stream_url"]
    with stuck_client(api, url) as stuck:
        for _ in range(100):
            topic.append("x" * 100_000)
        wait_for_a_slot(api, watch(api, {"topics": {"a": {"tail": True}}})["stream_url"])
        raw = b"".join(iter(lambda: stuck.recv(1 << 20), b""))
    events = list(EventParser().feed(raw.partition(b"\r\n\r\n")[2]))
    assert events[-1].name == "error"
    assert events[-1].data["code"] == 408
    seen = [record["$seq"] for event in events if event.name == "record" for record in event.data["records"]]
    last = [event for event in events if event.id][-1]
    with EventStream(api, url, {"Last-Event-ID": last.id}) as stream:
        seen += [record["$seq"] for record in stream.records(100 - len(seen))]
    assert seen == list(range(1, 101))


def test_stalled_reader_of_a_small_topic_gets_a_tombstone(servers: Servers) -> None:
    api = servers.start(TOPICS_BUFFER_GRACE_MS="1")
    topic = TopicApi(api, "a")
    topic.configure(cap_records=10)
    with stuck_client(api, watch(api, {"topics": {"a": {}}})["stream_url"]) as stuck:
        for _ in range(150):
            topic.append("x" * 100_000)
        parser = EventParser()
        last = 0
        reasons = []
        rest = b""
        while last < 150:
            rest += stuck.recv(1 << 20)
            if rest.startswith(b"HTTP") and b"\r\n\r\n" in rest:
                rest = rest.partition(b"\r\n\r\n")[2]
            for event in parser.feed(rest):
                if event.name == "record":
                    seqs = [record["$seq"] for record in event.data["records"]]
                    assert seqs == list(range(last + 1, last + 1 + len(seqs)))
                    last = seqs[-1]
                elif event.name == "tombstone":
                    assert event.data["gap_from"] == last + 1
                    last = event.data["gap_to"]
                    reasons.append(event.data["reason"])
            rest = b""
    assert reasons[-1] == "from_seq_too_old"


def stuck_client(api: Api, url: str) -> socket.socket:
    """A client with little room that does not read. HTTP/1.0, so that what comes is nothing but events."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(20)
    client.connect((api.host, api.port))
    client.sendall(f"GET {url} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    return client


def wait_for_a_slot(api: Api, url: str) -> None:
    """Until a stream can be opened where there was one too many: the stream that held the slot was closed."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with EventStream(api, url) as stream:
            if stream.status == 200:
                return
        time.sleep(0.005)
    raise AssertionError("the slot was never free")
