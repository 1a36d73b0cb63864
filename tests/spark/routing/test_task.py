"""A task of a routing query without Spark: messages of rows, and portions for a server without stage space."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.served import server_settings
from topics.client import Client
from topics.spark.connector.ranges import SeqRange
from topics.spark.routing import codes
from topics.spark.routing.change_source import MIN_TASK_SEQS, share_among_tasks
from topics.spark.routing.commit import StagesFull
from topics.spark.routing.report import decode_report
from topics.spark.routing.targets import Target, Targets
from topics.spark.routing.task import RoutingTask, commit_reports
from topics.testing.server import running_server

SCHEMA = pa.schema(
    [
        ("route", pa.int32()),
        ("partition", pa.int32()),
        ("data", pa.string()),
        ("meta", pa.string()),
        ("event", pa.string()),
        ("src_partition", pa.int32()),
        ("src_seq", pa.int64()),
        ("epoch", pa.int64()),
        ("tasks", pa.int32()),
    ]
)


def targets(topic: str, mode: str = "full", partitions: int = 1) -> Targets:
    return Targets([Target(topic, mode, (), partitions, 7, None)], [[0]])


def row(seq: int, data: str | None = None, **fields: Any) -> dict[str, Any]:
    text = f'"{seq}"' if data is None else data
    base = {"route": 1, "partition": 0, "data": text, "meta": "{}", "event": None, "src_partition": 0}
    return {**base, "src_seq": seq, "epoch": 1, "tasks": 1, **fields}


def batch(rows: list[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def written(client: Client, topic: str) -> list[Any]:
    return [record.data for record in client.read(topic)]


def test_the_only_task_of_a_batch_commits_it_once(client: Client, topic: str) -> None:
    client.create(topic)
    for _ in range(2):
        task = RoutingTask(client, targets(topic), topic, 0)
        result = task.run(iter([batch([row(1), row(2)])]), 0, portions=False)
        assert result.committed
    assert written(client, topic) == ["1", "2"]
    assert decode_report(result.report).messages == 0, "the second attempt committed nothing"


def test_tasks_of_a_larger_batch_are_committed_together_in_order(client: Client, topic: str) -> None:
    client.create(topic)
    reports = []
    for number in (1, 0):
        task = RoutingTask(client, targets(topic), topic, number)
        result = task.run(iter([batch([row(number * 10 + n, tasks=2) for n in range(3)])]), 0, portions=False)
        assert not result.committed
        reports.append(decode_report(result.report))
    assert written(client, topic) == []
    commit_reports(client, sorted(reports, key=lambda report: report.task), topic, 0)
    assert written(client, topic) == ["0", "1", "2", "10", "11", "12"]


def test_payloads_and_partitions_that_sql_left_out_are_made_from_the_event(client: Client, topic: str) -> None:
    client.create(topic, partitions=3)
    event = '{"op":"update","ts":1,"key":{"id":1},"before":{"id":1,"n":1.50},"after":{"id":1,"n":1.51}}'
    rows = [row(1, partition=None, event=event) | {"data": None}, row(2, event="nonsense") | {"data": None}]
    task = RoutingTask(client, targets(topic, "diff", 3), topic, 0)
    report = decode_report(task.run(iter([batch(rows)]), 0, portions=False).report)
    found = [record.data for number in range(3) for record in client.read(topic, partition=number)]
    assert found == [{"key": {"id": 1}, "changed": {"n": {"old": 1.5, "new": 1.51}}}]
    assert [each.count for each in report.refused.values()] == [1]


def test_codes_are_counted_for_the_routes_of_their_condition(client: Client, topic: str) -> None:
    client.create(topic)
    rows = [row(n, route=code) for n, code in enumerate((-1, -1, -1 - codes.MISSING, codes.TRUNCATE, codes.LOST))]
    task = RoutingTask(client, targets(topic), topic, 0)
    report = decode_report(task.run(iter([batch(rows)]), 0, portions=False).report)
    assert (report.failed, report.missing, report.events) == ({7: 2}, {7: 1}, {"truncates": 1, "lost": 1})
    assert written(client, topic) == []


def test_a_batch_beyond_the_stage_space_is_committed_in_portions(tmp_path: Path) -> None:
    settings = server_settings(tmp_path / "data", TOPICS_MAX_STAGED_BYTES="20000")
    with running_server(settings) as url, Client(url) as client:
        client.create("t")
        text = json.dumps("x" * 2000)
        rows = [batch([row(seq, text) for seq in range(start, start + 1000)]) for start in range(1, 3001, 1000)]
        with pytest.raises(StagesFull):
            RoutingTask(client, targets("t"), "q", 0).run(iter(rows), 0, portions=False)
        RoutingTask(client, targets("t"), "q", 0).run(iter(rows), 0, portions=True)
        assert client.info("t").count == 3000


@pytest.mark.parametrize("seed", range(4))
def test_a_task_killed_between_portions_repeats_and_leaves_out_nothing(
    client: Client, topic: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later attempts may be of either kind, and have other batches."""
    chance = random.Random(seed)
    client.create(topic)
    rows = [row(seq) for seq in range(50, 950)]
    commits = [0]
    commit = client.commit

    def killed_at_times(*given: Any, **named: Any) -> Any:
        commits[0] += 1
        if chance.random() < 0.3:
            raise KeyboardInterrupt
        done = commit(*given, **named)
        if chance.random() < 0.3:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(client, "commit", killed_at_times)
    while True:
        size = chance.choice([90, 333, 900])
        batches = [batch(rows[start : start + size]) for start in range(0, len(rows), size)]
        task = RoutingTask(client, targets(topic), topic, 0)
        try:
            task.run(iter(batches), 3, portions=commits[0] < 5 or chance.random() < 0.5)
            break
        except KeyboardInterrupt:
            continue
    assert written(client, topic) == [str(seq) for seq in range(50, 950)]


def test_a_small_batch_has_one_task_and_a_large_one_is_shared_in_order() -> None:
    assert len(share_among_tasks([SeqRange("t", n, 1, 1, 5) for n in range(9)], 8)) == 1
    ranges = [SeqRange("t", 1, 1, 1, 3 * MIN_TASK_SEQS), SeqRange("t", 0, 1, 5, MIN_TASK_SEQS)]
    tasks = share_among_tasks(ranges, 2)
    assert len(tasks) == 2
    seqs = [(each.partition, seq) for task in tasks for each in task for seq in range(each.first, each.last + 1)]
    assert seqs == sorted(seqs)
    assert len(seqs) == sum([each.seqs for each in ranges])
