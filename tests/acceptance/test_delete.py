"""POST /v0/topics/:topic/delete: records are removed for good, at once, for every reader, without a tombstone."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused

# By seq


def test_everything_below_a_seq_goes_and_the_answer_tells_the_state_after_it(topic: TopicApi) -> None:
    topic.append(*range(5))
    body = topic.remove(before_seq=3)
    assert body.pop("performance")["server_total_ms"] >= 0
    state = topic.state()
    assert body == {
        "topic": topic.name,
        "deleted": 2,
        "earliest_seq": 3,
        "head_seq": 5,
        "count": 3,
        "bytes": state["bytes"],
    }
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (3, 3, 5)
    assert topic.seqs() == [3, 4, 5]


@pytest.mark.parametrize(("before_seq", "deleted"), [(0, 0), (1, 0), (2, 1), (5, 4), (6, 5), (7, 5), (2**64 - 1, 5)])
def test_before_seq_is_exclusive_and_takes_only_what_exists_now(topic: TopicApi, before_seq: int, deleted: int) -> None:
    topic.append(*range(5))
    assert topic.remove(before_seq=before_seq)["deleted"] == deleted
    seq = topic.append("later")["last_seq"]
    assert seq == 6
    assert topic.seqs() == [*range(deleted + 1, 6), 6]


def test_a_repeated_delete_takes_nothing(topic: TopicApi) -> None:
    topic.append_records({"data": 1, "tag": "t"}, {"data": 2})
    assert topic.remove(before_seq=2)["deleted"] == 1
    assert topic.remove(before_seq=2)["deleted"] == 0
    assert topic.remove(before_seq=1)["deleted"] == 0
    assert topic.remove(match="t")["deleted"] == 0


def test_seqs_of_deleted_records_are_never_used_again(topic: TopicApi) -> None:
    topic.append(1, 2, 3)
    body = topic.remove(before_seq=4)
    assert (body["head_seq"], body["earliest_seq"], body["count"], body["bytes"]) == (3, 4, 0, 0)
    assert topic.append(4)["seqs"] == [4]


def test_bytes_come_back_to_what_they_were(topic: TopicApi) -> None:
    topic.append_records({"data": "kept", "tag": "kept", "node": "n", "meta": {"k": "v"}})
    before = topic.state()["bytes"]
    topic.append_records(*[{"data": "x" * n, "tag": "gone", "node": "n", "meta": {"n": n}} for n in range(300)])
    topic.append_records({"data": "x", "tag": "gone"})
    assert topic.state()["bytes"] > before
    assert topic.remove(match="gone")["bytes"] == before


# By tag


def tagged(topic: TopicApi, *tags: str | None) -> None:
    topic.append_records(*[{"data": n, "tag": tag} for n, tag in enumerate(tags)])


@pytest.mark.parametrize(
    ("match", "left"),
    [
        (["tag", "Eq", "a:1"], [2, 3, 4, 5, 6]),
        ("a:1", [2, 3, 4, 5, 6]),
        (["tag", "Glob", "a:*"], [3, 4, 5, 6]),
        ("a:*", [3, 4, 5, 6]),
        (["tag", "Glob", "a*"], [4, 5, 6]),
        (["tag", "Glob", "*"], [6]),
        ("*", [6]),
        (["tag", "Eq", "a:*"], [1, 2, 3, 4, 5, 6]),
        (["tag", "Eq", "A:1"], [1, 2, 3, 4, 5, 6]),
        ("absent", [1, 2, 3, 4, 5, 6]),
        ("absent*", [1, 2, 3, 4, 5, 6]),
        (["tag", "Eq", ""], [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_a_match_takes_what_it_names_and_never_an_untagged_record(topic: TopicApi, match: Any, left: list[int]) -> None:
    tagged(topic, "a:1", "a:22", "ab", "b", "é", None)
    assert topic.remove(match=match)["deleted"] == 6 - len(left)
    assert topic.seqs() == left


@pytest.mark.parametrize("letter", ["*", "?", "[", "]", ".", "%", "\\", '"', "\u0000", "🙂", "\u007f"])
def test_only_the_last_star_of_a_glob_is_special(topic: TopicApi, letter: str) -> None:
    tagged(topic, f"a{letter}b", f"a{letter}bc", "axb", "ab", f"a{letter}")
    assert topic.remove(match=["tag", "Glob", f"a{letter}b*"])["deleted"] == 2
    assert topic.seqs() == [3, 4, 5]
    assert topic.remove(match=["tag", "Eq", f"a{letter}"])["deleted"] == 1
    assert topic.seqs() == [3, 4]


def test_a_literal_star_can_be_matched_exactly(topic: TopicApi) -> None:
    tagged(topic, "a*", "a", "ab", "a**")
    assert topic.remove(match=["tag", "Eq", "a*"])["deleted"] == 1
    assert topic.seqs() == [2, 3, 4]
    assert topic.remove(match="a**")["deleted"] == 1
    assert topic.seqs() == [2, 3]


def test_match_and_before_seq_must_both_hold(topic: TopicApi) -> None:
    tagged(topic, "m", "x", "m", "m")
    assert topic.remove(match=["tag", "Eq", "m"], before_seq=4)["deleted"] == 2
    assert topic.seqs() == [2, 4]
    assert topic.remove(match="m", before_seq=100)["deleted"] == 1
    assert topic.seqs() == [2]


def test_a_match_does_not_touch_later_records(topic: TopicApi) -> None:
    tagged(topic, "t", "t")
    assert topic.remove(match="t")["deleted"] == 2
    tagged(topic, "t")
    assert topic.seqs() == [3]
    assert topic.remove(match="t")["deleted"] == 1


def test_a_delete_reaches_records_over_many_pages(topic: TopicApi) -> None:
    for n in range(10):
        topic.append_records(*[{"data": n, "tag": f"user-{k % 7}:{n}"} for k in range(300)])
    total = topic.state()["count"]
    assert topic.remove(match="user-3:*")["deleted"] == 430
    assert topic.remove(match=["tag", "Eq", "user-4:5"])["deleted"] == 43
    assert topic.state()["count"] == total - 473
    assert len(topic.read_all(limit=1000)) == total - 473


# Everybody sees it at once


def test_a_deleted_record_is_gone_for_every_kind_of_look(topic: TopicApi) -> None:
    tagged(topic, "t", None)
    topic.diff(include_tags=True)
    topic.diff()
    topic.remove(match="t")
    assert topic.seqs() == [2]
    assert topic.seqs(include_tags=True) == [2]
    assert topic.seqs(node="x", include_meta=False) == [2]
    assert topic.state()["count"] == 1
    (entry,) = topic.api.get(f"/v0/topics?prefix={topic.name}").json["topics"]
    assert (entry["count"], entry["earliest_seq"]) == (1, 2)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_concurrent_deletes_count_each_record_once(topic: TopicApi, durability: str) -> None:
    topic.configure(durability=durability)
    tagged(topic, *["t"] * 200)
    bodies: list[dict[str, Any]] = [{"match": "t"}, {"before_seq": 201}, {"match": "t*", "before_seq": 150}]
    with ThreadPoolExecutor(6) as threads:
        deleted = list(threads.map(lambda n: topic.remove(**bodies[n % 3])["deleted"], range(12)))
    assert sum(deleted) == 200
    assert topic.state()["count"] == 0


# Bad requests


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"before_seq": None},
        {"match": None},
        {"before_seq": None, "match": None},
        {"before_seq": "5"},
        {"before_seq": 1.5},
        {"before_seq": -1},
        {"before_seq": True},
        {"before_seq": [1]},
        {"before_seq": 2**64},
        {"match": 5},
        {"match": True},
        {"match": {}},
        {"match": []},
        {"match": ["tag"]},
        {"match": ["tag", "Eq"]},
        {"match": ["tag", "Eq", "x", "y"]},
        {"match": ["tag", "Eq", 5]},
        {"match": ["tag", "Eq", None]},
        {"match": ["tag", "Glob", "x"]},
        {"match": ["tag", "Glob", ""]},
        {"match": ["tag", "Glob", 5]},
        {"match": ["tag", "eq", "x"]},
        {"match": ["tag", "glob", "x*"]},
        {"match": ["tag", "Prefix", "x"]},
        {"match": ["tag", "Regex", "x.*"]},
        {"match": ["tag", ["Eq"], "x"]},
        {"match": ["node", "Eq", "x"]},
        {"match": ["$tag", "Eq", "x"]},
        {"match": ["Tag", "Eq", "x"]},
        {"match": [None, "Eq", "x"]},
        {"match": ["tag", "Eq", 5], "before_seq": 3},
        {"match": "t", "before_seq": "3"},
        [],
        None,
        "t",
        5,
    ],
    ids=json.dumps,
)
def test_a_malformed_delete_takes_nothing(topic: TopicApi, body: Any) -> None:
    tagged(topic, "t", "x")
    refused(topic.api.post(f"{topic.path}/delete", json.dumps(body).encode()), 400, "invalid_request")
    assert topic.state()["count"] == 2


def test_null_counts_as_absent(topic: TopicApi) -> None:
    tagged(topic, "t", "x")
    assert topic.remove(before_seq=None, match="t")["deleted"] == 1
    assert topic.remove(before_seq=3, match=None)["deleted"] == 1


def test_deleting_from_an_absent_topic_does_not_create_it(topic: TopicApi) -> None:
    for body in ({"before_seq": 5}, {"match": "t"}):
        answer = refused(topic.api.post(f"{topic.path}/delete", body), 404, "topic_not_found")
        assert answer.detail["topic"] == topic.name
    assert not topic.exists()
