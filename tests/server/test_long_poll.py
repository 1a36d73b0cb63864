"""Long polls: answered once, and nothing is left behind, whatever ends them."""

import asyncio
from typing import Any

import pytest

from tests.server.house import House, in_house, raw
from tests.server.http.wire import until

# Requests that wait, and the change that ends the wait.
WAITING: dict[str, tuple[str, str, Any]] = {
    "diff": ("POST", "/v0/topics/t/diff", {"wait_ms": 30_000}),
    "heads": ("POST", "/v0/heads", {"topics": {"t": {"0": 0}}, "wait_ms": 30_000}),
    "versions": ("GET", "/api/tables?version=0&wait_ms=30000", None),
    "consume": ("POST", "/api/topics/consume", {"topic": "t", "group_id": "g", "timeout_seconds": 30}),
    "claim": ("POST", "/v0/topics/q/claim", {"node": "w", "wait_ms": 30_000}),
}
each_poll = pytest.mark.parametrize("poll", WAITING)


async def waiting(house: House, poll: str) -> Any:
    await house.ask("PUT", "/v0/topics/t", {})
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    client = await house.connect()
    await client.send(raw(*WAITING[poll]))
    await until(lambda: len(house.broker.polls) == 1)
    return client


@each_poll
@in_house()
async def test_change_answers_the_poll_and_leaves_nothing_behind(house: House, poll: str) -> None:
    client = await waiting(house, poll)
    for method, path, body in (
        ("POST", "/v0/topics/t", {"records": [{"data": 1}]}),
        ("POST", "/v0/topics/q", {"records": [{"data": 1}]}),
        ("PUT", "/api/tables/shop.orders", {}),
    ):
        await house.ask(method, path, body)
    answer = await client.answer()
    assert answer.status == 200
    assert not house.broker.polls
    # Nothing of it is woken later.
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 2}]})
    assert (await client.ask(raw("GET", "/v0/health"))).status == 200


@each_poll
@in_house()
async def test_disconnect_ends_the_poll(house: House, poll: str) -> None:
    client = await waiting(house, poll)
    client.abort()
    await until(lambda: not house.broker.polls)
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})


@each_poll
@in_house()
async def test_stop_of_the_server_answers_the_poll(house: House, poll: str) -> None:
    client = await waiting(house, poll)
    house.broker.finish_polls()
    assert (await client.answer()).status == 200
    # One that comes later does not wait.
    assert (await client.ask(raw(*WAITING[poll]))).status == 200
    assert not house.broker.polls


@pytest.mark.parametrize("poll", ["diff", "heads", "versions", "claim"])
@in_house()
async def test_time_that_is_over_answers_the_poll(house: House, poll: str) -> None:
    await house.ask("PUT", "/v0/topics/t", {})
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    method, path, body = WAITING[poll]
    if body is None:
        path = path.replace("30000", "20")
    else:
        body = {**body, "wait_ms": 20}
    async with asyncio.timeout(10):
        assert (await house.ask(method, path, body)).status == 200
    assert not house.broker.polls
