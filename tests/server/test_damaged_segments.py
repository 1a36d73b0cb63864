"""Records damaged on disk: whoever reads them is told, and everybody else of the same moment is served."""

import asyncio
import errno

import pytest

from tests.server.house import House, error_of, in_house, raw


async def until_sealed(house: House) -> None:
    for _ in range(1000):
        if house.broker.keeper.seals_total and house.broker.committer.idle:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("nothing was sealed")


async def damaged(house: House, name: str) -> None:
    """The topic's records are sealed and then changed on disk, unseen by anybody so far."""
    await house.ask("PUT", f"/v0/topics/{name}", {"durability": "disk"})
    await house.ask("POST", f"/v0/topics/{name}", {"records": [{"data": "needle"}] * 5})
    topic = house.broker.topic(name)
    house.broker.keeper.seal(topic, topic.partitions[0])
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
    for _ in range(1000):
        if house.broker.polls:
            break
        await asyncio.sleep(0.001)
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": "new"}]})
    answer = await waiting.answer()
    assert [record["data"] for record in answer.json["records"]] == ["new"]
    assert "live reader" in (house.broker.keeper.last_error or "")


@in_house()
async def test_a_group_is_told_of_a_gap_although_the_log_takes_nothing_more(house: House) -> None:
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
