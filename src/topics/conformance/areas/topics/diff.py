"""Section 3 and the documents about reading, ordering and cursors."""

import threading
import time
from typing import Any

from topics.conformance.checks import absent, cases, check, equal, fields, present, refused, succeeded, true
from topics.conformance.server import Server


def _filled(server: Server, number: int, **config: Any) -> str:
    name = server.create(**config)
    server.append(name, *range(1, number + 1))
    return name


@check
def answer_has_the_documented_fields(server: Server) -> None:
    name = _filled(server, 3)
    body = succeeded(server.post(server.topic_path(name, "/diff"), {"from_seq": 0}))
    fields(body, topic=name, next_from_seq=3, head_seq=3, earliest_seq=1, caught_up=True, tombstone=None, lag=0)
    equal([each["$seq"] for each in body["records"]], [1, 2, 3], "seqs")


@check
def absent_topic_is_404_and_is_not_created(server: Server) -> None:
    name = server.new_name()
    refused(server.post(server.topic_path(name, "/diff"), {}), 404, "topic_not_found")
    refused(server.get(server.topic_path(name)), 404, "topic_not_found")


@check
def from_seq_is_exclusive(server: Server) -> None:
    equal(server.seqs(_filled(server, 3), 2), [3], "seqs")


@check
def read_at_the_head_is_empty_and_caught_up(server: Server) -> None:
    body = server.diff(_filled(server, 3), 3)
    fields(body, records=[], next_from_seq=3, caught_up=True, tombstone=None, lag=0)


@check
def read_of_an_empty_topic_is_caught_up(server: Server) -> None:
    body = server.diff(server.create())
    fields(body, records=[], next_from_seq=0, head_seq=0, earliest_seq=1, caught_up=True, tombstone=None, lag=0)


@check
def request_without_a_body_reads_from_the_beginning(server: Server) -> None:
    name = _filled(server, 2)
    equal(len(succeeded(server.send("POST", server.topic_path(name, "/diff")))["records"]), 2, "number of records")


@check
def limit_bounds_the_records(server: Server) -> None:
    body = server.diff(_filled(server, 5), limit=2)
    equal([each["$seq"] for each in body["records"]], [1, 2], "seqs")
    fields(body, next_from_seq=2, caught_up=False, lag=3)


@cases({"absent": {}, "0": {"limit": 0}})
def default_limit_is_256(server: Server, request: dict[str, int]) -> None:
    equal(len(server.diff(_filled(server, 300), **request)["records"]), 256, "number of records")


@check
def limit_above_1000_is_clamped(server: Server) -> None:
    equal(len(server.diff(_filled(server, 1100), limit=100_000)["records"]), 1000, "number of records")


@check
def pages_give_every_record_once(server: Server) -> None:
    name = _filled(server, 25)
    seen: list[int] = []
    cursor = 0
    for _ in range(10):
        body = server.diff(name, cursor, limit=4)
        seen += [each["$seq"] for each in body["records"]]
        cursor = body["next_from_seq"]
        if body["caught_up"]:
            break
    equal(seen, list(range(1, 26)), "seqs of all pages")


@check
def page_stops_at_about_1_mib_and_skips_nothing(server: Server) -> None:
    name = server.create()
    for _ in range(6):
        server.append(name, "x" * 300_000)
    body = server.diff(name)
    count = len(body["records"])
    true(1 <= count < 6, f"{count} records of 300 kB in one page")
    fields(body, next_from_seq=count, caught_up=False)
    equal(server.seqs(name, count)[0], count + 1, "first seq of the next page")


@check
def one_record_above_the_budget_is_delivered(server: Server) -> None:
    name = server.create()
    server.append(name, "x" * 1_040_000)
    equal(len(server.diff(name)["records"]), 1, "number of records")


@check
def tags_are_left_out_by_default(server: Server) -> None:
    name = server.create()
    server.append(name, {"data": 1, "tag": "t"})
    absent(server.diff(name)["records"][0], "$tag")
    absent(server.diff(name, include_tags=False)["records"][0], "$tag")
    fields(server.diff(name, include_tags=True)["records"][0], **{"$tag": "t"})


@check
def meta_is_included_by_default(server: Server) -> None:
    name = server.create()
    server.append(name, {"data": 1, "meta": {"a": 1}})
    fields(server.diff(name)["records"][0], meta={"a": 1})
    absent(server.diff(name, include_meta=False)["records"][0], "meta")


BAD: dict[str, dict[str, Any]] = {
    "from_seq as text": {"from_seq": "5"},
    "from_seq negative": {"from_seq": -1},
    "from_seq with a fraction": {"from_seq": 1.5},
    "from_seq boolean": {"from_seq": True},
    "limit as text": {"limit": "5"},
    "limit negative": {"limit": -1},
    "wait_ms as text": {"wait_ms": "5"},
    "wait_ms negative": {"wait_ms": -1},
    "node as a number": {"node": 5},
    "node as a list of numbers": {"node": [5]},
    "include_tags as a number": {"include_tags": 1},
    "include_meta as text": {"include_meta": "yes"},
}


@cases(BAD)
def bad_field_is_refused(server: Server, body: dict[str, Any]) -> None:
    refused(server.post(server.topic_path(server.create(), "/diff"), body), 400, "invalid_request")


# Nodes (section 4)


def _two_nodes(server: Server, **config: Any) -> str:
    name = server.create(**config)
    for number in range(6):
        server.append(name, {"data": number, "node": "ab"[number % 2]})
    return name


@check
def own_records_are_left_out(server: Server) -> None:
    equal(server.seqs(_two_nodes(server), node="a"), [2, 4, 6], "seqs")


@check
def own_records_of_several_nodes_are_left_out(server: Server) -> None:
    equal(server.seqs(_two_nodes(server), node=["a", "b"]), [], "seqs")


@check
def cursor_passes_own_records_at_the_tail(server: Server) -> None:
    body = server.diff(_two_nodes(server), node="b")
    fields(body, next_from_seq=6, caught_up=True, lag=0, tombstone=None)


@check
def topic_of_only_own_records_is_caught_up_in_one_call(server: Server) -> None:
    name = server.create()
    server.append(name, *range(50), node="me")
    fields(server.diff(name, node="me", limit=1), records=[], next_from_seq=50, caught_up=True)


@check
def empty_list_of_nodes_leaves_nothing_out(server: Server) -> None:
    equal(len(server.seqs(_two_nodes(server), node=[])), 6, "number of records")


@cases({"a prefix": "a", "a longer name": "abc", "another case": "AB"})
def nodes_are_compared_exactly(server: Server, node: str) -> None:
    name = server.create()
    server.append(name, {"data": 1, "node": "ab"})
    equal(server.seqs(name, node=node), [1], "seqs")


@check
def dedupe_node_false_disables_the_filter(server: Server) -> None:
    equal(len(server.seqs(_two_nodes(server, dedupe_node=False), node="a")), 6, "number of records")


@check
def records_without_a_node_are_never_left_out(server: Server) -> None:
    name = _filled(server, 2)
    equal(server.seqs(name, node="a"), [1, 2], "seqs")


# Long polls


@check
def long_poll_returns_at_once_when_there_are_records(server: Server) -> None:
    name = _filled(server, 1)
    started = time.monotonic()
    equal(server.seqs(name, wait_ms=10_000), [1], "seqs")
    true(time.monotonic() - started < 5, "the long poll waited although there was a record")


@check
def long_poll_ends_empty_after_its_time(server: Server) -> None:
    name = _filled(server, 1)
    started = time.monotonic()
    fields(server.diff(name, 1, wait_ms=200), records=[], caught_up=True, next_from_seq=1)
    taken = time.monotonic() - started
    true(0.15 <= taken < 5, f"a long poll of 200 ms took {taken:.3f} s")


@check
def long_poll_is_woken_by_an_append(server: Server) -> None:
    name = _filled(server, 1)
    found: list[list[int]] = []
    polls = [threading.Thread(target=lambda: found.append(server.seqs(name, 1, wait_ms=15_000))) for _ in range(3)]
    for poll in polls:
        poll.start()
    # The polls must be waiting; if they are not, they find the record at once and the check still holds.
    time.sleep(0.2)
    started = time.monotonic()
    server.append(name, 2)
    for poll in polls:
        poll.join()
    true(time.monotonic() - started < 5, "the long polls were not woken")
    equal(found, [[2], [2], [2]], "seqs of the three polls")


@check
def long_poll_does_not_block_other_requests(server: Server) -> None:
    name = _filled(server, 1)
    poll = threading.Thread(target=lambda: server.diff(name, 1, wait_ms=3000))
    poll.start()
    started = time.monotonic()
    server.state(name)
    true(time.monotonic() - started < 2, "a request waited for a long poll of the same topic")
    server.append(name, 2)
    poll.join()


@check
def long_poll_of_a_stale_cursor_returns_the_tombstone_at_once(server: Server) -> None:
    name = server.create(cap_records=1)
    server.append(name, 1)
    server.append(name, 2)
    started = time.monotonic()
    body = server.diff(name, 0, wait_ms=10_000)
    true(body["tombstone"] is not None, "no tombstone")
    true(time.monotonic() - started < 5, "the long poll waited")


@check
def wait_above_30000_is_clamped(server: Server) -> None:
    name = _filled(server, 1)
    equal(server.post(server.topic_path(name, "/diff"), {"wait_ms": 10**9}).status, 200, "status")


# Seqs at and beyond the head


@check
def cursor_beyond_the_head_of_a_recreated_topic_is_reported(server: Server) -> None:
    name = _filled(server, 10)
    server.delete(server.topic_path(name))
    server.append(name, 1, 2)
    body = server.diff(name, 10)
    true(body["tombstone"] is not None, "no tombstone")
    equal(body["tombstone"]["reason"], "recreated", "reason")
    equal([each["$seq"] for each in body["records"]], [1, 2], "seqs")
    fields(body, next_from_seq=2, head_seq=2, caught_up=True)


@check
def lag_is_the_distance_to_the_head(server: Server) -> None:
    fields(server.diff(_filled(server, 9), 2, limit=3), next_from_seq=5, lag=4, head_seq=9)


@check
def records_scanned_counts_examined_records(server: Server) -> None:
    body = server.diff(_two_nodes(server), node="a")
    present(body["performance"], "records_scanned")
    true(body["performance"]["records_scanned"] >= 3, f"records_scanned is {body['performance']['records_scanned']}")
