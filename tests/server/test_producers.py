"""A producer belongs to the key that used it first: no other tenant can fence or read it."""

from typing import Any

from tests.server.house import House, error_of, in_house
from tests.server.http.wire import Answer

RECORDS = {"records": [{"data": 1}]}
KEYS = "full,ours::t42:,ours-too:rw:t42:,wider::t42:|t43:,narrower::t42:a,theirs::t43:,reader:r:t43:"


async def commit(house: House, key: str | None, producer: str, batch: int, *topics: str) -> Answer:
    writes = [{"topic": topic, **RECORDS} for topic in topics]
    return await house.ask("POST", "/v0/commits", {"writes": writes, "producer": producer, "batch": batch}, key=key)


async def make(house: House, *topics: str) -> None:
    for topic in topics:
        await house.ask("POST", f"/v0/topics/{topic}", RECORDS, key="full")


def refused(answer: Answer) -> bool:
    if answer.status != 403:
        return False
    error: dict[str, Any] = error_of(answer)
    assert (error["code"], error["detail"]) == ("forbidden", {"producer": "p"})
    return True


@in_house(API_KEYS=KEYS)
async def test_key_with_other_prefixes_cannot_fence_a_producer(house: House) -> None:
    await make(house, "t42:a", "t43:a")
    assert (await commit(house, "ours", "p", 1, "t42:a")).status == 200
    for topics in ([], ["t43:a"]):
        assert refused(await commit(house, "theirs", "p", 2**64 - 1, *topics))
    mine = await commit(house, "ours", "p", 2, "t42:a")
    assert (mine.json["deduped"], mine.json["count"]) == (False, 1)


@in_house(API_KEYS=KEYS)
async def test_key_with_other_prefixes_cannot_read_a_producer_or_its_stages(house: House) -> None:
    await make(house, "t42:a", "t43:a")
    await commit(house, "ours", "p", 5, "t42:a")
    for key in ("theirs", "reader"):
        assert refused(await house.ask("GET", "/v0/producers/p", key=key))
    stage = (await house.ask("POST", "/v0/stages?topic=t43:a", RECORDS, key="theirs")).json["stage_id"]
    wanted = {"stages": [stage], "producer": "p", "batch": 3}
    assert refused(await house.ask("POST", "/v0/commits", wanted, key="theirs"))
    again = await house.ask("POST", "/v0/commits", {**wanted, "producer": "another"}, key="theirs")
    assert again.json["count"] == 1, again.body


@in_house(API_KEYS=KEYS)
async def test_a_producer_is_for_all_keys_that_reach_what_its_first_one_reached(house: House) -> None:
    await make(house, "t42:a", "t43:a")
    await commit(house, "ours", "p", 1, "t42:a")
    for batch, key in enumerate(("ours-too", "wider", "full", "ours"), start=2):
        answer = await commit(house, key, "p", batch, "t42:a")
        assert (answer.status, answer.json["deduped"]) == (200, False), key
        assert (await house.ask("GET", "/v0/producers/p", key=key)).json["batch"] == batch
    assert refused(await commit(house, "narrower", "p", 9, "t42:a"))


@in_house(API_KEYS=KEYS)
async def test_a_producer_of_a_key_for_every_name_is_not_for_keys_with_prefixes(house: House) -> None:
    """Whatever its last batch was about: the next one may be about others."""
    await make(house, "t42:a")
    await commit(house, "full", "p", 1, "t42:a")
    assert refused(await commit(house, "ours", "p", 9, "t42:a"))
    assert refused(await house.ask("GET", "/v0/producers/p", key="ours"))


@in_house(API_KEYS=KEYS)
async def test_a_producer_that_committed_nothing_readable_belongs_to_its_key_too(house: House) -> None:
    await commit(house, "ours", "p", 1)
    assert refused(await commit(house, "theirs", "p", 2))
