"""SELECTs share a few worker processes: one does not wait for another, and every slot comes back."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.server.house import House, error_of, in_house
from tests.server.http.wire import Answer
from topics.broker.broker import Broker
from topics.model.errors import CorruptStorage
from topics.server.auth.authorization import Caller
from topics.server.service import Service
from topics.server.sql.selects import MAX_SELECTS, MAX_WORKERS, SelectPool
from topics.server.sql.system_tables import ROWS_PER_TURN, TABLES, SystemTable
from topics.sql.select import Column, Reply, Request


class Worker:
    """Answers a query with its text. One that says "long" it answers when `finish` is set."""

    def __init__(self, finish: threading.Event) -> None:
        self._finish = finish

    def run(self, request: Request) -> Reply:
        if "long" in request.text:
            self._finish.wait()
        return Reply(["text"], [[request.text]])

    def close(self) -> None:
        self._finish.set()


async def sql(house: House, statement: str) -> Answer:
    return await house.ask("POST", "/api/sql", {"sql": statement})


async def under_way(house: House, count: int) -> None:
    """Until this many SELECTs hold a slot."""
    for _ in range(20_000):
        if house.service.selects.reserved == count:
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"{house.service.selects.reserved} SELECTs hold a slot, not {count}")


@in_house()
async def test_a_select_does_not_wait_for_others_that_take_long(house: House) -> None:
    finish = threading.Event()
    house.service.selects = SelectPool([Worker(finish) for _ in range(3)])
    long = [asyncio.ensure_future(sql(house, f"SELECT 'long {number}'")) for number in range(2)]
    await under_way(house, 2)
    for number in range(5):
        text = f"SELECT {number}"
        assert (await sql(house, text)).json["rows"] == [[text]]
    assert not any([each.done() for each in long])
    finish.set()
    assert [(await each).json["rows"] for each in long] == [[["SELECT 'long 0'"]], [["SELECT 'long 1'"]]]


@in_house()
async def test_more_selects_than_workers_wait_and_more_than_the_slots_are_refused(house: House) -> None:
    finish = threading.Event()
    house.service.selects = SelectPool([Worker(finish) for _ in range(3)])
    texts = [f"SELECT 'long {number}'" for number in range(MAX_SELECTS)]
    asked = [asyncio.ensure_future(sql(house, text)) for text in texts]
    await under_way(house, MAX_SELECTS)
    refused = await sql(house, "SELECT 1")
    assert (refused.status, error_of(refused)["detail"]) == (429, {"limit": "selects", "max": MAX_SELECTS})
    finish.set()
    assert [(await each).json["rows"] for each in asked] == [[[text]] for text in texts]
    assert house.service.selects.reserved == 0


@in_house()
async def test_real_workers_run_side_by_side(house: House) -> None:
    answers = await asyncio.gather(*[sql(house, f"SELECT {number} AS n") for number in range(MAX_WORKERS)])
    assert [answer.json["rows"] for answer in answers] == [[[number]] for number in range(MAX_WORKERS)]


WRONG = {
    "SELECT * FROM system.nothing": 404,
    "SELECT nothing FROM system.topics": 400,
    "SELECT * FROM system.settings": 403,
}


@pytest.mark.parametrize("statement", WRONG)
@in_house(API_KEYS="key:r:some")
async def test_a_select_that_is_refused_gives_its_slot_back(house: House, statement: str) -> None:
    for _ in range(MAX_SELECTS + 1):
        answer = await house.ask("POST", "/api/sql", {"sql": statement}, key="key")
        assert answer.status == WRONG[statement]
    assert house.service.selects.reserved == 0


@pytest.mark.parametrize("rows_before", [0, ROWS_PER_TURN], ids=["first turn", "later turn"])
@pytest.mark.parametrize(
    ("error", "code"), [(CorruptStorage("segments/x.arrow", 7, "damaged"), "corrupt_storage"), (KeyError(), "internal")]
)
@in_house()
async def test_a_select_over_a_table_that_cannot_be_collected_is_answered_and_gives_its_slot_back(
    house: House, monkeypatch: pytest.MonkeyPatch, rows_before: int, error: Exception, code: str
) -> None:
    def rows(_service: Service, _broker: Broker, _caller: Caller) -> Iterator[tuple[str]]:
        for _ in range(rows_before):
            yield ("row",)
        raise error

    monkeypatch.setitem(TABLES, "consumer_groups", SystemTable([Column("group_id", "VARCHAR")], rows))
    for _ in range(MAX_SELECTS + 1):
        answer = await sql(house, "SELECT * FROM system.consumer_groups")
        assert (answer.status, error_of(answer)["code"]) == (500, code)
    assert house.service.selects.reserved == 0
