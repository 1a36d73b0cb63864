"""Statements about a topic that is being dropped or made are decided when that is."""

import asyncio

import pytest

from tests.server.house import House, in_house, raw


@pytest.mark.parametrize(
    "statement",
    ["ALTER TOPIC t SET RETENTION WITH (retention_seconds = 5)", "ALTER TOPIC t CLEAR RETENTION", "CLEAR TOPIC t"],
)
@in_house()
async def test_what_alters_a_topic_never_makes_it_again(house: House, statement: str) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    clients = [await house.connect() for _ in range(2)]
    sqls = ["DROP TOPIC t", statement]
    for client, sql in zip(clients, sqls, strict=True):
        client.writer.write(raw("POST", "/v1/api/sql", {"sql": sql}))
    dropped, altered = await asyncio.gather(*[client.answer() for client in clients])
    assert dropped.status == 200
    assert "t" not in house.broker.state.topics
    assert altered.status in (200, 404), "before the drop, or after it"
