"""Reads that leave out the reader's own records: answered in one call however many there are, without delaying other requests."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.server.house import House, in_house, raw
from tests.server.http.wire import until
from topics.engine.partitions import reading
from topics.model.config import ConfigChange

RECORDS = 100_000
BATCH = 10_000
# Of processor time, which does not depend on what else the machine does. A step takes 2 ms; what a test does itself, 5.
MAX_GAP_MS = 15


async def fill(house: House, name: str, *, sealed: bool, nodes: int = 1) -> None:
    """RECORDS records of the nodes own0, own1, ..."""
    await house.ask("PUT", f"/v0/topics/{name}", {"durability": "memory"})
    records = [{"data": number, "node": f"own{number % nodes}"} for number in range(BATCH)]
    for _ in range(RECORDS // BATCH):
        assert (await house.ask("POST", f"/v0/topics/{name}?return_seqs=false", {"records": records})).status == 200
    if sealed:
        topic = house.broker.topic(name)
        house.broker.sealer.seal(topic, topic.partitions[0])
        await until(lambda: all([segment.sealed for segment in topic.partitions[0].segments]))


class Gaps:
    """How much processor time the loop spent before it ran anything else."""

    longest_ms = 0.0


@asynccontextmanager
async def probed() -> AsyncIterator[Gaps]:
    gaps = Gaps()

    async def probe() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            gaps.longest_ms = max(gaps.longest_ms, (time.thread_time() - before) * 1000)

    task = asyncio.create_task(probe())
    await asyncio.sleep(0.01)
    gaps.longest_ms = 0.0
    yield gaps
    task.cancel()


def during_a_scan(house: House, action: Callable[[], None]) -> None:
    """Do this between the first steps of the next read that takes several."""

    def look() -> None:
        if house.broker.polls:
            action()
        else:
            house.broker.slices.add(look)

    house.broker.slices.add(look)


SEALED = pytest.mark.parametrize("sealed", [False, True], ids=["hot", "sealed"])
NODES = pytest.mark.parametrize("nodes", [1, 7], ids=["one node", "many nodes"])


@SEALED
@NODES
@in_house(MAX_BODY_BYTES="10000000")
async def test_a_topic_of_own_records_is_passed_in_one_call_without_holding_up_the_loop(
    house: House, sealed: bool, nodes: int
) -> None:
    await fill(house, "a", sealed=sealed, nodes=nodes)
    own = [f"own{number}" for number in range(nodes)]
    async with probed() as gaps:
        page = (await house.ask("POST", "/v0/topics/a/diff", {"limit": 1, "node": own})).json
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], RECORDS, True)
    assert page["performance"]["records_scanned"] == RECORDS
    assert gaps.longest_ms < MAX_GAP_MS
    await house.ask("POST", "/v0/topics/a", {"records": [{"data": "other", "node": "other"}]})
    page = (await house.ask("POST", "/v0/topics/a/diff", {"limit": 1, "node": own})).json
    assert ([record["data"] for record in page["records"]], page["caught_up"]) == (["other"], True)


@SEALED
@in_house(MAX_BODY_BYTES="10000000")
async def test_live_readers_pass_own_records_without_holding_up_the_loop(house: House, sealed: bool) -> None:
    await fill(house, "a", sealed=sealed)
    host, port = house.address
    made = await house.ask("POST", "/v0/watch", {"topics": {"a": {}}, "node": "own0"})
    async with probed() as gaps:
        stream = await house.connect()
        await stream.send(raw("GET", made.json["stream_url"]))
        await stream.head()
        async with connect(f"ws://{host}:{port}/v0/ws") as socket:
            await socket.send(json.dumps({"op": "subscribe", "topic": "a", "from_seq": 0, "node": "own0"}))
            pushed = json.loads(await socket.recv())
            assert pushed["op"] == "subscribed"
            pushed = json.loads(await socket.recv())
            while b"caught-up" not in (chunk := await stream.chunk()):
                assert b"event: record" not in chunk
    assert (pushed["op"], pushed["head_seq"]) == ("caught_up", RECORDS)
    assert gaps.longest_ms < MAX_GAP_MS


@in_house(MAX_BODY_BYTES="10000000")
async def test_many_filtered_reads_at_once_share_the_steps(house: House) -> None:
    await fill(house, "a", sealed=False, nodes=7)
    asked: dict[str, Any] = {"node": [f"own{number}" for number in range(7)]}
    async with probed() as gaps:
        pages = await asyncio.gather(*[house.ask("POST", "/v0/topics/a/diff", asked) for _ in range(5)])
    assert [page.json["caught_up"] for page in pages] == [True] * 5
    assert gaps.longest_ms < MAX_GAP_MS


@in_house(MAX_BODY_BYTES="10000000")
async def test_a_long_poll_passes_own_records_and_then_waits(house: House) -> None:
    await fill(house, "a", sealed=False)
    asked = asyncio.create_task(house.ask("POST", "/v0/topics/a/diff", {"node": "own0", "wait_ms": 20_000}))
    await until(lambda: bool(house.broker.watchers))
    await house.ask("POST", "/v0/topics/a", {"records": [{"data": 1, "node": "own0"}]})
    await house.ask("POST", "/v0/topics/a", {"records": [{"data": 2, "node": "other"}]})
    page = (await asked).json
    assert ([record["data"] for record in page["records"]], page["next_from_seq"]) == ([2], RECORDS + 2)


@in_house(MAX_BODY_BYTES="10000000")
async def test_a_scan_that_is_under_way_when_the_time_is_up_answers_how_far_it_has_come(house: House) -> None:
    await fill(house, "a", sealed=False)
    page = (await house.ask("POST", "/v0/topics/a/diff", {"node": "own0", "wait_ms": 1})).json
    assert page["records"] == []
    assert 0 < page["next_from_seq"] <= RECORDS
    assert page["caught_up"] is (page["next_from_seq"] == RECORDS)


@in_house(MAX_BODY_BYTES="10000000")
async def test_a_topic_deleted_during_a_scan_is_not_found(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(house, "a", sealed=False, nodes=7)
    # One record in a step: the scan takes far longer than the change.
    monkeypatch.setattr(reading, "MAX_SCAN_BYTES", 1)
    client = await house.connect()
    nodes = [f"own{number}" for number in range(7)]
    during_a_scan(house, lambda: house.broker.delete_topic("a", if_empty=False, reply=lambda outcome: None))
    await client.send(raw("POST", "/v0/topics/a/diff", {"node": nodes}))
    assert (await client.answer()).status == 404


@in_house(MAX_BODY_BYTES="10000000")
async def test_records_evicted_during_a_scan_are_reported(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(house, "a", sealed=False, nodes=7)
    # One record in a step: the scan takes far longer than the change.
    monkeypatch.setattr(reading, "MAX_SCAN_BYTES", 1)
    client = await house.connect()
    nodes = [f"own{number}" for number in range(7)]
    during_a_scan(house, lambda: house.broker.configure("a", ConfigChange(cap_records=10), lambda outcome: None))
    await client.send(raw("POST", "/v0/topics/a/diff", {"node": nodes}))
    page = (await client.answer()).json
    lost = page["tombstone"]
    assert (lost["gap_to"], lost["reason"]) == (RECORDS - 10, "cap")
    assert 1 < lost["gap_from"] < lost["gap_to"]
    assert page["next_from_seq"] == RECORDS
