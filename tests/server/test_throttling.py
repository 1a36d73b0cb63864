"""The throttle as clients meet it."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.server.house import House, error_of, in_house, raw
from tests.server.http.wire import until

RECORDS = {"records": [{"data": 1}]}


def press(house: House, lag_ms: float = 80.0) -> None:
    """The loop runs late, as far as the throttle knows; nothing but these samples reaches it."""
    throttle = house.service.throttle
    throttle.runtime = house.runtime
    for _ in range(30):
        throttle.observe(lag_ms)
    assert throttle.closed


async def configured(house: House, **priorities: int) -> None:
    for name, priority in priorities.items():
        await house.ask("PUT", f"/v0/topics/{name}", {"priority": priority})


async def begun(house: House, name: str, body: Any = RECORDS) -> "asyncio.Task[Any]":
    """A write that is parked."""
    before = house.service.throttle.parked
    task = asyncio.get_running_loop().create_task(house.ask("POST", f"/v0/topics/{name}", body))
    await until(lambda: house.service.throttle.parked > before)
    return task


@in_house(THROTTLE_WAIT_MS="1")
async def test_low_priority_write_is_refused_with_a_time_to_come_back(house: House) -> None:
    await configured(house, low=-10, high=1000)
    press(house)
    writes = [await begun(house, "low") for _ in range(20)]
    assert (await house.ask("POST", "/v0/topics/high", RECORDS)).status == 200
    await asyncio.sleep(0.002)
    house.service.throttle.observe(500.0)
    answers = [await write for write in writes]
    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) == 12, "eight are let in at a time"
    error = error_of(refused[0])
    assert error["code"] == "throttled"
    assert set(error["detail"]) == {"retry_after_ms"}
    assert error["detail"]["retry_after_ms"] >= 100
    assert int(refused[0].headers["retry-after"]) >= 1
    assert house.broker.topic("low").count == 8
    assert house.service.throttle.throttled_total == 12


@in_house(THROTTLE_WAIT_MS="1")
async def test_write_that_disables_backpressure_is_admitted_in_the_end(house: House) -> None:
    await configured(house, low=-10)
    press(house)
    insisting = {**RECORDS, "disable_backpressure": True}
    writes = [await begun(house, "low", insisting) for _ in range(20)]
    for _ in range(5):
        await asyncio.sleep(0.002)
        house.service.throttle.observe(500.0)
    assert {(await write).status for write in writes} == {200}
    assert house.broker.topic("low").count == 20


@in_house(THROTTLE_WAIT_MS="1")
async def test_words_in_the_data_do_not_insist(house: House) -> None:
    await configured(house, low=-10)
    press(house)
    sly = {"records": [{"data": {"disable_backpressure": True}}]}
    writes = [await begun(house, "low", sly) for _ in range(10)]
    await asyncio.sleep(0.002)
    house.service.throttle.observe(500.0)
    assert sorted([(await write).status for write in writes]) == [200] * 8 + [429] * 2


@in_house()
async def test_time_parked_is_in_the_performance_block(house: House) -> None:
    await configured(house, low=-10)
    answer = (await house.ask("POST", "/v0/topics/low", RECORDS)).json
    assert answer["performance"]["throttle_wait_ms"] == 0.0
    press(house)
    write = await begun(house, "low")
    await asyncio.sleep(0.02)
    house.service.throttle.observe(0.0)
    performance = (await write).json["performance"]
    assert 15 <= performance["throttle_wait_ms"] <= performance["server_total_ms"]


@in_house()
async def test_higher_priority_is_served_first(house: House) -> None:
    await configured(house, lowest=-900, low=-450, middle=0)
    press(house)
    # All at the same time: a write that has waited 5 ms longer would overtake one that matters ten points more.
    clock = SimpleNamespace(now_s=1000.0, perf=lambda: clock.now_s)
    house.service.throttle.runtime = clock
    answers = [await begun(house, name) for name in ("lowest", "low", "middle")]
    done: list[str] = []
    for write, name in zip(answers, ("lowest", "low", "middle"), strict=True):
        write.add_done_callback(lambda _, name=name: done.append(name))
    order = []
    append = house.broker.append
    house.broker.append = lambda name, *rest: (order.append(name), append(name, *rest))[1]
    clock.now_s += 0.1
    house.service.throttle.observe(0.0)
    await asyncio.gather(*answers)
    assert order == ["middle", "low", "lowest"]


@in_house()
async def test_topic_that_is_read_matters_more_than_one_that_is_not(house: House) -> None:
    for name in ("read", "unread"):
        await house.ask("POST", f"/v0/topics/{name}", RECORDS)
    await house.ask("POST", "/v0/topics/read/diff", {})
    assert (await house.ask("GET", "/v0/topics/read?touch=false")).json["effective_priority"] == 500
    press(house)
    assert (await house.ask("POST", "/v0/topics/read", RECORDS)).status == 200
    write = await begun(house, "unread")
    house.service.throttle.observe(0.0)
    assert (await write).status == 200


@in_house()
async def test_parked_write_whose_client_goes_is_not_made(house: House) -> None:
    await configured(house, low=-10, high=1000)
    press(house)
    client = await house.connect()
    await client.send(raw("POST", "/v0/topics/low", RECORDS))
    await until(lambda: house.service.throttle.parked)
    client.reset()
    await until(lambda: len(house.listener.connections) == 0)
    house.service.throttle.observe(0.0)
    assert house.service.throttle.parked == 0
    # A write that was let in would be in the log before this one.
    assert (await house.ask("POST", "/v0/topics/high", RECORDS)).status == 200
    assert house.broker.topic("low").partitions[0].head_seq == 0


@in_house()
async def test_bad_write_is_refused_after_it_was_parked(house: House) -> None:
    await configured(house, low=-10)
    press(house)
    write = await begun(house, "low", b'{"records": 7}')
    house.service.throttle.observe(0.0)
    assert (await write).status == 400
