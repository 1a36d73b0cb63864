"""Compaction and vacuum: fewer files, the same rows, the same positions."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from tests.archive.copier import Copier, rows_of
from topics.archive.history import History
from topics.archive.ledger import open_archive
from topics.client import Client


def data_files(uri: str) -> set[str]:
    return {str(path) for path in Path(uri).rglob("*.parquet") if "_delta_log" not in path.parts}


def make_old(uri: str, hours: int) -> None:
    then = time.time() - hours * 3600
    for path in data_files(uri):
        os.utime(path, (then, then))


def small_files(client: Client, copier: Copier, count: int) -> None:
    client.create(copier.topic, partitions=2)
    for number in range(count):
        for partition in (0, 1):
            client.append(copier.topic, [{"n": number}] * 3, partition=partition)
            copier.up_to(3 * (number + 1), partition=partition)


def test_compaction_keeps_every_row_and_every_position(client: Client, topic: str, copier: Copier) -> None:
    small_files(client, copier, 4)
    archive = copier.archive
    before, through = rows_of(archive.uri), archive.archived_through(topic)
    assert archive.compact(topic) == 8
    archive.refresh()
    (file,) = archive.files(topic)
    assert (file.rows, file.min_seq, file.max_seq, file.min_partition, file.max_partition) == (24, 1, 12, 0, 1)
    assert file.no_gaps
    assert rows_of(archive.uri) == before
    assert archive.archived_through(topic) == through == {0: (copier.epoch, 13), 1: (copier.epoch, 13)}
    # And the job goes on from there, the history as well.
    client.append(topic, ["more"], partition=1)
    copier.up_to(13, partition=1)
    assert archive.compact(topic) == 2
    archive.refresh()
    found = [seq for rows in History(archive, topic, copier.epoch).read(1, 5, 13) for seq in rows["seq"].to_pylist()]
    assert found == list(range(5, 14))


def test_compaction_leaves_other_topics_of_the_table_alone(client: Client, topic: str, copier: Copier) -> None:
    small_files(client, copier, 2)
    other = Copier(client, copier.archive, f"{topic}.other")
    small_files(client, other, 2)
    assert copier.archive.compact(topic) == 4
    copier.archive.refresh()
    assert len(copier.archive.files(topic)) == 1
    assert len(copier.archive.files(other.topic)) == 4


def test_commits_and_compaction_do_not_stop_each_other(client: Client, topic: str, copier: Copier) -> None:
    client.create(topic)
    client.append(topic, list(range(60)))
    over = threading.Event()
    compacted: list[int] = []

    def compact() -> None:
        mine = open_archive(copier.archive.uri)
        while not over.is_set():
            compacted.append(mine.compact(topic))

    thread = threading.Thread(target=compact)
    thread.start()
    try:
        for last in range(2, 61, 2):
            copier.up_to(last)
    finally:
        over.set()
        thread.join()
    assert sum(compacted) > 0
    assert [row["seq"] for row in rows_of(copier.archive.uri)] == list(range(1, 61))
    assert copier.archive.archived_through(topic) == {0: (copier.epoch, 61)}


def test_vacuum_removes_what_nobody_names_and_only_when_it_is_old(client: Client, topic: str, copier: Copier) -> None:
    small_files(client, copier, 2)
    archive = copier.archive
    before = rows_of(archive.uri)
    named = data_files(archive.uri)
    # Of a task whose driver died before the commit.
    orphan = copier.copy(1, 3)
    orphans = data_files(archive.uri) - named
    assert len(orphans) == len(orphan.files) == 1
    assert archive.vacuum(1) == 0, "it is too young: its commit may be on the way"
    make_old(archive.uri, 2)
    assert archive.vacuum(1) == 1
    assert data_files(archive.uri) == named
    # What compaction replaced stays for those who are still reading it.
    archive.compact(topic)
    make_old(archive.uri, 2)
    assert archive.vacuum(1) == 0
    assert named < data_files(archive.uri)
    assert rows_of(archive.uri) == before
    archive.refresh()
    assert archive.archived_through(topic) == {0: (copier.epoch, 7), 1: (copier.epoch, 7)}


def test_positions_survive_the_checkpoints_of_the_log(client: Client, topic: str, copier: Copier) -> None:
    from deltalake import DeltaTable

    small_files(client, copier, 1)
    DeltaTable(copier.archive.uri).create_checkpoint()
    log = Path(copier.archive.uri) / "_delta_log"
    for path in log.glob("*.json"):
        path.unlink()
    assert open_archive(copier.archive.uri).archived_through(topic) == {0: (copier.epoch, 4), 1: (copier.epoch, 4)}


def test_rows_erased_by_hand_stay_erased_and_the_archive_goes_on(client: Client, topic: str, copier: Copier) -> None:
    """As docs/archive.md says how to erase what must not be kept."""
    from deltalake import DeltaTable

    client.create(topic)
    client.append(topic, [{"user": "ada"}, {"user": "bob"}, {"user": "ada"}])
    copier.up_to(3)
    erased: dict[str, Any] = DeltaTable(copier.archive.uri).delete(f"topic = '{topic}' AND data LIKE '%\"ada\"%'")
    assert erased["num_deleted_rows"] == 2
    client.append(topic, [{"user": "eve"}])
    assert copier.up_to(4).records == 1
    history = History(copier.archive, topic, copier.epoch)
    assert [row["data"] for rows in history.read(0, 1, 4) for row in rows.to_pylist()] == [
        '{"user":"bob"}',
        '{"user":"eve"}',
    ]
