"""Long polls on versions: answered once, by a change, by the time, or by the end, and nothing is left behind."""

import asyncio

import pytest

from tests.server.house import House, in_house, raw

PATHS = ("/api/routes", "/api/tables", "/api/archives")


async def until_waiting(house: House, count: int) -> None:
    for _ in range(1000):
        if len(house.broker.polls) == count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{len(house.broker.polls)} wait")


def watchers(house: House) -> int:
    versions = house.broker.state.versions
    return sum([len(each.watchers) for each in (versions.routes, versions.tables, versions.archives)])


@pytest.mark.parametrize("path", PATHS)
@in_house()
async def test_a_reader_that_knows_another_version_or_does_not_wait_is_answered_at_once(
    house: House, path: str
) -> None:
    for query in ("", "?version=7&wait_ms=60000", "?version=0", "?wait_ms=60000", "?version=&wait_ms=60000"):
        answer = await house.ask("GET", path + query)
        assert (answer.status, answer.json["version"]) == (200, 0), query
    for query in ("?version=x", "?version=-1", "?wait_ms=x", "?version=0&wait_ms=1.5"):
        assert (await house.ask("GET", path + query)).status == 400, query
    assert (watchers(house), house.broker.polls) == (0, set())


@pytest.mark.parametrize("path", PATHS)
@in_house()
async def test_a_reader_that_has_gone_is_not_waited_for(house: House, path: str) -> None:
    client = await house.connect()
    client.writer.write(raw("GET", f"{path}?version=0&wait_ms=60000"))
    await until_waiting(house, 1)
    assert watchers(house) == 1
    client.abort()
    await until_waiting(house, 0)
    assert watchers(house) == 0


@in_house()
async def test_version_change_wakes_only_the_polls_on_that_version(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    asks = [asyncio.create_task(house.ask("GET", f"{path}?version=0&wait_ms=60000")) for path in (*PATHS, PATHS[2])]
    await until_waiting(house, 4)
    await house.ask("PUT", "/v0/topics/t/archive", {"uri": "s3://lake/t"})
    answers = await asyncio.gather(*asks[2:])
    assert [[each["topic"] for each in answer.json["archives"]] for answer in answers] == [["t"], ["t"]]
    assert watchers(house) == 2
    house.broker.finish_polls()
    assert [answer.json["version"] for answer in await asyncio.gather(*asks[:2])] == [0, 0]
    assert (watchers(house), house.broker.polls) == (0, set())
