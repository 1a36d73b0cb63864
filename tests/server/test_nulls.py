"""Null for an optional field counts as left out, in every body alike."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from tests.server.house import House, error_of, in_house
from topics.model.config import ConfigChange
from topics.server.archives import ArchiveBody, ProgressBody
from topics.server.commands import _Subscribe
from topics.server.deletion import DeleteBody
from topics.server.diff import DiffBody
from topics.server.groups import AckBody, ConsumeBody, LeaveBody, SeekBody
from topics.server.heads import HeadsBody
from topics.server.pipeline import JobReport, Report
from topics.server.queues import ClaimBody, ExtendBody, NackBody, SettleBody
from topics.server.routers import RouterBody
from topics.server.sql import SqlBody
from topics.server.stages import CommitBody, WriteBody
from topics.server.subscriptions import Start
from topics.server.tables import TableBody
from topics.server.watch import WatchBody

JOB = {"name": "j", "kind": "route", "state": "running"}
WRITE = {"topic": "a", "records": [{"data": 1}]}

# What is asked, what the body or a part of it is decoded into, the least that it must hold; where the part stands.
BODIES: list[tuple[str, str, type[Struct], dict[str, Any], Any]] = [
    ("PUT", "/v0/topics/a", ConfigChange, {}, None),
    ("POST", "/v0/topics/a/diff", DiffBody, {}, None),
    ("POST", "/v0/topics/a/delete", DeleteBody, {"before_seq": 1}, None),
    ("PUT", "/v0/routers/r", RouterBody, {"source": "a", "dest": "b"}, None),
    ("POST", "/v0/watch", WatchBody, {"topics": {"a": {}}}, None),
    ("POST", "/v0/watch", Start, {}, lambda part: {"topics": {"a": part}}),
    ("POST", "/v0/heads", HeadsBody, {"topics": {}}, None),
    ("POST", "/v0/topics/q/claim", ClaimBody, {"node": "w"}, None),
    ("POST", "/v0/topics/q/ack", SettleBody, {"node": "w", "seqs": [1]}, None),
    ("POST", "/v0/topics/q/nack", NackBody, {"node": "w", "seqs": [1]}, None),
    ("POST", "/v0/topics/q/extend", ExtendBody, {"node": "w", "seqs": [1], "lease_ms": 1000}, None),
    ("POST", "/v0/commits", CommitBody, {"writes": [WRITE]}, None),
    ("POST", "/v0/commits", WriteBody, WRITE, lambda part: {"writes": [part]}),
    ("POST", "/api/topics/consume", ConsumeBody, {"topic": "a", "group_id": "g"}, None),
    ("POST", "/api/topics/ack", AckBody, {"topic": "a", "group_id": "g", "upto_offset": 1}, None),
    ("POST", "/api/topics/seek", SeekBody, {"topic": "a", "group_id": "g", "to": "Earliest"}, None),
    ("POST", "/api/topics/leave", LeaveBody, {"topic": "a", "group_id": "g", "consumer_id": "c"}, None),
    ("POST", "/api/sql", SqlBody, {"sql": "SHOW TOPICS"}, None),
    ("PUT", "/api/tables/chat.messages", TableBody, {}, None),
    ("PUT", "/v0/topics/a/archive", ArchiveBody, {"uri": "s3://lake/a"}, None),
    ("POST", "/v0/topics/a/archive/progress", ProgressBody, {"partitions": []}, None),
    ("PUT", "/api/pipelines/main", Report, {"state": "running"}, None),
    ("PUT", "/api/pipelines/main", JobReport, JOB, lambda part: {"state": "running", "jobs": [part]}),
]
# These tell who or what is meant; one of them must be there.
MEANT = {"topic", "topic_id", "before_seq", "writes"}


def optional_fields(body: type[Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(body) if not field.required]


@pytest.mark.parametrize(
    ("method", "path", "kind", "least", "around"), BODIES, ids=[kind.__name__ for _, _, kind, *_ in BODIES]
)
@in_house()
async def test_null_is_taken_for_every_optional_field(
    house: House, method: str, path: str, kind: type[Struct], least: dict[str, Any], around: Any
) -> None:
    assert (await house.ask("PUT", "/v0/topics/q", {"type": "queue"})).status == 201
    for _ in range(2):
        assert (await house.ask("POST", "/v0/topics/a", {"records": [{"data": 1}]})).status < 300
    joined = await house.ask("POST", "/api/topics/ack", {"topic": "a", "group_id": "g", "upto_offset": 1})
    assert joined.status == 200
    if kind is ProgressBody:
        assert (await house.ask("PUT", "/v0/topics/a/archive", {"uri": "s3://lake/a"})).status == 201
    wrap = around or (lambda body: body)
    whole = await house.ask(method, path, wrap(least))
    assert whole.status < 300, whole.json
    names = [name for name in optional_fields(kind) if name not in MEANT & least.keys()]
    for nulls in [*[[name] for name in names], names]:
        answer = await house.ask(method, path, wrap({**least, **dict.fromkeys(nulls)}))
        assert answer.status < 300, (nulls, answer.json)
        assert answer.json.keys() == whole.json.keys()


@in_house()
async def test_null_keeps_what_a_topic_has_and_clears_what_null_is_a_value_of(house: House) -> None:
    queue = {"type": "queue", "ttl_ms": 60_000, "durability": "fsync", "priority": 5, "dead_letter": "dead"}
    before = (await house.ask("PUT", "/v0/topics/q", queue)).json["config"]
    nulls = dict.fromkeys(optional_fields(ConfigChange))
    after = (await house.ask("PUT", "/v0/topics/q", nulls)).json["config"]
    assert after == {**before, "priority": None, "dead_letter": None}


@in_house()
async def test_null_is_the_default_of_a_read(house: House) -> None:
    await house.ask("POST", "/v0/topics/a", {"records": [{"data": 1, "tag": "t", "meta": {"m": 1}}]})
    nulls = dict.fromkeys(optional_fields(DiffBody))
    plain, given = [(await house.ask("POST", "/v0/topics/a/diff", body)).json for body in ({}, nulls)]
    del plain["performance"], given["performance"]
    assert plain == given
    assert "meta" in given["records"][0]
    assert "$tag" not in given["records"][0]


@in_house()
async def test_null_for_a_required_field_and_wrong_types_are_refused(house: House) -> None:
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    for path, body, field in [
        ("/v0/topics/q/claim", {"node": None, "max": None}, "node"),
        ("/v0/topics/q/extend", {"node": "w", "seqs": [1], "lease_ms": None}, "lease_ms"),
        ("/v0/topics/q/diff", {"limit": None, "wait_ms": "5"}, "wait_ms"),
        ("/v0/watch", {"topics": None}, "topics"),
        ("/v0/watch", {"topics": {"q": None}}, "topics"),
    ]:
        answer = await house.ask("POST", path, body)
        assert (answer.status, error_of(answer)["code"]) == (400, "invalid_request")
        assert field in error_of(answer)["message"]


def test_a_subscribe_over_a_socket_takes_null_where_a_watch_does() -> None:
    """Decoded by the same function as bodies."""
    from topics.server.bodies import decode

    decoder = msgspec.json.Decoder(_Subscribe)
    nulls = msgspec.json.encode(dict.fromkeys(optional_fields(_Subscribe)))
    assert decode(nulls, decoder) == _Subscribe()


@in_house()
async def test_changes_of_a_table_take_null_too(house: House) -> None:
    event = {"op": "insert", "key": {"id": 1}, "after": {"id": 1}}
    body = {"changes": [event], "source": None, "key_columns": None}
    answer = await house.ask("POST", "/api/tables/chat.messages/changes", body)
    assert (answer.status, answer.json["appended"]) == (200, 1), answer.json
