"""Damaged segments: reads of them get corrupt_storage; other requests of the same turn succeed."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.server.house import House, error_of, in_house, raw
from tests.server.http.wire import until


async def until_sealed(house: House) -> None:
    await until(lambda: house.broker.sealer.seals_total and house.broker.committer.idle)


async def damaged(house: House, name: str) -> None:
    """The topic's records are sealed and then changed on disk, and not read since."""
    await house.ask("PUT", f"/v0/topics/{name}", {"durability": "disk"})
    await house.ask("POST", f"/v0/topics/{name}", {"records": [{"data": "needle"}] * 5})
    topic = house.broker.topic(name)
    house.broker.sealer.seal(topic, topic.partitions[0])
    await until_sealed(house)
    for path, content in house.disk.snapshot_tree().items():
        if path.endswith(".arrow"):
            file = house.disk.open(path)
            file.write_at(content.index(b"needle"), [b"NEEDLE"])
            file.close()


FIRST_POLLS = {
    "consume": ("/api/topics/consume", {"topic": "t", "group_id": "g", "timeout_seconds": 0}),
    "sql": ("/v1/api/sql", {"sql": "CONSUME FROM t GROUP 'g' FROM EARLIEST LIMIT 5"}),
}


@pytest.mark.parametrize("kind", list(FIRST_POLLS))
@in_house()
async def test_a_first_poll_of_damaged_records_is_refused_and_a_write_of_its_turn_is_answered(
    house: House, kind: str
) -> None:
    await damaged(house, "t")
    await house.ask("PUT", "/v0/topics/other", {"durability": "disk"})
    path, body = FIRST_POLLS[kind]
    # Both in one turn and one write of the log: the pin of the group's position, and the record behind it.
    client = await house.connect()
    other = await house.connect()
    client.writer.write(raw("POST", path, body))
    other.writer.write(raw("POST", "/v0/topics/other", {"records": [{"data": 1}]}))
    refused, written = await asyncio.gather(client.answer(), other.answer())
    assert (refused.status, error_of(refused)["code"]) == (500, "corrupt_storage")
    assert (written.status, written.json["last_seq"]) == (200, 1)


@in_house()
async def test_a_live_reader_of_damaged_records_does_not_keep_others_from_being_woken(house: House) -> None:
    await damaged(house, "t")
    session = await house.ask("POST", "/v0/watch", {"topics": {"t": {"from_seq": 0}}})
    stream = await house.connect()
    stream.writer.write(raw("GET", session.json["stream_url"]))
    assert (await stream.head())[0] == 200
    waiting = await house.connect()
    waiting.writer.write(raw("POST", "/v0/topics/t/diff", {"from_seq": 5, "wait_ms": 60_000}))
    await until(lambda: house.broker.polls)
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": "new"}]})
    answer = await waiting.answer()
    assert [record["data"] for record in answer.json["records"]] == ["new"]
    assert [condition.kind for condition in house.broker.health.conditions] == ["damaged_file"]


@in_house()
async def test_a_group_gets_a_tombstone_although_the_log_takes_no_more_writes(house: House) -> None:
    await house.ask("PUT", "/v0/topics/t", {"durability": "disk", "ttl_ms": 60_000})
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}, {"data": 2}]})
    poll = {"topic": "t", "group_id": "g", "timeout_seconds": 0}
    assert len((await house.ask("POST", "/api/topics/consume", poll)).json["messages"]) == 2
    house.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    assert (await house.ask("PUT", "/v0/topics/u", {})).status == 503
    topic = house.broker.topic("t")
    house.runtime.now_ms = lambda: topic.partitions[0].last_ts + 60_001  # type: ignore[method-assign]
    for _ in range(2):
        answer = await house.ask("POST", "/api/topics/consume", poll)
        assert (answer.status, answer.json["messages"]) == (200, [])
        assert answer.json["tombstone"]["gap_to"] == 2


# A segment of three batches, of which the second is damaged.
BATCH = 4096
FIRST, LAST = BATCH + 1, 2 * BATCH
RANGE = {"topic": "t", "partition": 0, "first_seq": FIRST, "last_seq": LAST}
ARROW = ("Accept: application/vnd.apache.arrow.stream",)


async def damaged_in_the_middle(house: House, **config: Any) -> str:
    """Topic `t` has records 1 to 12288 in one segment. Answers the segment's file."""
    await house.ask("PUT", "/v0/topics/t", {"durability": "disk", **config})
    for number in range(3):
        datas = [{"data": n} for n in range(number * BATCH + 1, (number + 1) * BATCH + 1)]
        if number == 1:
            datas[100]["data"] = "needle"
        assert (await house.ask("POST", "/v0/topics/t", {"records": datas})).status == 200
    topic = house.broker.topic("t")
    house.broker.sealer.seal(topic, topic.partitions[0])
    await until_sealed(house)
    (path,) = [path for path in house.disk.snapshot_tree() if path.endswith(".arrow")]
    file = house.disk.open(path)
    file.write_at(house.disk.snapshot_tree()[path].index(b"needle"), [b"NEEDLE"])
    file.close()
    house.broker.state.segment_cache.close()
    return path


async def read_json(house: House, from_seq: int) -> tuple[list[int], int]:
    answer = await house.ask("POST", "/v0/topics/t/diff", {"from_seq": from_seq, "limit": 10_000})
    if answer.status != 200:
        raise Refused(error_of(answer))
    return [record["$seq"] for record in answer.json["records"]], answer.json["next_from_seq"]


async def read_arrow(house: House, from_seq: int) -> tuple[list[int], int]:
    answer = await house.ask("POST", "/v0/topics/t/diff", {"from_seq": from_seq, "limit": 10_000}, headers=ARROW)
    if answer.status != 200:
        raise Refused(error_of(answer))
    table = pa.ipc.open_stream(answer.body).read_all()
    return table.column("seq").to_pylist(), json.loads(table.schema.metadata[b"next_from_seq"])


async def consume(house: House, from_seq: int) -> tuple[list[int], int]:
    body = {"topic": "t", "group_id": f"g{from_seq}", "start": {"Offset": from_seq + 1}, "limit": 10_000}
    answer = await house.ask("POST", "/api/topics/consume", {**body, "timeout_seconds": 0})
    if answer.status != 200:
        raise Refused(error_of(answer))
    seqs = [message["offset"] for message in answer.json["messages"]]
    return seqs, seqs[-1]


class Refused(Exception):
    """An error response; its first argument is the error."""


@pytest.mark.parametrize("read", [read_json, read_arrow, consume])
@in_house()
async def test_records_around_a_damaged_range_are_served_and_the_range_answers_corrupt_storage(
    house: House, read: Callable[[House, int], Awaitable[tuple[list[int], int]]]
) -> None:
    path = await damaged_in_the_middle(house)
    cursor, seqs = 0, []
    while cursor < FIRST - 1:
        some, cursor = await read(house, cursor)
        seqs += some
    assert (seqs, cursor) == ([*range(1, FIRST)], FIRST - 1)
    for inside in (cursor, FIRST, LAST - 1):
        with pytest.raises(Refused) as refused:
            await read(house, inside)
        error = refused.value.args[0]
        assert error["code"] == "corrupt_storage"
        assert error["detail"].items() >= {**RANGE, "file": path}.items()
        assert f'records {FIRST} to {LAST} of topic "t"' in error["message"]
    some, cursor = await read(house, LAST)
    assert some[:2] == [LAST + 1, LAST + 2]
    assert cursor > LAST
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": "new"}]})
    assert (await read(house, 3 * BATCH))[0] == [3 * BATCH + 1]


@in_house()
async def test_damage_is_named_by_readiness_and_metrics_once_it_is_met(house: House) -> None:
    path = await damaged_in_the_middle(house)
    assert (await house.ask("GET", "/v0/ready")).json["degraded"] is False
    await house.ask("POST", "/v0/topics/t/diff", {"from_seq": FIRST, "limit": 1})
    await house.ask("POST", "/v0/topics/t/diff", {"from_seq": FIRST, "limit": 1})
    (reason,) = (await house.ask("GET", "/v0/ready")).json["reasons"]
    assert reason["condition"] == "damaged_file"
    assert path in reason["reason"]
    assert f"records {FIRST} to {LAST} cannot be read" in reason["reason"]
    metrics = (await house.ask("GET", "/v0/metrics")).body.decode()
    assert f'topics_damaged_range{{file="{path}",first_seq="{FIRST}",last_seq="{LAST}"}} 1' in metrics
    assert 'topics_degraded_conditions{condition="damaged_file"} 1' in metrics


@in_house()
async def test_delete_that_takes_the_damaged_segment_as_a_whole_ends_the_condition(house: House) -> None:
    await damaged_in_the_middle(house)
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": "new"}]})
    refused = await house.ask("POST", "/v0/topics/t/delete", {"before_seq": FIRST + 10})
    assert (refused.status, error_of(refused)["code"]) == (500, "corrupt_storage")
    assert (await house.ask("GET", "/v0/ready")).json["degraded"] is True
    taken = await house.ask("POST", "/v0/topics/t/delete", {"before_seq": 3 * BATCH + 1})
    assert (taken.status, taken.json["deleted"]) == (200, 3 * BATCH)
    assert (await house.ask("GET", "/v0/ready")).json["degraded"] is False
    left = await house.ask("GET", "/v0/topics/t")
    assert (left.json["count"], left.json["earliest_seq"]) == (1, 3 * BATCH + 1)


@in_house()
async def test_jobs_beside_damaged_ones_can_be_claimed(house: House) -> None:
    await damaged_in_the_middle(house, type="queue", lease_ms=60_000)

    async def claim(node: str, most: int) -> Any:
        return await house.ask("POST", "/v0/topics/t/claim", {"node": node, "max": most})

    left = BATCH - 2
    while left:
        left -= len((await claim("a", min(left, 1000))).json["claimed"])
    refused = await claim("b", 10)
    assert (refused.status, error_of(refused)["code"]) == (500, "corrupt_storage")
    assert error_of(refused)["detail"].items() >= RANGE.items()
    # The two jobs that can be read are not held back by the eight that cannot.
    again = await claim("c", 2)
    assert [(job["$seq"], job["deliveries"]) for job in again.json["claimed"]] == [(BATCH - 1, 1), (BATCH, 1)]
