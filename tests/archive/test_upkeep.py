"""Compaction and vacuum: fewer files, the same rows, the same positions."""

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.archive.copier import Copier, rows_of
from topics.archive.history import History
from topics.archive.ledger import (
    REMOVED_FILE_RETENTION,
    VACUUM_MARGIN_HOURS,
    ArchiveError,
    open_archive,
    open_quarantine,
)
from topics.archive.rows import PARTITION_BY, SCHEMA
from topics.client import Client
from topics.model.tables.archive import DEFAULT_VACUUM_HOURS


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
    # The job and the history continue from that position.
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


def age_removals(uri: str, hours: int) -> None:
    """Have the log say that every file it has removed went this long ago."""
    then_ms = int((time.time() - hours * 3600) * 1000)
    for path in (Path(uri) / "_delta_log").glob("*.json"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(r'("deletionTimestamp":)\d+', rf"\g<1>{then_ms}", text), encoding="utf-8")


def test_vacuum_removes_compacted_files_only_after_the_delay(client: Client, topic: str, copier: Copier) -> None:
    small_files(client, copier, 2)
    archive = copier.archive
    before = rows_of(archive.uri)
    compacted = data_files(archive.uri)
    archive.compact(topic)
    assert archive.vacuum(1) == 0, "readers of the version before may still need them"
    age_removals(archive.uri, 2)
    assert archive.vacuum(1) == len(compacted)
    assert not data_files(archive.uri) & compacted
    assert rows_of(archive.uri) == before
    archive.refresh()
    assert archive.archived_through(topic) == {0: (copier.epoch, 7), 1: (copier.epoch, 7)}


def test_vacuum_removes_no_file_that_the_log_does_not_know(client: Client, topic: str, copier: Copier) -> None:
    small_files(client, copier, 2)
    archive = copier.archive
    root = Path(archive.uri)
    foreign = [root / "notes.txt", root / "other.parquet", root / "sub" / "deep.csv", root / "topic=x" / "a.parquet"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("not ours", encoding="utf-8")
    # Of a task whose driver died before the commit.
    before = data_files(archive.uri)
    copier.copy(1, 3)
    foreign += [Path(path) for path in data_files(archive.uri) - before]
    archive.compact(topic)
    for path in root.rglob("*"):
        os.utime(path, (1, 1))
    age_removals(archive.uri, 1000)
    assert archive.vacuum(1) == 4
    assert [path for path in foreign if not path.exists()] == []


@pytest.mark.parametrize("hours", [1, DEFAULT_VACUUM_HOURS, 1000])
def test_removed_files_are_vacuumed_also_after_a_checkpoint_of_the_log(
    client: Client, topic: str, copier: Copier, hours: int
) -> None:
    """Checkpoints forget removals that are old enough; they must not before the vacuum that waits for them."""
    small_files(client, copier, 2)
    archive = copier.archive
    archive.compact(topic)
    archive.vacuum(hours)
    age_removals(archive.uri, hours + 30)
    DeltaTable(archive.uri).create_checkpoint()
    for path in sorted((Path(archive.uri) / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    assert archive.vacuum(hours) == 4


def test_vacuum_sets_the_removal_retention_of_an_older_table(
    client: Client, topic: str, copier: Copier, tmp_path: Path
) -> None:
    uri = str(tmp_path / "older")
    DeltaTable.create(uri, SCHEMA, partition_by=PARTITION_BY)
    older = open_archive(uri, create=True)
    older.vacuum(DEFAULT_VACUUM_HOURS)
    kept = DeltaTable(uri).metadata().configuration[REMOVED_FILE_RETENTION]
    assert kept == f"interval {DEFAULT_VACUUM_HOURS + VACUUM_MARGIN_HOURS} hours"
    version = DeltaTable(uri).version()
    older.vacuum(DEFAULT_VACUUM_HOURS)
    assert [each["operation"] for each in DeltaTable(uri).history() if each["version"] > version] == [], "once"


# Places that are not ours


@pytest.mark.parametrize("name", ["notes.txt", "sub/x", "_delta_log/readme", ".hidden", "data.parquet"])
def test_a_directory_that_is_not_empty_and_holds_no_archive_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "table" / name
    path.parent.mkdir(parents=True)
    path.write_text("not ours", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    for uri in (str(tmp_path / "table"), f"file://{tmp_path}/table"):
        with pytest.raises(ArchiveError, match="is not empty and holds no archive"):
            open_archive(uri, create=True)
    assert sorted(tmp_path.rglob("*")) == before, "nothing was written there"


def test_a_quarantine_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table_quarantine").mkdir()
    (tmp_path / "table_quarantine" / "notes.txt").write_text("not ours", encoding="utf-8")
    with pytest.raises(ArchiveError, match="is not empty and holds no archive"):
        open_quarantine(str(tmp_path / "table"), create=True)


def test_an_empty_directory_and_files_of_a_killed_creation_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    open_archive(str(tmp_path / "empty"), create=True)
    log = tmp_path / "killed" / "_delta_log"
    log.mkdir(parents=True)
    (log / "_commit_0f3c.json.tmp").write_text("{", encoding="utf-8")
    (log / "00000000000000000000.json#1").write_text("{", encoding="utf-8")
    open_archive(str(tmp_path / "killed"), create=True)


def test_positions_survive_the_checkpoints_of_the_log(client: Client, topic: str, copier: Copier) -> None:
    from deltalake import DeltaTable

    small_files(client, copier, 1)
    DeltaTable(copier.archive.uri).create_checkpoint()
    log = Path(copier.archive.uri) / "_delta_log"
    for path in log.glob("*.json"):
        path.unlink()
    assert open_archive(copier.archive.uri).archived_through(topic) == {0: (copier.epoch, 4), 1: (copier.epoch, 4)}


def test_rows_erased_by_hand_stay_erased_and_the_archive_continues(client: Client, topic: str, copier: Copier) -> None:
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
