"""Section 3.3 and section 0.10: caps, TTL, the two floors and tombstones."""

import time
from typing import Any

from topics.conformance.checks import cases, check, equal, fields, present, succeeded, true
from topics.conformance.server import Server

SHORT_TTL_MS = 60


def _capped(server: Server, cap: int, number: int, **config: Any) -> str:
    name = server.create(cap_records=cap, **config)
    for value in range(1, number + 1):
        server.append(name, value)
    return name


def _expired(server: Server, number: int) -> str:
    name = server.create(ttl_ms=SHORT_TTL_MS)
    server.append(name, *range(1, number + 1))
    time.sleep(2 * SHORT_TTL_MS / 1000)
    return name


@check
def cap_keeps_the_newest_records(server: Server) -> None:
    name = _capped(server, 3, 10)
    fields(server.state(name), count=3, earliest_seq=8, head_seq=10)
    equal(server.seqs(name, 7), [8, 9, 10], "seqs")


@check
def cap_bytes_evicts_the_oldest(server: Server) -> None:
    name = server.create(cap_bytes=5000)
    for _ in range(10):
        server.append(name, "x" * 1000)
    body = server.state(name)
    true(body["bytes"] <= 5000, f"bytes is {body['bytes']}")
    true(body["earliest_seq"] > 1, f"earliest_seq is {body['earliest_seq']}")


@check
def stale_cursor_gets_the_exact_range_that_was_lost(server: Server) -> None:
    body = server.diff(_capped(server, 3, 10), 2)
    tombstone = body["tombstone"]
    true(tombstone is not None, "no tombstone")
    fields(tombstone, gap_from=3, gap_to=7, reason="cap", earliest_seq=8, head_seq=10)
    present(tombstone, "missed_estimate")
    equal([each["$seq"] for each in body["records"]], [8, 9, 10], "seqs")


@check
def tombstone_is_repeated_for_the_same_cursor(server: Server) -> None:
    name = _capped(server, 3, 10)
    true(server.diff(name)["tombstone"] == server.diff(name)["tombstone"] is not None, "the second read differs")


@check
def cursor_at_the_floor_is_silent(server: Server) -> None:
    body = server.diff(_capped(server, 3, 10), 7)
    fields(body, tombstone=None)
    equal([each["$seq"] for each in body["records"]], [8, 9, 10], "seqs")


@check
def page_after_the_tombstone_has_none(server: Server) -> None:
    name = _capped(server, 3, 10)
    first = server.diff(name, 0, limit=1)
    true(first["tombstone"] is not None, "no tombstone")
    fields(server.diff(name, first["next_from_seq"]), tombstone=None)


@check
def batch_above_the_cap_keeps_its_newest_records(server: Server) -> None:
    name = server.create(cap_records=2)
    fields(server.append(name, *range(5)), seqs=[1, 2, 3, 4, 5])
    body = server.diff(name)
    equal([each["$seq"] for each in body["records"]], [4, 5], "seqs")
    fields(body["tombstone"], gap_from=1, gap_to=3)


@check
def expired_records_are_not_delivered(server: Server) -> None:
    name = _expired(server, 3)
    body = server.diff(name)
    fields(body, records=[], next_from_seq=3, head_seq=3, caught_up=True)
    fields(body["tombstone"], gap_from=1, gap_to=3, reason="ttl")


@check
def expiry_moves_the_state_without_a_read(server: Server) -> None:
    fields(server.state(_expired(server, 3)), count=0, earliest_seq=4, head_seq=3)


@check
def records_after_the_expired_ones_are_delivered(server: Server) -> None:
    name = _expired(server, 3)
    succeeded(server.put(server.topic_path(name), {"ttl_ms": 600_000}))
    server.append(name, 4)
    body = server.diff(name)
    equal([each["$seq"] for each in body["records"]], [4], "seqs")
    fields(body["tombstone"], gap_from=1, gap_to=3)


@check
def relaxed_ttl_does_not_bring_records_back(server: Server) -> None:
    name = _expired(server, 3)
    server.state(name)
    succeeded(server.put(server.topic_path(name), {"ttl_ms": 0}))
    fields(server.state(name), count=0, earliest_seq=4)


@check
def tightened_cap_applies_to_existing_records(server: Server) -> None:
    name = server.create()
    server.append(name, *range(10))
    succeeded(server.put(server.topic_path(name), {"cap_records": 4}))
    fields(server.state(name), count=4, earliest_seq=7)


@check
def relaxed_cap_does_not_bring_records_back(server: Server) -> None:
    name = _capped(server, 2, 5)
    succeeded(server.put(server.topic_path(name), {"cap_records": 0}))
    fields(server.state(name), count=2, earliest_seq=4)


@check
def deleted_records_free_space_under_a_cap(server: Server) -> None:
    name = server.create(cap_records=3)
    server.append(name, {"data": 1, "tag": "a"}, {"data": 2, "tag": "b"}, {"data": 3, "tag": "c"})
    server.remove(name, match="b")
    server.append(name, 4)
    body = server.diff(name)
    equal([each["$seq"] for each in body["records"]], [1, 3, 4], "seqs")
    fields(body, tombstone=None)


@check
def purely_deleted_prefix_is_silent(server: Server) -> None:
    name = server.create()
    server.append(name, *range(5))
    server.remove(name, before_seq=4)
    body = server.diff(name)
    fields(body, tombstone=None, earliest_seq=4)
    equal([each["$seq"] for each in body["records"]], [4, 5], "seqs")


@check
def earliest_seq_is_behind_the_head_when_nothing_is_live(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    server.remove(name, before_seq=3)
    fields(server.state(name), earliest_seq=3, head_seq=2, next_seq=3, count=0, bytes=0)


@check
def bytes_return_to_zero_when_everything_is_gone(server: Server) -> None:
    equal(server.state(_expired(server, 5))["bytes"], 0, "bytes")


@cases({"cap": {"cap_records": 2}, "ttl": {"ttl_ms": SHORT_TTL_MS}})
def earliest_seq_never_decreases(server: Server, config: dict[str, int]) -> None:
    name = server.create(**config)
    floors = []
    for value in range(6):
        server.append(name, value)
        floors.append(server.state(name)["earliest_seq"])
        time.sleep(0.02)
    equal(floors, sorted(floors), "earliest_seq")
