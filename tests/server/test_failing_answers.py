"""An answer that cannot be rendered or sent affects its own client alone: it gets 500 or loses its connection, the others their answers."""

from typing import Any

import pytest

import topics.server.queues.queues
import topics.server.topics.append
import topics.server.topics.pending_appends
from tests.server.house import House, error_of, in_house, raw
from tests.server.http.wire import Sink, parsed, until
from tests.server.topics.test_pending_appends import Writers, numbered
from topics.server.http.connection.connection import Connection


def post(topic: str, number: int, tag: str | None = None) -> bytes:
    record: dict[str, Any] = {"data": number} if tag is None else {"data": number, "tag": tag}
    return raw("POST", f"/v0/topics/{topic}", {"records": [record]})


def send(house: House, *requests: bytes) -> list[Sink]:
    """Each on a connection of its own, before any of them can be answered."""
    sinks = []
    for request in requests:
        connection = Connection(house.listener)
        sinks.append(Sink.plugged_into(connection))
        connection.data_received(request)
    return sinks


def fails_once(right: Any) -> Any:
    left = [1]

    def function(*arguments: Any, **options: Any) -> Any:
        if left:
            left.pop()
            raise RuntimeError("cannot be rendered")
        return right(*arguments, **options)

    return function


async def over(sinks: list[Sink]) -> list[int]:
    """The status of each answer; 0 for a connection that was closed without one."""
    await until(lambda: all([sink.written or sink.ended for sink in sinks]))
    return [parsed(sink.written).status if sink.written else 0 for sink in sinks]


@in_house()
async def test_a_write_whose_answer_cannot_be_rendered_gets_500_and_the_others_their_answers(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 0}]})
    monkeypatch.setattr(
        topics.server.topics.append, "render_append", fails_once(topics.server.topics.append.render_append)
    )
    # Writes of two records are answered one by one.
    bodies = [{"records": [{"data": number}, {"data": number}]} for number in range(3)]
    sinks = send(house, *[raw("POST", "/v0/topics/t", body) for body in bodies])
    assert await over(sinks) == [500, 200, 200]
    assert error_of(parsed(sinks[0].written))["code"] == "internal"
    assert (await house.ask("GET", "/v0/topics/t")).json["count"] == 7


@in_house()
async def test_single_records_whose_answers_cannot_be_rendered_lose_their_connections_and_later_ones_do_not(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 0}]})
    monkeypatch.setattr(
        topics.server.topics.append, "render_singles", fails_once(topics.server.topics.append.render_singles)
    )
    # Single records of one turn are answered run by run.
    sinks = send(house, post("t", 1), post("t", 2), post("t", 3, "tag"), post("t", 4))
    statuses = await over(sinks)
    assert 0 in statuses
    assert statuses[2] == 200
    assert await over(send(house, post("t", 5), post("t", 6))) == [200, 200]
    assert (await house.ask("GET", "/v0/topics/t")).json["count"] == 7


@in_house()
async def test_gathered_requests_that_cannot_be_read_lose_their_connections_and_the_log_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = await Writers(house, 6).settle_in()
    count = (await house.ask("GET", "/v0/topics/t")).json["count"]
    monkeypatch.setattr(
        topics.server.topics.pending_appends,
        "decode_singles",
        fails_once(topics.server.topics.pending_appends.decode_singles),
    )
    writers.send(*[numbered(number) for number in range(6)])
    await until(lambda: all([sink.ended for _, sink in writers.connections]))
    assert [sink.written for _, sink in writers.connections] == [b""] * 6
    again = await Writers(house, 6).settle_in()
    answers = await again.turn(*[numbered(number) for number in range(6)])
    assert [answer.status for answer in answers] == [200] * 6
    assert (await house.ask("GET", "/v0/topics/t")).json["count"] >= count + 6


@pytest.mark.parametrize("operation", ["claim", "ack"])
@in_house()
async def test_a_claim_or_ack_whose_answer_cannot_be_rendered_loses_its_connection_and_the_others_get_theirs(
    house: House, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    await house.ask("POST", "/v0/topics/q", {"records": [{"data": number} for number in range(8)]})
    await house.ask("POST", "/v0/topics/q/claim", {"node": "n", "max": 4})
    body: list[dict[str, Any]] = [{"node": "n", "max": 1}] * 3
    if operation == "ack":
        body = [{"node": "n", "seqs": [seq]} for seq in (1, 2, 3)]

    lengths = topics.server.queues.queues.LENGTHS

    class Broken:
        """The lengths of answers, of which the first cannot be looked up."""

        look_up = fails_once(lengths.__getitem__)

        def __getitem__(self, length: int) -> bytes:
            found: bytes = Broken.look_up(length)
            return found

        def __len__(self) -> int:
            return len(lengths)

    monkeypatch.setattr(topics.server.queues.queues, "LENGTHS", Broken())
    sinks = send(house, *[raw("POST", f"/v0/topics/q/{operation}", each) for each in body])
    assert await over(sinks) == [0, 200, 200]
