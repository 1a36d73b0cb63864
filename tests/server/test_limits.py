"""The caps of the whole server: exact under concurrency, and after a restart."""

import asyncio

import pytest

from tests.server.house import House, error_of, in_house

RECORDS = {"records": [{"data": "x" * 80}]}


async def statuses(house: House, *asks: tuple[str, str, object]) -> list[int]:
    answers = await asyncio.gather(*[house.ask(method, path, body) for method, path, body in asks])
    return sorted([answer.status for answer in answers])


@in_house(MAX_TOPICS="5")
async def test_topics_are_counted_exactly_however_many_are_created_at_once(house: House) -> None:
    puts = [("PUT", f"/v0/topics/p{number}", {}) for number in range(10)]
    writes = [("POST", f"/v0/topics/w{number}", RECORDS) for number in range(10)]
    found = await statuses(house, *puts, *writes)
    assert found == [201] * 5 + [429] * 15
    assert len(house.broker.state.topics) == 5


@in_house(MAX_TOPICS="2")
async def test_refusal_names_the_cap_and_existing_topics_go_on(house: House) -> None:
    for name in ("a", "b"):
        await house.ask("PUT", f"/v0/topics/{name}", {})
    answer = await house.ask("PUT", "/v0/topics/c", {})
    assert (answer.status, error_of(answer)["code"]) == (429, "throttled")
    assert error_of(answer)["detail"] == {"limit": "max_topics", "max": 2}
    assert int(answer.headers["retry-after"]) >= 1
    assert (await house.ask("PUT", "/v0/topics/a", {})).status == 200
    assert (await house.ask("PUT", "/v0/topics/a", {"ttl_ms": 5000})).status == 200
    assert (await house.ask("POST", "/v0/topics/b", RECORDS)).status == 200
    assert (await house.ask("POST", "/v0/topics/c", RECORDS)).status == 429
    await house.ask("DELETE", "/v0/topics/a")
    assert (await house.ask("POST", "/v0/topics/c", RECORDS)).status == 201


@in_house(MAX_TOPICS="2")
async def test_recovered_topics_count(house: House) -> None:
    for name in ("a", "b"):
        await house.ask("PUT", f"/v0/topics/{name}", {})
    house.recover()
    assert (await house.ask("PUT", "/v0/topics/c", {})).status == 429
    assert (await house.ask("PUT", "/v0/topics/a", {})).status == 200


@in_house(MAX_TOPICS="1")
async def test_creation_that_fails_gives_its_place_back(house: House) -> None:
    assert (
        await house.ask("POST", "/v0/topics/a", {"records": [{"data": 1}], "config": {"dead_letter": "a"}})
    ).status == 400
    assert (await house.ask("PUT", "/v0/topics/a", {"partitions": 0})).status == 400
    assert (await house.ask("PUT", "/v0/topics/b", {})).status == 201


async def size_of_one(house: House) -> int:
    await house.ask("POST", "/v0/topics/probe", RECORDS)
    size: int = (await house.ask("GET", "/v0/topics/probe")).json["bytes"]
    await house.ask("DELETE", "/v0/topics/probe")
    return size


@pytest.mark.parametrize("durability", ["fsync", "disk", "ephemeral"])
@in_house(MAX_TOTAL_BYTES="1000")
async def test_bytes_are_counted_exactly_however_many_writes_there_are_at_once(house: House, durability: str) -> None:
    size = await size_of_one(house)
    fitting = 1000 // size
    for name in ("a", "b"):
        await house.ask("PUT", f"/v0/topics/{name}", {"durability": durability})
    writes = [("POST", f"/v0/topics/{name}", RECORDS) for name in ("a", "b") for _ in range(fitting)]
    found = await statuses(house, *writes)
    assert found == [200] * fitting + [429] * fitting
    assert house.broker.state.totals.bytes == fitting * size


@in_house(MAX_TOTAL_BYTES="1000")
async def test_bytes_of_topics_being_created_count_too(house: House) -> None:
    size = await size_of_one(house)
    fitting = 1000 // size
    found = await statuses(house, *[("POST", f"/v0/topics/new{number}", RECORDS) for number in range(2 * fitting)])
    assert found == [201] * fitting + [429] * fitting
    assert len(house.broker.state.topics) == fitting, "a refused write leaves no topic behind"


@in_house(MAX_TOTAL_BYTES="1000")
async def test_refusal_names_the_quota_and_deleting_makes_room(house: House) -> None:
    size = await size_of_one(house)
    for _ in range(1000 // size):
        await house.ask("POST", "/v0/topics/a", RECORDS)
    answer = await house.ask("POST", "/v0/topics/a", RECORDS)
    assert answer.status == 429
    assert error_of(answer)["detail"] == {"limit": "max_total_bytes", "max": 1000}
    house.recover()
    assert (await house.ask("POST", "/v0/topics/a", RECORDS)).status == 429, "recovered bytes count"
    await house.ask("POST", "/v0/topics/a/delete", {"before_seq": 2})
    assert (await house.ask("POST", "/v0/topics/a", RECORDS)).status == 200
    assert (await house.ask("POST", "/v0/topics/b", RECORDS)).status == 429
    await house.ask("DELETE", "/v0/topics/a")
    assert (await house.ask("POST", "/v0/topics/b", RECORDS)).status == 201


def pass_time(house: House, ms: int) -> None:
    """Move the clock of the server forward."""
    later = house.runtime.now_ms() + ms
    house.runtime.now_ms = lambda: later  # type: ignore[method-assign]


@in_house(MAX_TOTAL_BYTES="1000")
async def test_expired_records_make_room_without_a_read(house: House) -> None:
    size = await size_of_one(house)
    await house.ask("PUT", "/v0/topics/brief", {"ttl_ms": 60_000})
    for _ in range(1000 // size):
        await house.ask("POST", "/v0/topics/brief", RECORDS)
    pass_time(house, 60_001)
    assert (await house.ask("POST", "/v0/topics/other", RECORDS)).status == 201


@in_house(MAX_TOTAL_BYTES="1000")
async def test_expired_records_make_room_for_their_own_topic_at_once(house: House) -> None:
    size = await size_of_one(house)
    await house.ask("PUT", "/v0/topics/brief", {"ttl_ms": 60_000})
    for _ in range(1000 // size):
        assert (await house.ask("POST", "/v0/topics/brief", RECORDS)).status == 200
    assert (await house.ask("POST", "/v0/topics/brief", RECORDS)).status == 429
    pass_time(house, 60_001)
    assert (await house.ask("POST", "/v0/topics/brief", RECORDS)).status == 200


@pytest.mark.parametrize("cap", ["cap_records", "cap_bytes"])
@in_house(MAX_TOTAL_BYTES="1000")
async def test_a_topic_that_trims_itself_takes_what_it_makes_room_for(house: House, cap: str) -> None:
    size = await size_of_one(house)
    fitting = 1000 // size
    await house.ask("PUT", "/v0/topics/other", {})
    await house.ask("PUT", "/v0/topics/trims", {cap: fitting * (1 if cap == "cap_records" else size)})
    for _ in range(2 * fitting + 1):
        assert (await house.ask("POST", "/v0/topics/trims", RECORDS)).status == 200
    assert house.broker.state.totals.bytes == fitting * size
    assert (await house.ask("POST", "/v0/topics/other", RECORDS)).status == 429
    # It may hold more now, so nothing would leave it.
    await house.ask("PUT", "/v0/topics/trims", {cap: 2000})
    assert (await house.ask("POST", "/v0/topics/trims", RECORDS)).status == 429


@in_house(MAX_TOPICS="0", MAX_TOTAL_BYTES="0")
async def test_zero_means_no_cap(house: House) -> None:
    found = await statuses(house, *[("POST", f"/v0/topics/t{number}", RECORDS) for number in range(20)])
    assert found == [201] * 20
