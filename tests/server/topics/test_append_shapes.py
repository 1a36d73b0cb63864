"""Single appends of every shape share one group and are answered together, each as if it were alone."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.house import House, in_house
from tests.server.topics.test_pending_appends import Writers, numbered
from topics.model.errors import TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import Batch, decode_batch, decode_singles
from topics.model.records.page import SEPARATOR

WRITERS = 8


def record(number: int, **fields: Any) -> dict[str, Any]:
    return {"records": [{"data": number, **fields}]}


# Configuration of the topic, query of the request, body of writer number n, and the fields of its record.
SHAPES: dict[str, tuple[dict[str, Any], str, Any, Any]] = {
    "tag and node": ({}, "", lambda n: record(n, tag=f"t{n}", node="web"), lambda n: {"$tag": f"t{n}", "$node": "web"}),
    "some with a tag": (
        {},
        "",
        lambda n: record(n, tag="t") if n % 2 else record(n),
        lambda n: {"$tag": "t"} if n % 2 else {},
    ),
    "meta": ({}, "", lambda n: record(n, meta={"trace": n}), lambda n: {"meta": {"trace": n}}),
    "node of the batch": ({}, "", lambda n: {**record(n), "node": "web"}, lambda n: {"$node": "web"}),
    "without seqs": ({}, "?return_seqs=false", record, lambda n: {}),
    "capped topic": ({"cap_records": 100}, "", record, lambda n: {}),
    "topic with an age": ({"ttl_ms": 600_000}, "", record, lambda n: {}),
    "idempotency key": ({}, "", lambda n: {**record(n), "idempotency_key": f"k{n}"}, lambda n: {}),
    "everything": (
        {"cap_records": 100, "ttl_ms": 600_000},
        "?return_seqs=false",
        lambda n: {**record(n, tag=f"t{n}", meta={"n": n}), "node": "web", "idempotency_key": f"k{n}"},
        lambda n: {"$tag": f"t{n}", "$node": "web", "meta": {"n": n}},
    ),
}


async def records_of(house: House, topic: str) -> list[dict[str, Any]]:
    body = {"from_seq": 0, "limit": 1000, "include_tags": True, "include_nodes": True, "include_meta": True}
    return (await house.ask("POST", f"/v0/topics/{topic}/diff", body)).json["records"]


@pytest.mark.parametrize("shape", SHAPES)
def test_writes_of_one_turn_are_one_frame_and_each_response_has_its_own_seq(shape: str) -> None:
    config, query, body, fields = SHAPES[shape]

    @in_house()
    async def run(house: House) -> None:
        await house.ask("PUT", "/v0/topics/t", config)
        writers = await Writers(house, WRITERS, f"t{query}").settle_in()
        alone = (await house.ask("POST", f"/v0/topics/t{query}", numbered(0))).json
        frames = house.broker.committer.frames_total
        answers = await writers.turn(*[body(number) for number in range(WRITERS)])
        assert not writers.handled
        assert house.broker.committer.frames_total == frames + 1
        found = {each["$seq"]: each for each in await records_of(house, "t")}
        for number, answer in enumerate(answers):
            assert answer.status == 200
            assert answer.json.keys() == alone.keys()
            seq = answer.json["first_seq"]
            assert answer.json["last_seq"] == seq
            assert answer.json.get("seqs", [seq]) == [seq]
            assert found[seq]["data"] == number
            assert {name: found[seq][name] for name in ("$tag", "$node", "meta") if found[seq].get(name)} == fields(
                number
            )

    run()


def test_a_repeated_key_gets_the_seq_of_the_first_write() -> None:
    @in_house()
    async def run(house: House) -> None:
        writers = await Writers(house, WRITERS).settle_in()
        bodies = [{**record(number), "idempotency_key": f"k{number}"} for number in range(WRITERS)]
        first = await writers.turn(*bodies)
        await writers.settle_in()
        again = await writers.turn(*bodies)
        assert [answer.json["seqs"] for answer in again] == [answer.json["seqs"] for answer in first]
        assert {answer.json["deduped"] for answer in first} == {False}
        assert {answer.json["deduped"] for answer in again} == {True}
        # The same key twice in one turn: one write, two equal responses.
        await writers.settle_in()
        twice = await writers.turn(*[{**record(7), "idempotency_key": "same"}] * WRITERS)
        assert len({answer.json["first_seq"] for answer in twice}) == 1
        assert [answer.json["deduped"] for answer in twice].count(False) == 1

    run()


def test_a_capped_topic_holds_exactly_its_cap_after_each_turn() -> None:
    @in_house()
    async def run(house: House) -> None:
        await house.ask("PUT", "/v0/topics/t", {"cap_records": 5})
        writers = await Writers(house, WRITERS).settle_in()
        answers = await writers.turn(*[record(number) for number in range(WRITERS)])
        head = answers[0].json["head_seq"]
        page = (await house.ask("POST", "/v0/topics/t/diff", {"from_seq": head - 5})).json
        assert [each["data"] for each in page["records"]] == [3, 4, 5, 6, 7]
        assert (await house.ask("GET", "/v0/topics/t")).json["count"] == 5

    run()


TEXT = st.none() | st.text(max_size=6) | st.sampled_from(["null", "\\u0041", '"', "é", "x" * 300])
FIELDS = st.fixed_dictionaries(
    {"data": st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(['"tag":', '{"data":1}'])},
    optional={
        "tag": TEXT,
        "node": TEXT,
        "meta": st.none() | st.integers() | st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
        "delay_ms": st.integers(0, 5),
        "unknown": st.integers(),
    },
)
BODIES = st.builds(
    lambda records, rest, ascii_only: json.dumps({"records": records, **rest}, ensure_ascii=ascii_only).encode(),
    st.lists(FIELDS, min_size=0, max_size=2),
    st.fixed_dictionaries(
        {}, optional={"node": TEXT, "idempotency_key": TEXT, "partition": st.integers(0, 1), "create": st.booleans()}
    ),
    st.booleans(),
)


def column(batches: list[Batch], name: str) -> list[bytes]:
    texts: list[bytes] = []
    for batch in batches:
        text: bytes | None = getattr(batch, name)
        texts += [b""] * batch.count if text is None else text.split(SEPARATOR)
    return texts


@given(st.lists(BODIES, min_size=1, max_size=5))
@settings(max_examples=400)
def test_bodies_decoded_together_are_what_each_is_alone(bodies: list[bytes]) -> None:
    limits = Limits()
    together = decode_singles(bodies, limits)
    try:
        alone = [decode_batch(body, limits) for body in bodies]
    except TopicsError:
        assert together is None
        return
    if together is None:
        return
    assert together.count == len(bodies)
    assert all([batch.joins and batch.count == 1 for batch in alone])
    for name in ("data", "metas", "nodes", "tags"):
        assert column([together], name) == column(alone, name)
    assert together.size == sum([batch.size for batch in alone])
    assert (together.keys or [None] * len(bodies)) == [batch.key for batch in alone]
