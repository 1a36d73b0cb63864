"""What the archive job plans, and a driver that dies at any step, played without Spark."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from topics.archive.ledger import NOT_ARCHIVED, ArchiveError, Position, open_archive
from topics.archive.piece import Work
from topics.client import Client, TopicInfo
from topics.client.values import PartitionInfo
from topics.spark.archive import source as module
from topics.spark.archive.job import ArchiveBatches, ArchiveJob, Upkeep, archive_jobs
from topics.spark.archive.sink import ArchiveWriter
from topics.spark.archive.source import ArchivePlan, ArchiveReader, end_of_batch, plan_batch


def info(*heads: int, epoch: int = 7) -> TopicInfo:
    partitions = [PartitionInfo(number, head, 1, head, 0) for number, head in enumerate(heads)]
    return TopicInfo("t", heads[0], 1, heads[0] + 1, heads[0], 0, {}, 0, epoch=epoch, partitions=partitions)


def test_a_batch_ends_at_the_heads_or_where_it_is_large_enough() -> None:
    at = Position(7, (11, 1))
    assert end_of_batch(info(20, 5), at, None) == {"epoch": 7, "0": 21, "1": 6}
    assert end_of_batch(info(20, 5), at, 6) == {"epoch": 7, "0": 15, "1": 3}
    assert end_of_batch(info(20, 5), at, None, {"0": 16}) == {"epoch": 7, "0": 16, "1": 1}
    assert end_of_batch(info(10, 0), at, None) == {"epoch": 7, "0": 11, "1": 1}
    assert end_of_batch(info(3, epoch=8), at, None) == {"epoch": 8, "0": 4}


@pytest.mark.parametrize(
    ("found", "message"),
    [(info(9, 0), "ends at 9, but its archive at 10"), (info(20, 5, epoch=6), "archive .* is of its epoch 7")],
)
def test_a_server_with_an_older_state_is_refused(found: TopicInfo, message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        end_of_batch(found, Position(7, (11, 1)), None)


def test_work_begins_at_the_position_of_the_table() -> None:
    at, end = Position(7, (11, 1)), {"epoch": 7, "0": 21, "1": 6}
    assert plan_batch(info(30, 5), at, NOT_ARCHIVED, end, 4) == [Work("t", 0, 7, 11, 20), Work("t", 1, 7, 1, 5)]
    assert plan_batch(info(30, 5), Position(7, (21, 6)), NOT_ARCHIVED, end, 4) == []
    assert plan_batch(info(30, 5), Position(7, (16, 3)), Position(7, (9, 5)), end, 4) == [
        Work("t", 0, 7, 16, 20, 9),
        Work("t", 1, 7, 3, 5, 5),
    ]
    # A head that has gone back meanwhile.
    assert plan_batch(info(15, 0), at, NOT_ARCHIVED, end, 4) == [Work("t", 0, 7, 11, 15)]


def test_large_batches_are_divided_among_the_available_tasks() -> None:
    works = plan_batch(info(1_000_000), NOT_ARCHIVED, NOT_ARCHIVED, {"epoch": 7, "0": 1_000_001}, 4)
    assert [(work.first, work.last) for work in works] == [
        (1, 250_000),
        (250_001, 500_000),
        (500_001, 750_000),
        (750_001, 1_000_000),
    ]
    assert len(plan_batch(info(200_000), NOT_ARCHIVED, NOT_ARCHIVED, {"epoch": 7, "0": 200_001}, 4)) == 1


def test_a_topic_created_again_ends_the_old_instance_and_begins_at_one() -> None:
    at = Position(5, (4, 9))
    assert plan_batch(info(2), at, NOT_ARCHIVED, {"epoch": 7, "0": 3}, 4) == [
        Work("t", 0, 5, 4, 4, begins=7),
        Work("t", 1, 5, 9, 9, begins=7),
        Work("t", 0, 7, 1, 2),
    ]
    assert plan_batch(info(2, epoch=8), at, NOT_ARCHIVED, {"epoch": 7, "0": 3}, 4) == [], "created again, once more"


def test_there_is_a_job_for_every_archive(client: Client, topic: str, tmp_path: Path) -> None:
    client.create(topic)
    client.set_archive(topic, str(tmp_path), freshness_ms=2000, compact_interval_ms=5000, vacuum_hours=3)
    jobs = [job for job in archive_jobs(client) if job.name == f"archive {topic}"]
    assert jobs == [ArchiveJob(topic, str(tmp_path), 2000, 5000, 3)]
    assert jobs[0].kind == "archive"
    client.clear_archive(topic)
    assert [job for job in archive_jobs(client) if job.name == f"archive {topic}"] == []


class Died(Exception):
    """The driver is gone, with all it had in its memory."""


class Checkpoint:
    """What Spark keeps of a query: which batches were planned, and which of them are done."""

    def __init__(self) -> None:
        self.planned: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.done = 0


class Driver:
    """Does what Spark does with source and sink, and dies before its nth step."""

    def __init__(self, client: Client, topic: str, uri: str, checkpoint: Checkpoint, die_at: int | None) -> None:
        self._plan = ArchivePlan(client.url, None, topic, uri, 4, 2)
        self._checkpoint = checkpoint
        self._left = die_at
        self._topic = topic
        open_archive(uri, create=True)
        module.open_tables.clear()

    def _step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Died

    def run(self) -> None:
        """Until everything is archived."""
        kept = self._checkpoint
        reader = ArchiveReader(self._plan)
        for _ in range(100):
            self._step()
            if kept.done == len(kept.planned):
                start = kept.planned[-1][1] if kept.planned else reader.initialOffset()
                end = reader.latestOffset(start, ReadMaxRows(4))
                if end == start:
                    return
                self._step()
                kept.planned.append((start, end))
            self._batch(reader, *kept.planned[-1])
            self._step()
            kept.done = len(kept.planned)
        raise AssertionError("it never came to an end")

    def _batch(self, reader: ArchiveReader, start: dict[str, Any], end: dict[str, Any]) -> None:
        writer = ArchiveWriter(self._plan, len(self._checkpoint.planned))
        messages: list[Any] = []
        for partition in reader.partitions(start, end):
            self._step()
            messages.append(writer.write(reader.read(partition)))
        self._step()
        writer.commit(messages)


def table(uri: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    order = [(name, "ascending") for name in ("epoch", "partition", "seq")]
    return list(pa.table(DeltaTable(uri).to_pyarrow_table()).sort_by(order).to_pylist())


def deaths(client: Client, topic: str, uri: str, keep_checkpoint: bool) -> Iterator[int]:
    """Drivers that die one after another, each a step later than the one before, until one does not."""
    checkpoint = Checkpoint()
    for step in itertools.count():
        try:
            Driver(client, topic, uri, checkpoint if keep_checkpoint else Checkpoint(), step).run()
            return
        except Died:
            yield step


@pytest.mark.parametrize("keep_checkpoint", [True, False], ids=["checkpoint kept", "checkpoint lost"])
def test_a_driver_that_dies_at_any_step_archives_every_record_once(
    client: Client, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_checkpoint: bool
) -> None:
    monkeypatch.setattr(module, "TASK_SEQS", 2)
    uri = str(tmp_path / "table")
    client.create(topic, partitions=2)
    client.append(topic, list(range(9)), partition=0)
    client.append(topic, list(range(5)), partition=1)
    died = 0
    for died in deaths(client, topic, uri, keep_checkpoint):
        # Something new all the time, so that there is always something to die in.
        if died < 12:
            client.append(topic, [died], partition=died % 2)
    assert died > 8
    heads = {each.partition: each.head_seq for each in client.info(topic).partitions}
    assert [(row["partition"], row["seq"]) for row in table(uri)] == [
        (number, seq) for number, head in heads.items() for seq in range(1, head + 1)
    ]
    epoch = client.info(topic).epoch
    assert open_archive(uri).archived_through(topic) == {number: (epoch, head + 1) for number, head in heads.items()}


@pytest.mark.parametrize("step", range(14))
def test_a_topic_created_again_during_driver_crashes_is_archived_with_a_recreated_tombstone(
    client: Client, topic: str, tmp_path: Path, step: int
) -> None:
    uri = str(tmp_path / "table")
    checkpoint = Checkpoint()
    client.create(topic)
    client.append(topic, ["old"] * 6)
    old = client.info(topic).epoch
    try:
        Driver(client, topic, uri, checkpoint, step).run()
    except Died:
        pass
    archived = open_archive(uri).position(topic)
    client.drop(topic)
    client.create(topic)
    client.append(topic, ["new"] * 5)
    new = client.info(topic).epoch
    Driver(client, topic, uri, checkpoint, None).run()
    found = [(row["epoch"], row["seq"], row["kind"], row["gap_from"], row["reason"]) for row in table(uri)]
    before = [(old, seq, "record", None, None) for seq in range(1, archived.next_seq(old, 0))]
    # What an instance held of which nothing had been archived is not known to the table.
    ended = [(old, at, "tombstone", at, "recreated") for at in archived.next_seqs]
    assert found == before + ended + [(new, seq, "record", None, None) for seq in range(1, 6)]


def test_empty_partitions_and_topics_are_archived_without_error(client: Client, topic: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    checkpoint = Checkpoint()
    client.create(topic, partitions=3)
    Driver(client, topic, uri, checkpoint, None).run()
    assert table(uri) == []
    client.append(topic, [1])
    Driver(client, topic, uri, checkpoint, None).run()
    client.append(topic, [2], partition=2)
    Driver(client, topic, uri, checkpoint, None).run()
    assert [(row["partition"], row["seq"]) for row in table(uri)] == [(0, 1), (2, 1)]
    epoch = client.info(topic).epoch
    assert open_archive(uri).archived_through(topic) == {0: (epoch, 2), 1: (epoch, 1), 2: (epoch, 2)}


def test_a_queue_is_archived_as_its_log(client: Client, topic: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    client.create(topic, type="queue")
    client.append(topic, ["a", "b"])
    (job,) = client.claim(topic, "worker").claimed
    Driver(client, topic, uri, Checkpoint(), None).run()
    client.ack(topic, "worker", [job.seq])
    client.append(topic, ["c"])
    Driver(client, topic, uri, Checkpoint(), None).run()
    assert [row["data"] for row in table(uri)] == ['"a"', '"b"', '"c"']


def test_a_removed_table_is_created_again_and_filled(client: Client, topic: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    client.create(topic)
    client.append(topic, list(range(4)))
    Driver(client, topic, uri, Checkpoint(), None).run()
    shutil.rmtree(uri)
    client.append(topic, [4])
    # Another table has another id, and so another checkpoint.
    Driver(client, topic, uri, Checkpoint(), None).run()
    assert [row["seq"] for row in table(uri)] == [1, 2, 3, 4, 5]


def test_retention_under_a_running_archive_loses_nothing_unseen(client: Client, topic: str, tmp_path: Path) -> None:
    """Every seq is in the table once: as a record, or within a tombstone."""
    uri = str(tmp_path / "table")
    checkpoint = Checkpoint()
    client.create(topic, cap_records=5)
    for number in range(40):
        client.append(topic, [number])
        if number % 7 == 0:
            Driver(client, topic, uri, checkpoint, None).run()
    Driver(client, topic, uri, checkpoint, None).run()
    covered = [seq for row in table(uri) for seq in range(row["gap_from"] or row["seq"], row["seq"] + 1)]
    assert covered == list(range(1, 41))
    kinds = {row["kind"] for row in table(uri)}
    assert kinds == {"record", "tombstone"}


def test_the_next_driver_sends_the_report_of_a_killed_one(client: Client, topic: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    client.create(topic)
    client.append(topic, [1, 2, 3])
    client.set_archive(topic, uri)
    Driver(client, topic, uri, Checkpoint(), None).run()
    assert client.archive(topic).archived == []  # type: ignore[union-attr]
    progress: dict[str, Any] = {}
    plan = ArchivePlan(client.url, None, topic, uri, 4, 2)
    ArchiveBatches(ArchiveJob(topic, uri, 1000, 0, 0), plan, open_archive(uri), progress.update).report()
    archived = client.archive(topic)
    assert archived is not None
    assert [each.next_seq for each in archived.archived] == [4]
    assert (progress["lag"], progress["table_version"]) == (0, archived.table_version)


def test_a_failed_report_does_not_fail_the_archive(client: Client, topic: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    client.create(topic)
    progress: dict[str, Any] = {}
    plan = ArchivePlan(client.url, None, topic, uri, 4, 2)
    ArchiveBatches(ArchiveJob(topic, uri, 1000, 0, 0), plan, open_archive(uri, create=True), progress.update).report()
    assert (progress["table_version"], progress["rows"]) == (0, 0), "the topic has no archive any more"
    assert "lag" not in progress


class FakeLedger:
    def __init__(self, trouble: bool = False) -> None:
        self.done: list[str] = []
        self._trouble = trouble

    def compact(self, topic: str) -> int:
        return self._do(f"compact {topic}")

    def vacuum(self, hours: int) -> int:
        return self._do(f"vacuum {hours}")

    def _do(self, what: str) -> int:
        self.done.append(what)
        if self._trouble:
            raise RuntimeError("the store says no")
        return 3


def wanted_until(ended: Callable[[], bool], most: int = 4000) -> Callable[[], bool]:
    rounds = itertools.count()
    return lambda: not ended() and next(rounds) < most


def test_upkeep_is_done_on_its_schedule_until_the_query_ends() -> None:
    ledger, progress = FakeLedger(), {}
    job = ArchiveJob("t", "u", 1000, 1, 2)
    wanted = wanted_until(lambda: len(ledger.done) > 4)
    Upkeep(job, ledger, progress.update, wanted, check_interval_s=0.001).run()  # type: ignore[arg-type]
    assert ledger.done[:3] == ["compact t", "vacuum 2", "compact t"]
    assert ledger.done.count("vacuum 2") == 1, "once a day at most"
    assert progress["compacted"]["files"] == 3


def test_failed_upkeep_is_reported_and_retried() -> None:
    ledger, progress = FakeLedger(trouble=True), {}
    wanted = wanted_until(lambda: ledger.done.count("compact t") > 2)
    Upkeep(ArchiveJob("t", "u", 1000, 1, 0), ledger, progress.update, wanted, check_interval_s=0.001).run()  # type: ignore[arg-type]
    assert progress["upkeep_error"] == "not compacted: the store says no"
    assert set(ledger.done) == {"compact t"}


def test_upkeep_can_be_turned_off() -> None:
    ledger: Any = FakeLedger()
    Upkeep(
        ArchiveJob("t", "u", 1000, 0, 0), ledger, {}.update, wanted_until(lambda: False, 50), check_interval_s=0.001
    ).run()
    assert ledger.done == []
