"""Dedicated decoders take what the declaration takes, and refuse what it refuses: every field, types and limits.

For every field of the declared body, and of its records, each value of `VALUES` is sent. What the declared type does not accept
gets 400; what it accepts is not refused for its type.
"""

import json
from typing import Any

import msgspec
import pytest

from tests.server.house import House, in_house, raw
from topics.api.operation import Operation
from topics.api.operations import BY_NAME
from topics.model.batch import AppendRecord
from topics.model.large_batch import LARGE_BODY_BYTES
from topics.server import handlers
from topics.server.operations import DECODERS, FACTORIES

handlers.register()

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
