"""Section 7: watch sessions and their event streams."""

import base64
import json
import re
import time
from typing import Any

from topics.conformance.checks import absent, cases, check, equal, fields, present, refused, succeeded, true
from topics.conformance.server import Response, Server
from topics.conformance.streams import Event, EventStream

WID = re.compile(r"wid_[A-Za-z0-9_-]{22,}")


def _positions(event: Event) -> Any:
    """The cursor map in an event's id."""
    return json.loads(base64.urlsafe_b64decode(event.id + "=" * (-len(event.id) % 4)))


def _refusal(server: Server, path: str, headers: dict[str, str] | None = None) -> Response:
    """Open a stream that must be refused."""
    stream = server.stream(path, headers)
    return Response(f"GET {path}", stream.status, stream.headers, stream.body())


@check
def session_has_the_documented_fields(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    body = succeeded(server.post("/v0/watch", {"topics": {name: {"from_seq": 1}}}))
    true(WID.fullmatch(body["wid"]), f"wid is {body['wid']!r}")
    fields(body, stream_url=f"/v0/watch/{body['wid']}", session_ttl_ms=300_000)
    fields(body["topics"][name], from_seq=1, head_seq=2, earliest_seq=1)


@check
def tail_starts_at_the_head_and_wins_over_from_seq(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    fields(server.watch({name: {"tail": True, "from_seq": 0}})["topics"][name], from_seq=2, head_seq=2)


BAD: dict[str, dict[str, Any]] = {
    "no topics": {},
    "empty topics": {"topics": {}},
    "topics as a list": {"topics": ["a"]},
    "topic options as a number": {"topics": {"a": 5}},
    "from_seq as text": {"topics": {"a": {"from_seq": "5"}}},
    "from_seq negative": {"topics": {"a": {"from_seq": -1}}},
    "tail as a number": {"topics": {"a": {"tail": 1}}},
    "257 topics": {"topics": {f"t{number}": {} for number in range(257)}},
    "unknown consistency": {"topics": {"a": {}}, "consistency": "sometimes"},
    "limit as text": {"topics": {"a": {}}, "limit": "5"},
    "heartbeat_ms as text": {"topics": {"a": {}}, "heartbeat_ms": "5"},
    "max_batch_bytes negative": {"topics": {"a": {}}, "max_batch_bytes": -1},
    "include_data as a number": {"topics": {"a": {}}, "include_data": 1},
    "node as a number": {"topics": {"a": {}}, "node": 5},
}


@cases(BAD)
def bad_session_is_refused(server: Server, body: dict[str, Any]) -> None:
    refused(server.post("/v0/watch", body), 400, "invalid_request")


@check
def unknown_topic_is_404(server: Server) -> None:
    refused(server.post("/v0/watch", {"topics": {server.new_name(): {}}}), 404, "topic_not_found")


@check
def lenient_drops_unknown_topics(server: Server) -> None:
    known, unknown = server.create(), server.new_name()
    body = succeeded(server.post("/v0/watch?lenient=true", {"topics": {known: {}, unknown: {}}}))
    equal(list(body["topics"]), [known], "topics of the session")


@check
def stream_has_its_headers(server: Server) -> None:
    stream = server.watched({server.create(): {}})
    equal(stream.status, 200, "status")
    true(
        stream.headers["content-type"].startswith("text/event-stream"),
        f"Content-Type is {stream.headers['content-type']}",
    )
    true("no-store" in stream.headers.get("cache-control", ""), "Cache-Control is not no-store")
    equal(stream.headers.get("x-accel-buffering"), "no", "X-Accel-Buffering")
    absent(stream.headers, "content-encoding")


@check
def stream_is_not_compressed(server: Server) -> None:
    stream = server.stream(server.watch({server.create(): {}})["stream_url"], {"Accept-Encoding": "gzip"})
    absent(stream.headers, "content-encoding")


@check
def retry_is_sent_once(server: Server) -> None:
    name = server.create()
    stream = server.watched({name: {}})
    stream.until("caught-up")
    server.append(name, 1)
    stream.until("record")
    equal(stream.retries, [2000], "retry")


@check
def unknown_wid_is_404(server: Server) -> None:
    refused(_refusal(server, "/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA"), 404, "not_found")


@check
def other_accept_is_406(server: Server) -> None:
    session = server.watch({server.create(): {}})
    refused(server.get(session["stream_url"], {"Accept": "application/json"}), 406, "not_acceptable")


@check
def backlog_is_sent_then_caught_up(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    stream = server.watched({name: {"from_seq": 1}})
    event = stream.next()
    equal(event.name, "record", "first event")
    fields(event.data, topic=name, from_seq=1, to_seq=3, head_seq=3)
    equal([each["$seq"] for each in event.data["records"]], [2, 3], "seqs")
    last = stream.next()
    equal(last.name, "caught-up", "second event")
    fields(last.data, topic=name, head_seq=3)


@check
def caught_up_comes_for_an_empty_topic(server: Server) -> None:
    name = server.create()
    fields(server.watched({name: {}}).until("caught-up").data, topic=name, head_seq=0)


@check
def caught_up_comes_when_every_record_is_filtered(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, node="me")
    fields(server.watched({name: {}}, node="me").until("caught-up").data, head_seq=2)


@check
def new_records_are_pushed(server: Server) -> None:
    name = server.create()
    stream = server.watched({name: {}})
    stream.until("caught-up")
    server.append(name, {"data": {"a": 1}, "tag": "t", "node": "n", "meta": {"m": 1}})
    record = stream.until("record").data["records"][0]
    fields(record, **{"$seq": 1, "$node": "n", "data": {"a": 1}, "meta": {"m": 1}})
    absent(record, "$tag")


@check
def records_between_session_and_stream_are_sent(server: Server) -> None:
    name = server.create()
    server.append(name, 1)
    session = server.watch({name: {"tail": True}})
    server.append(name, 2)
    equal([each["$seq"] for each in server.stream(session["stream_url"]).records(1)], [2], "seqs")


INCLUDE_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "tags": ({"include_tags": True}, {"$tag": "t"}, ()),
    "no meta": ({"include_meta": False}, {}, ("meta",)),
    "no data": ({"include_data": False}, {"$seq": 1}, ("data",)),
}


@cases(INCLUDE_OPTIONS)
def include_options_apply(server: Server, case: tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]) -> None:
    options, expected, left_out = case
    name = server.create()
    server.append(name, {"data": 1, "tag": "t", "meta": {"m": 1}})
    record = server.watched({name: {}}, **options).records(1)[0]
    fields(record, **expected)
    absent(record, *left_out)


@check
def own_records_are_left_out_and_passed(server: Server) -> None:
    name = server.create()
    server.append(name, {"data": 1, "node": "me"}, {"data": 2, "node": "you"}, {"data": 3, "node": "me"})
    stream = server.watched({name: {}}, node="me")
    event = stream.until("record")
    equal([each["$seq"] for each in event.data["records"]], [2], "seqs")
    equal(stream.until("caught-up").data["head_seq"], 3, "head_seq")


@check
def limit_bounds_the_records_of_a_frame(server: Server) -> None:
    name = server.create()
    server.append(name, *range(10))
    stream = server.watched({name: {}}, limit=3)
    sizes: list[int] = []
    while sum(sizes) < 10:
        sizes.append(len(stream.until("record").data["records"]))
    true(max(sizes) <= 3, f"sizes of the frames: {sizes}")


@check
def max_batch_bytes_bounds_a_frame(server: Server) -> None:
    name = server.create()
    for _ in range(5):
        server.append(name, "x" * 10_000)
    stream = server.watched({name: {}}, max_batch_bytes=15_000)
    sizes: list[int] = []
    while sum(sizes) < 5:
        sizes.append(len(stream.until("record").data["records"]))
    true(max(sizes) <= 2, f"records per frame: {sizes}")


@check
def several_topics_share_a_stream(server: Server) -> None:
    first, second = server.create(), server.create()
    stream = server.watched({first: {}, second: {}})
    server.append(first, "a")
    server.append(second, "b")
    seen: dict[str, list[Any]] = {}
    while len(seen) < 2:
        event = stream.until("record").data
        seen[event["topic"]] = [each["data"] for each in event["records"]]
    equal(seen, {first: ["a"], second: ["b"]}, "records by topic")


@check
def id_is_the_cursor_map_of_all_topics(server: Server) -> None:
    first, second = server.create(), server.create()
    server.append(first, 1, 2)
    stream = server.watched({first: {}, second: {"from_seq": 0}})
    equal(_positions(stream.until("record")), {first: 2, second: 0}, "cursor map")


@check
def reconnect_continues_at_the_session_cursor(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    session = server.watch({name: {}})
    stream = server.stream(session["stream_url"])
    stream.until("caught-up")
    stream.close()
    server.append(name, 3)
    equal([each["$seq"] for each in server.stream(session["stream_url"]).records(1)], [3], "seqs after the reconnect")


@check
def last_event_id_rewinds_the_session(server: Server) -> None:
    name = server.create()
    server.append(name, 1)
    session = server.watch({name: {}})
    stream = server.stream(session["stream_url"])
    first = stream.until("record")
    server.append(name, 2)
    stream.until("record")
    stream.close()
    again = server.stream(session["stream_url"], {"Last-Event-ID": first.id})
    equal([each["$seq"] for each in again.records(1)], [2], "seqs after the rewind")


@check
def last_event_id_never_advances_the_session(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    session = server.watch({name: {}})
    ahead = base64.urlsafe_b64encode(json.dumps({name: 3}).encode()).decode().rstrip("=")
    stream = server.stream(session["stream_url"], {"Last-Event-ID": ahead})
    equal([each["$seq"] for each in stream.records(3)], [1, 2, 3], "seqs")


@check
def lost_records_are_a_tombstone(server: Server) -> None:
    name = server.create(cap_records=2)
    for number in range(5):
        server.append(name, number)
    stream = server.watched({name: {"from_seq": 0}})
    event = stream.next()
    equal(event.name, "tombstone", "first event")
    fields(event.data, topic=name, gap_from=1, gap_to=3, earliest_seq=4, head_seq=5)
    present(event.data, "reason")
    equal(_positions(event), {name: 3}, "cursor map of the tombstone")
    equal([each["$seq"] for each in stream.records(2)], [4, 5], "seqs")


@check
def deleted_records_are_silent(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    server.remove(name, before_seq=3)
    event = server.watched({name: {"from_seq": 0}}).next()
    equal(event.name, "record", "first event")
    equal([each["$seq"] for each in event.data["records"]], [3], "seqs")


@check
def deleted_topic_ends_for_itself_only(server: Server) -> None:
    gone, other = server.create(), server.create()
    server.append(gone, 1)
    stream = server.watched({gone: {"tail": True}, other: {}})
    stream.until("caught-up")
    server.delete(server.topic_path(gone))
    fields(stream.until("topic-deleted").data, topic=gone, head_seq=1, reason="deleted")
    server.append(other, "still")
    equal(stream.until("record").data["topic"], other, "topic of the next record")


@check
def recreated_namesake_stays_silent(server: Server) -> None:
    gone, other = server.create(), server.create()
    stream = server.watched({gone: {}, other: {}})
    stream.until("caught-up")
    server.delete(server.topic_path(gone))
    stream.until("topic-deleted")
    server.append(gone, "new life")
    server.append(other, "end")
    equal(stream.until("record").data["topic"], other, "topic of the next record")


@check
def idle_stream_has_heartbeats(server: Server) -> None:
    stream = server.watched({server.create(): {}}, heartbeat_ms=1000)
    stream.until("caught-up")
    started = time.monotonic()
    event = stream.next(comments=True)
    taken = time.monotonic() - started
    true(re.fullmatch(r"hb \d{13}", event.text), f"the heartbeat is {event.text!r}")
    true(0.5 < taken < 5, f"a heartbeat of 1000 ms came after {taken:.2f} s")


@check
def strong_consistency_delivers(server: Server) -> None:
    name = server.create(durability="fsync")
    stream = server.watched({name: {}}, consistency="strong")
    server.append(name, 1)
    equal([each["$seq"] for each in stream.records(1)], [1], "seqs")


@check
def two_streams_get_every_record(server: Server) -> None:
    name = server.create()
    streams: list[EventStream] = [server.watched({name: {}}) for _ in range(2)]
    for number in range(20):
        server.append(name, number)
    for stream in streams:
        equal([each["data"] for each in stream.records(20)], list(range(20)), "data")


@check
def queue_can_be_watched_without_claiming(server: Server) -> None:
    name = server.create(type="queue")
    server.append(name, "job")
    equal(len(server.watched({name: {}}).records(1)), 1, "number of records")
    fields(server.state(name)["queue"], ready=1, in_flight=0)
