"""Dedicated decoders take what the declaration takes, and refuse what it refuses: every field, types and limits.

For every field of the declared body, and of its records, each value of `VALUES` is sent. What the declared type does not accept
gets 400; what it accepts is not refused for its type.
"""

import json
from typing import Any

import msgspec
import pytest

from tests.server.house import House, in_house, raw
from topics.api.live import PublishMessage
from topics.api.operation import Operation
from topics.api.operations import BY_NAME
from topics.api.tables.tables import ChangesBody
from topics.broker.topics.feed import Feed
from topics.model.records.batch import AppendBody, AppendRecord, Batch, decode_batch
from topics.model.records.large_batch import LARGE_BODY_BYTES
from topics.model.steps import finish
from topics.model.tables.change import Defaults, decode_changes, decode_large_changes
from topics.server import handlers
from topics.server.auth.authorization import EVERYONE
from topics.server.auth.permissions import Access
from topics.server.live.commands import Commands
from topics.server.operations import DECODERS, FACTORIES
from topics.server.service import Service
from topics.testing.broker import BrokerBench

for name in BY_NAME:
    handlers.register(name)

VALUES: list[Any] = [None, True, 0, 5, -1, 1.5, 2**31, 2**31 + 1, "x", "", [], ["x"], [1], [[]], {}, {"a": 1}]
# The body that a value is put into, by operation. The record of the large ones is larger than what is decoded at once.
LARGE = "x" * LARGE_BODY_BYTES
BODIES: dict[str, tuple[str, Any]] = {
    "append": ("/v0/topics/t", {"records": [{"data": 1}]}),
    "append, large": ("/v0/topics/t", {"records": [{"data": LARGE}, {"data": 1}]}),
    "diff": ("/v0/topics/t/diff", {}),
    "claim": ("/v0/topics/q/claim", {"node": "w"}),
    "ack": ("/v0/topics/q/ack", {"node": "w", "seqs": [1]}),
    "post_stage": ("/v0/stages?topic=t", {"records": [{"data": 1}]}),
    "post_stage, large": ("/v0/stages?topic=t", {"records": [{"data": LARGE}]}),
    "post_commit": ("/v0/commits", {"writes": [{"topic": "t", "records": [{"data": 1}]}]}),
    "post_commit, large": ("/v0/commits", {"writes": [{"topic": "t", "records": [{"data": LARGE}]}]}),
}
# Its body may also be a list of events or one event, and events that are not valid are reported in the response.
EXCEPT = {"post_changes"}


def test_every_operation_with_a_decoder_of_its_own_is_tried() -> None:
    assert {name.partition(",")[0] for name in BODIES} | EXCEPT == set(DECODERS) | set(FACTORIES)


def variants(operation: Operation, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The body with each value in each field, and the same for the fields of its first record and write."""
    assert operation.body is not None
    found = [
        {**body, field: value} for field in [*operation.body.__struct_encode_fields__, "unknown"] for value in VALUES
    ]
    for field in AppendRecord.__struct_encode_fields__ if "records" in body else ():
        records = body["records"]
        found += [{**body, "records": [*records[:-1], {**records[-1], field: value}]} for value in VALUES]
    for write in body.get("writes", ()):
        for field in ("topic", "records", "node", "partition", "partition_key", "create"):
            found += [{**body, "writes": [{**write, field: value}]} for value in VALUES]
    return found


@pytest.mark.parametrize("case", BODIES)
@in_house()
async def test_decoder_agrees_with_the_declaration(house: House, case: str) -> None:
    operation = BY_NAME[case.partition(",")[0]]
    path, body = BODIES[case]
    declared = msgspec.json.Decoder(operation.body)
    # Long waits would be long.
    house.broker.limits = msgspec.structs.replace(house.broker.limits, max_wait_ms=1)
    await house.ask("PUT", "/v0/topics/t", {})
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    client = await house.connect()
    disagree = []
    for variant in variants(operation, body):
        text = json.dumps(variant).encode()
        try:
            declared.decode(text)
            accepted = True
        except msgspec.ValidationError:
            accepted = False
        answer = await client.ask(raw(operation.method, path, text))
        refusal = answer.json["error"] if answer.status >= 400 else {"code": "", "message": ""}
        refused_for_type = refusal["code"] == "invalid_request" and refusal["message"].startswith(
            ("Expected", "Object")
        )
        if (not accepted and refusal["code"] != "invalid_request") or (accepted and refused_for_type):
            disagree.append((text[-200:], accepted, answer.status, refusal))
    assert disagree == []


# Values of the fields of an append that differ from the defaults.
APPEND_VALUES: dict[str, Any] = {
    "node": "n",
    "idempotency_key": "k",
    "create": True,
    "config": {"ttl_ms": 5},
    "disable_backpressure": True,
    "partition": 3,
    "partition_key": "p",
}
RECORD_VALUES: dict[str, Any] = {"data": [1], "tag": "t", "node": "m", "meta": {"a": 1}, "delay_ms": 7}


def test_every_field_of_an_append_has_a_value_to_compare() -> None:
    assert set(APPEND_VALUES) == set(AppendBody.__struct_encode_fields__) - {"records"}
    assert set(RECORD_VALUES) == set(AppendRecord.__struct_encode_fields__)


PUBLISHES = [
    {"records": [{"data": 1}]},
    *[{"records": [{"data": 1}], name: value} for name, value in APPEND_VALUES.items()],
    *[{"records": [{"data": 1}, {"data": 2, name: value}]} for name, value in RECORD_VALUES.items()],
]


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("body", PUBLISHES, ids=lambda body: ",".join([*body, *body["records"][-1]]))
def test_a_publish_has_the_values_of_an_append(
    body: dict[str, Any], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = BrokerBench()
    written: list[tuple[str, Batch]] = []
    monkeypatch.setattr(
        type(bench.broker), "append", lambda _broker, name, batch, _reply: written.append((name, batch))
    )
    service = Service()
    commands = Commands(
        Access(service, bench.broker, EVERYONE), Feed(bench.broker), lambda _: None, lambda: None, lambda: None
    )
    if large:
        body = {**body, "records": [*body["records"], {"data": LARGE}]}
    message = json.dumps({**body, "op": "publish", "topic": "t", "return_seqs": False}).encode()
    assert (len(message) >= LARGE_BODY_BYTES) is large
    commands.add(message)
    bench.runtime.run()
    declared = msgspec.json.decode(message, type=PublishMessage)
    ((name, batch),) = written
    assert name == declared.topic
    expected = decode_batch(json.dumps(body).encode(), bench.broker.limits)
    for field in ("count", "key", "create", "config", "disable_backpressure", "partition", "partition_key", "delays"):
        assert getattr(batch, field) == getattr(expected, field), field
    for column in ("data", "metas", "nodes", "tags"):
        values = [getattr(part, column) for part in batch.parts()]
        assert [getattr(part, column) for part in expected.parts()] == values, column


CHANGES = [{"op": "insert", "key": {"id": number}, "after": {"id": number}} for number in range(3)]


@pytest.mark.parametrize("fields", [{}, {"source": "s"}, {"key_columns": ["id"]}], ids=str)
def test_changes_have_the_same_values_in_small_and_large_bodies(fields: dict[str, Any]) -> None:
    events: list[dict[str, Any]] = CHANGES
    if "key_columns" in fields:
        events = [{"op": "insert", "after": event["after"]} for event in CHANGES]
    text = json.dumps({"changes": events, **fields}).encode()
    declared = msgspec.json.decode(text, type=ChangesBody)
    defaults = Defaults(5, (), "", 1 << 20)
    small = decode_changes(text, defaults, 100)
    assert len(small.changes) == len(declared.changes)
    assert small.refused == []
    assert [json.loads(msgspec.json.encode(change.key)) for change in small.changes] == [
        event["after"] for event in events
    ]
    assert {change.source for change in small.changes} == {declared.source}
    large = finish(decode_large_changes(text, defaults, 100))
    assert (large.refused, large.tombstones) == (small.refused, small.tombstones)
    assert msgspec.json.encode(large.changes) == msgspec.json.encode(small.changes)
