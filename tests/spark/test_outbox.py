"""Messages on their way, without Spark: staged or handed back, in order, once, and less only what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.served import server_settings
from topics.client import Client
from topics.spark import outbox as rooms
from topics.spark.outbox import Outbox, OverCap, Piece, commit
from topics.testing.server import running_server


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Client]:
    """A server that takes records of 2,000 bytes at most."""
    settings = server_settings(tmp_path / "data", TOPICS_MAX_RECORD_BYTES="2000")
    with running_server(settings) as url, Client(url) as client:
        yield client


def filled(client: Client, rows: list[tuple[int, str, int, Any]]) -> Outbox:
    """An outbox with these messages: route, topic, partition and data."""
    outbox = Outbox(client)
    for route, topic, partition, data in rows:
        outbox.add(route, topic, partition, json.dumps(data).encode(), b'{"src_seq":1}')
    outbox.finish()
    return outbox


def data(client: Client, topic: str, partition: int = 0) -> list[Any]:
    return [record.data for record in client.read(topic, partition=partition)]


def test_few_messages_are_handed_back_and_committed_once(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    outbox = filled(client, [(0, topic, 0, 1), (1, topic, 1, 2), (0, topic, 0, 3)])
    assert [piece.stage for piece in outbox.pieces] == [None, None]
    outcome = commit(client, outbox.pieces, f"p-{topic}", 0)
    assert (outcome.deduped, outcome.messages, outcome.refused) == (False, 3, {})
    assert commit(client, outbox.pieces, f"p-{topic}", 0).deduped
    assert (data(client, topic), data(client, topic, 1)) == ([1, 3], [2])
    assert [record.meta for record in client.read(topic)] == [{"src_seq": 1}, {"src_seq": 1}]


def test_order_is_kept_between_what_is_staged_and_what_is_handed_back(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic)
    monkeypatch.setattr(rooms, "STAGE_ROWS", 3)
    pieces: list[Piece] = []
    for start, rows in ((0, 2), (2, 5), (7, 1), (8, 3), (11, 1)):
        pieces += filled(client, [(0, topic, 0, number) for number in range(start, start + rows)]).pieces
    assert [piece.stage is None for piece in pieces] == [True, False, True, True, False, True]
    assert commit(client, pieces, f"p-{topic}", 0).messages == 12
    assert data(client, topic) == list(range(12))


def test_what_is_too_much_for_one_request_is_staged(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic)
    monkeypatch.setattr(rooms, "COMMIT_BYTES", 100)
    pieces = [piece for n in range(20) for piece in filled(client, [(0, topic, 0, n)]).pieces]
    assert commit(client, pieces, f"p-{topic}", 0).messages == 20
    assert data(client, topic) == list(range(20))


@pytest.mark.parametrize("rows", [10, 5000], ids=["handed back", "staged"])
def test_a_topic_that_is_gone_costs_the_others_nothing(client: Client, topic: str, rows: int) -> None:
    for name in (topic, f"{topic}.gone"):
        client.create(name)
    messages = [(n % 2, (topic, f"{topic}.gone")[n % 2], 0, n) for n in range(rows)]
    before = filled(client, messages)
    client.drop(f"{topic}.gone")
    outcome = commit(client, before.pieces, f"p-{topic}", 0)
    assert outcome.messages == rows // 2
    assert outcome.refused[1].count == rows // 2
    assert data(client, topic) == list(range(0, rows, 2))
    # And when it was gone before they were staged.
    after = filled(client, messages)
    outcome = commit(client, after.pieces, f"p-{topic}", 1)
    assert outcome.messages == rows // 2
    assert sum([each.refused[1].count for each in (after, outcome) if 1 in each.refused]) == rows // 2


@pytest.mark.parametrize("rows", [10, 300], ids=["handed back", "staged"])
def test_a_record_that_is_too_large_is_left_out_alone(
    small: Client, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "INLINE_ROWS", 100)
    small.create("t")
    messages: list[tuple[int, str, int, Any]] = [(0, "t", 0, n) for n in range(rows)]
    messages[5] = (1, "t", 0, "x" * 3000)
    outbox = filled(small, messages)
    outcome = commit(small, outbox.pieces, "p", 0)
    assert sum([each.count for refused in (outbox.refused, outcome.refused) for each in refused.values()]) == 1
    assert outcome.messages == rows - 1
    assert data(small, "t") == [n for n in range(rows) if n != 5]


def test_a_full_topic_is_waited_for_and_then_left_out(client: Client, topic: str) -> None:
    client.create(topic)
    client.create(f"{topic}.full", cap_records=2, discard="reject")
    client.append(f"{topic}.full", [1, 2])
    slept: list[float] = []
    rows: list[tuple[int, str, int, Any]] = [(0, topic, 0, 1), (1, f"{topic}.full", 0, 3)]
    outcome = commit(client, filled(client, rows).pieces, f"p-{topic}", 0, slept.append)
    assert (outcome.messages, outcome.refused[1].count) == (1, 1)
    assert sum(slept) == rooms.FULL_WAIT_S
    # There is room again before the patience ends.
    outcome = commit(
        client,
        filled(client, rows).pieces,
        f"p-{topic}",
        1,
        lambda _: client.delete(f"{topic}.full", before_seq=2) and None,  # type: ignore[func-returns-value]
    )
    assert (outcome.messages, outcome.refused) == (2, {})


def test_halves_of_characters_arrive_as_they_are(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    outbox = Outbox(client)
    for partition, text in ((0, b'"\\ud800"'), (1, b'"\\uDFFF"'), (0, b'"plain"')):
        outbox.add(0, topic, partition, text, b"{}")
    outbox.finish()
    assert commit(client, outbox.pieces, f"p-{topic}", 0).messages == 3
    assert [client.info(topic).partitions[number].count for number in (0, 1)] == [2, 1]


def test_a_topic_that_keeps_the_newest_gets_the_newest_of_a_batch(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "STAGE_ROWS", 30)
    client.create(topic, cap_records=20)
    client.create(f"{topic}.all")

    def pieces(caps: dict[str, rooms.Cap]) -> list[Piece]:
        made: list[Piece] = []
        for task in range(2):
            outbox = Outbox(client, caps)
            for n in range(task * 50, task * 50 + 50):
                outbox.add(0, topic, 0, b"%d" % n, b"{}")
                outbox.add(1, f"{topic}.all", 0, b"%d" % n, b"{}")
            outbox.finish()
            made += outbox.pieces
        return made

    with pytest.raises(OverCap) as caught:
        commit(client, pieces({}), f"p-{topic}", 0)
    caps = {caught.value.topic: caught.value.cap}
    assert caps == {topic: (20, 0)}
    outcome = commit(client, pieces(caps), f"p-{topic}", 0, caps=caps)
    assert outcome.refused == {}
    assert data(client, topic) == list(range(80, 100))
    assert data(client, f"{topic}.all") == list(range(100))
