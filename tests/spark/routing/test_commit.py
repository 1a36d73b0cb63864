"""Staging and commit without Spark: messages in order, once, and without only those that are refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.served import server_settings
from topics.client import Client
from topics.spark.routing import commit as commit_module
from topics.spark.routing import staging as staging_module
from topics.spark.routing.commit import commit
from topics.spark.routing.report import Piece
from topics.spark.routing.staging import Staging
from topics.testing.server import running_server


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Client]:
    """A server that takes records of 2,000 bytes at most."""
    settings = server_settings(tmp_path / "data", TOPICS_MAX_RECORD_BYTES="2000")
    with running_server(settings) as url, Client(url) as client:
        yield client


def filled(client: Client, rows: list[tuple[int, str, int, Any]]) -> Staging:
    """A task's messages: route, topic, partition and data."""
    return added(client, [(route, topic, partition, json.dumps(data)) for route, topic, partition, data in rows])


def added(client: Client, rows: list[tuple[int, str, int, str]]) -> Staging:
    staging = Staging(client)
    for topic in dict.fromkeys([row[1] for row in rows]):
        chosen = [row for row in rows if row[1] == topic]
        columns = {
            "data": pa.array([row[3] for row in chosen], pa.string()),
            "meta": pa.array(['{"src_seq":1}'] * len(chosen), pa.string()),
            "partition": pa.array([row[2] for row in chosen], pa.int64()),
            "route": pa.array([row[0] for row in chosen], pa.int32()),
        }
        for start in range(0, len(chosen), 1000):
            staging.add(topic, pa.table(columns).slice(start, 1000))
    staging.finish()
    return staging


def data(client: Client, topic: str, partition: int = 0) -> list[Any]:
    return [record.data for record in client.read(topic, partition=partition)]


def test_a_small_task_is_committed_once_without_stages(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    task = filled(client, [(0, topic, 0, 1), (1, topic, 1, 2), (0, topic, 0, 3)])
    assert [piece.stage for piece in task.pieces] == [None, None]
    outcome = commit(client, task.pieces, f"p-{topic}", 0)
    assert (outcome.deduped, outcome.messages, outcome.refused) == (False, 3, {})
    assert commit(client, task.pieces, f"p-{topic}", 0).deduped
    assert (data(client, topic), data(client, topic, 1)) == ([1, 3], [2])
    assert [record.meta for record in client.read(topic)] == [{"src_seq": 1}, {"src_seq": 1}]


def test_staged_and_inline_messages_of_a_topic_keep_their_order(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic)
    monkeypatch.setattr(staging_module, "MAX_STAGE_ROWS", 3)
    pieces: list[Piece] = []
    for start, rows in ((0, 2), (2, 5), (7, 1), (8, 3), (11, 1)):
        pieces += filled(client, [(0, topic, 0, number) for number in range(start, start + rows)]).pieces
    assert [piece.stage is None for piece in pieces] == [True, False, False, True, False, True]
    assert commit(client, pieces, f"p-{topic}", 0).messages == 12
    assert data(client, topic) == list(range(12))


def test_messages_beyond_the_bytes_of_a_commit_are_staged(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic)
    monkeypatch.setattr(commit_module, "MAX_COMMIT_BYTES", 100)
    pieces = [piece for n in range(20) for piece in filled(client, [(0, topic, 0, n)]).pieces]
    assert commit(client, pieces, f"p-{topic}", 0).messages == 20
    assert data(client, topic) == list(range(20))


@pytest.mark.parametrize("rows", [10, 5000], ids=["inline", "staged"])
def test_messages_to_a_dropped_topic_are_refused_and_the_others_are_committed(
    client: Client, topic: str, rows: int
) -> None:
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


@pytest.mark.parametrize("rows", [10, 300], ids=["inline", "staged"])
def test_only_the_record_that_is_too_large_is_refused(
    small: Client, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "MAX_INLINE_ROWS", 100)
    small.create("t")
    messages: list[tuple[int, str, int, Any]] = [(0, "t", 0, n) for n in range(rows)]
    messages[5] = (1, "t", 0, "x" * 3000)
    task = filled(small, messages)
    outcome = commit(small, task.pieces, "p", 0)
    assert sum([each.count for refused in (task.refused, outcome.refused) for each in refused.values()]) == 1
    assert outcome.messages == rows - 1
    assert data(small, "t") == [n for n in range(rows) if n != 5]


def test_a_commit_waits_for_a_full_topic_and_then_leaves_it_out(client: Client, topic: str) -> None:
    client.create(topic)
    client.create(f"{topic}.full", cap_records=2, discard="reject")
    client.append(f"{topic}.full", [1, 2])
    slept: list[float] = []
    rows: list[tuple[int, str, int, Any]] = [(0, topic, 0, 1), (1, f"{topic}.full", 0, 3)]
    outcome = commit(client, filled(client, rows).pieces, f"p-{topic}", 0, slept.append)
    assert (outcome.messages, outcome.refused[1].count) == (1, 1)
    assert sum(slept) == commit_module.MAX_FULL_WAIT_S
    # There is space again before the wait ends.
    outcome = commit(
        client,
        filled(client, rows).pieces,
        f"p-{topic}",
        1,
        lambda _: client.delete(f"{topic}.full", before_seq=2) and None,  # type: ignore[func-returns-value]
    )
    assert (outcome.messages, outcome.refused) == (2, {})


def test_lone_surrogates_keep_their_bytes(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    texts = [(0, '"\\ud800"'), (1, '"\\uDFFF"'), (0, '"plain"')]
    task = added(client, [(0, topic, partition, text) for partition, text in texts])
    assert commit(client, task.pieces, f"p-{topic}", 0).messages == 3
    assert [client.info(topic).partitions[number].count for number in (0, 1)] == [2, 1]


def test_messages_above_the_cap_of_a_topic_get_seqs_and_the_evicted_ones_are_reported(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "MAX_STAGE_ROWS", 30)
    client.create(topic, cap_records=20)
    client.create(f"{topic}.all")
    pieces: list[Piece] = []
    for half in range(2):
        numbers = range(half * 50, half * 50 + 50)
        rows = [(route, name, 0, n) for n in numbers for route, name in enumerate((topic, f"{topic}.all"))]
        pieces += filled(client, rows).pieces
    outcome = commit(client, pieces, f"p-{topic}", 0)
    assert (outcome.messages, outcome.refused) == (200, {})
    assert data(client, f"{topic}.all") == list(range(100))
    page = client.diff(topic, 0)
    assert [record.data for record in page.records] == list(range(80, 100))
    assert page.tombstone is not None
    assert (page.head_seq, page.tombstone.gap_from, page.tombstone.gap_to) == (100, 1, 80)


def test_messages_that_can_never_fit_a_topic_that_rejects_are_refused_without_waiting(
    client: Client, topic: str
) -> None:
    client.create(topic, cap_records=2, discard="reject")
    slept: list[float] = []
    rows: list[tuple[int, str, int, Any]] = [(0, topic, 0, n) for n in range(3)]
    outcome = commit(client, filled(client, rows).pieces, f"p-{topic}", 0, slept.append)
    assert (outcome.messages, outcome.refused[0].count, slept) == (0, 3, [])
    assert "topic_full" in outcome.refused[0].message
