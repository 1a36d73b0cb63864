"""Section 5 and the document about permanent deletion."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from topics.conformance.checks import cases, check, equal, fields, refused, succeeded
from topics.conformance.server import Server

TAGS = ("user:1", "user:2", "user:10", "User:1", "group:1", "user", None)


def _tagged(server: Server) -> str:
    """Records 1 to 7 with these tags; the last has none."""
    name = server.create()
    server.append(
        name, *[{"data": number} if tag is None else {"data": number, "tag": tag} for number, tag in enumerate(TAGS)]
    )
    return name


@check
def answer_has_the_documented_fields(server: Server) -> None:
    name = _tagged(server)
    body = succeeded(server.post(server.topic_path(name, "/delete"), {"before_seq": 3}))
    fields(body, topic=name, deleted=2, earliest_seq=3, head_seq=7, count=5)
    equal(body["bytes"], server.state(name)["bytes"], "bytes")


@check
def absent_topic_is_404(server: Server) -> None:
    refused(server.post(server.topic_path(None, "/delete"), {"before_seq": 1}), 404, "topic_not_found")


MATCHES: dict[str, tuple[Any, list[int]]] = {
    "exact": (["tag", "Eq", "user:1"], [2, 3, 4, 5, 6, 7]),
    "prefix": (["tag", "Glob", "user:*"], [4, 5, 6, 7]),
    "prefix without a colon": (["tag", "Glob", "user*"], [4, 5, 7]),
    "every tag": (["tag", "Glob", "*"], [7]),
    "a bare string is exact": ("user:1", [2, 3, 4, 5, 6, 7]),
    "a bare string with a star is a prefix": ("user:1*", [2, 4, 5, 6, 7]),
    "a bare star": ("*", [7]),
    "exact is case-sensitive": (["tag", "Eq", "USER:1"], [1, 2, 3, 4, 5, 6, 7]),
    "exact with a star is literal": (["tag", "Eq", "user:*"], [1, 2, 3, 4, 5, 6, 7]),
    "no match": ("other", [1, 2, 3, 4, 5, 6, 7]),
    "the empty tag": (["tag", "Eq", ""], [1, 2, 3, 4, 5, 6, 7]),
}


@cases(MATCHES)
def match_selects(server: Server, case: tuple[Any, list[int]]) -> None:
    match, left = case
    name = _tagged(server)
    fields(server.remove(name, match=match), deleted=7 - len(left))
    equal(server.seqs(name), left, "seqs that are left")


@cases({"a star inside": ("a*b*", "a*bc"), "a question mark": ("a?*", "a?c"), "brackets": ("a[b]*", "a[b]c")})
def only_the_last_star_is_special(server: Server, case: tuple[str, str]) -> None:
    pattern, tag = case
    name = server.create()
    server.append(name, {"data": 1, "tag": tag}, {"data": 2, "tag": "abc"}, {"data": 3, "tag": "axbc"})
    fields(server.remove(name, match=["tag", "Glob", pattern]), deleted=1)
    equal(server.seqs(name), [2, 3], "seqs that are left")


@check
def before_seq_is_exclusive(server: Server) -> None:
    name = _tagged(server)
    server.remove(name, before_seq=4)
    equal(server.seqs(name), [4, 5, 6, 7], "seqs that are left")


@check
def before_seq_and_match_must_both_hold(server: Server) -> None:
    name = _tagged(server)
    fields(server.remove(name, before_seq=3, match="user:*"), deleted=2)
    equal(server.seqs(name), [3, 4, 5, 6, 7], "seqs that are left")


@check
def null_counts_as_absent(server: Server) -> None:
    name = _tagged(server)
    fields(server.remove(name, before_seq=2, match=None), deleted=1)
    fields(server.remove(name, before_seq=None, match="group:1"), deleted=1)


@check
def before_seq_beyond_the_head_does_not_touch_later_records(server: Server) -> None:
    name = _tagged(server)
    fields(server.remove(name, before_seq=1000), deleted=7, earliest_seq=8, head_seq=7, count=0, bytes=0)
    fields(server.append(name, 1), first_seq=8)
    equal(server.seqs(name), [8], "seqs")


@check
def match_does_not_touch_later_records(server: Server) -> None:
    name = _tagged(server)
    server.remove(name, match="user:1")
    server.append(name, {"data": 8, "tag": "user:1"})
    equal(server.seqs(name), [2, 3, 4, 5, 6, 7, 8], "seqs")


@check
def repeated_delete_reports_0(server: Server) -> None:
    name = _tagged(server)
    fields(server.remove(name, match="user:*"), deleted=3)
    fields(server.remove(name, match="user:*"), deleted=0)
    fields(server.remove(name, before_seq=2), deleted=0)


@check
def before_seq_0_deletes_nothing(server: Server) -> None:
    fields(server.remove(_tagged(server), before_seq=0), deleted=0)


@check
def concurrent_deletes_count_each_record_once(server: Server) -> None:
    name = server.create()
    server.append(name, *[{"data": number, "tag": "t"} for number in range(100)])
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda _: server.remove(name, match="t")["deleted"], range(6)))
    equal(sum(counts), 100, "records deleted by all calls")


@check
def delete_is_silent_for_readers(server: Server) -> None:
    name = _tagged(server)
    server.remove(name, before_seq=4)
    fields(server.diff(name, 0), tombstone=None, next_from_seq=7, caught_up=True)


@check
def cursor_passes_deleted_records_at_the_tail(server: Server) -> None:
    name = _tagged(server)
    server.remove(name, match="*")
    server.remove(name, before_seq=8)
    fields(server.diff(name), records=[], next_from_seq=7, head_seq=7, caught_up=True, tombstone=None)


@check
def seqs_of_deleted_records_are_not_used_again(server: Server) -> None:
    name = _tagged(server)
    server.remove(name, before_seq=8)
    fields(server.append(name, 1), first_seq=8)


@check
def bytes_return_to_their_former_value(server: Server) -> None:
    name = _tagged(server)
    before = server.state(name)["bytes"]
    server.append(name, {"data": "x" * 500, "tag": "temporary"})
    equal(server.remove(name, match="temporary")["bytes"], before, "bytes")


@check
def hole_in_the_middle_keeps_earliest_seq(server: Server) -> None:
    name = _tagged(server)
    fields(server.remove(name, match="user:2"), earliest_seq=1, count=6)


@check
def delete_does_not_travel_through_a_router(server: Server) -> None:
    source, dest = server.create(), server.create()
    server.route(source, dest)
    server.append(source, {"data": 1, "tag": "t"})
    server.wait_for(lambda: server.state(dest)["count"] == 1, "the record was not forwarded")
    fields(server.remove(source, match="t"), deleted=1)
    fields(server.state(dest), count=1)
    fields(server.remove(dest, match="t"), deleted=1)


@check
def tag_of_256_bytes_can_be_matched(server: Server) -> None:
    name = server.create()
    server.append(name, {"data": 1, "tag": "é" * 128})
    fields(server.remove(name, match=["tag", "Eq", "é" * 128]), deleted=1)


BAD: dict[str, dict[str, Any]] = {
    "nothing": {},
    "both null": {"before_seq": None, "match": None},
    "before_seq as text": {"before_seq": "5"},
    "before_seq negative": {"before_seq": -1},
    "before_seq with a fraction": {"before_seq": 1.5},
    "match as a number": {"match": 5},
    "match with two parts": {"match": ["tag", "Eq"]},
    "match with four parts": {"match": ["tag", "Eq", "a", "b"]},
    "match on another field": {"match": ["node", "Eq", "a"]},
    "match with an unknown operator": {"match": ["tag", "Regex", "a"]},
    "match with a lower-case operator": {"match": ["tag", "eq", "a"]},
    "match with a number as its value": {"match": ["tag", "Eq", 5]},
    "glob without a star": {"match": ["tag", "Glob", "a"]},
    "glob with a star inside only": {"match": ["tag", "Glob", "a*b"]},
    "match as an object": {"match": {"tag": "a"}},
}


@cases(BAD)
def bad_request_is_refused_and_deletes_nothing(server: Server, body: dict[str, Any]) -> None:
    name = _tagged(server)
    refused(server.post(server.topic_path(name, "/delete"), body), 400, "invalid_request")
    fields(server.state(name), count=7)
