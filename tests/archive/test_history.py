"""History: what was archived comes back, in order, and goes over into what is live."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.archive.copier import Copier
from topics.archive import history as module
from topics.archive.history import History, HistoryGone, read_files, read_records
from topics.archive.ledger import ArchiveError
from topics.client import Client, Record, Tombstone, UndecodablePayload
from topics.client.calls import RecordIn


def read(copier: Copier, first: int, last: int, partition: int = 0) -> list[tuple[Any, ...]]:
    copier.archive.refresh()
    found = History(copier.archive, copier.topic, copier.epoch).read(partition, first, last)
    return [(row["gap_from"], row["seq"]) for rows in found for row in rows.to_pylist()]


def fill(client: Client, copier: Copier, seqs: list[int]) -> None:
    """Archived up to each of these seqs with a commit of its own, payloads as their seqs."""
    client.create(copier.topic)
    before = 0
    for last in seqs:
        client.append(copier.topic, list(range(before + 1, last + 1)))
        copier.up_to(last)
        before = last


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_every_range_is_read_whole_and_in_order_whatever_the_window(
    client: Client, topic: str, copier: Copier, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(module, "_window", lambda files: step)
    fill(client, copier, [4, 5, 9])
    for first in range(1, 10):
        for last in range(first, 10):
            assert read(copier, first, last) == [(None, seq) for seq in range(first, last + 1)]


def test_only_files_that_may_hold_the_range_are_opened(client: Client, topic: str, copier: Copier) -> None:
    fill(client, copier, [10, 20, 30])
    history = History(copier.archive, topic, copier.epoch)
    assert len(history.files_between(0, 1, 30)) == 3
    assert [file.min_seq for file in history.files_between(0, 12, 15)] == [11]
    assert [file.min_seq for file in history.files_between(0, 20, 21)] == [11, 21]
    assert history.files_between(0, 31, 40) == []
    assert history.files_between(1, 1, 30) == []


@pytest.mark.parametrize("step", [1, 4, 1000])
def test_a_tombstone_is_cut_to_the_range_that_is_read(
    client: Client, topic: str, copier: Copier, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(module, "_window", lambda files: step)
    client.create(topic, cap_records=2)
    for number in range(1, 11):
        client.append(topic, [number])
        if number == 2:
            copier.up_to(2)
    copier.up_to(10)
    assert read(copier, 1, 10) == [(None, 1), (None, 2), (3, 8), (None, 9), (None, 10)]
    assert read(copier, 2, 5) == [(None, 2), (3, 5)]
    assert read(copier, 4, 6) == [(4, 6)]
    assert read(copier, 7, 9) == [(7, 8), (None, 9)]


def test_history_begins_after_records_lost_before_the_archive_existed(
    client: Client, topic: str, copier: Copier
) -> None:
    client.create(topic, cap_records=2)
    for number in range(1, 6):
        client.append(topic, [number])
    assert History(copier.archive, topic, copier.epoch).earliest(0) == 1
    copier.up_to(5)
    history = History(copier.archive, topic, copier.epoch)
    assert history.earliest(0) == 4
    assert history.next_seq(0) == 6
    assert (history.next_seq(7), history.earliest(7)) == (1, 1)


def test_a_time_is_found_in_the_archive(client: Client, topic: str, copier: Copier) -> None:
    fill(client, copier, [3, 6])
    times = [record.ts for record in client.read(topic) if isinstance(record, Record)]
    history = History(copier.archive, topic, copier.epoch)
    assert history.first_at_or_after(0, 0) == 1
    assert history.first_at_or_after(0, times[-1]) == 1 + times.index(times[-1])
    assert history.first_at_or_after(0, times[-1] + 1) is None


def test_a_file_removed_after_planning_raises_history_gone(client: Client, topic: str, copier: Copier) -> None:
    fill(client, copier, [3])
    history = History(copier.archive, topic, copier.epoch)
    files = history.files_between(0, 1, 3)
    for path in Path(copier.archive.uri).glob("topic=*/*/*.parquet"):
        path.unlink()
    with pytest.raises(HistoryGone, match="gone since this read was planned"):
        list(read_files(copier.archive.place, files, 0, copier.epoch, 1, 3))


# Archive and live, as one.


def items(client: Client, topic: str, **options: Any) -> list[Any]:
    found = read_records(client, topic, **options)
    return [(each.gap_from, each.gap_to, each.reason) if isinstance(each, Tombstone) else each.data for each in found]


def test_history_then_live_without_gap_or_overlap(client: Client, topic: str, copier: Copier) -> None:
    fill(client, copier, [4, 8])
    client.set_archive(topic, copier.archive.uri)
    client.append(topic, list(range(9, 13)))
    client.create(topic, cap_records=5)
    client.append(topic, [13])
    assert [record.data for record in client.read(topic) if isinstance(record, Record)] == [9, 10, 11, 12, 13]
    assert items(client, topic) == list(range(1, 14))
    for cursor in range(14):
        assert items(client, topic, from_seq=cursor) == list(range(cursor + 1, 14))


def test_records_of_history_are_those_that_were_written(client: Client, topic: str, copier: Copier) -> None:
    client.create(topic)
    written = [
        RecordIn({"a": [1, 2.5, None, "\u00e9"]}, tag="t", node="n", meta={"k": 1}),
        RecordIn(None),
        RecordIn("x"),
    ]
    client.append(topic, written)
    client.set_archive(topic, copier.archive.uri)
    live = list(client.read(topic))
    copier.up_to(3)
    client.delete(topic, before_seq=4)
    assert list(client.read(topic)) == []
    assert list(read_records(client, topic)) == live


def test_a_gap_between_archive_and_live_gives_a_tombstone(client: Client, topic: str, copier: Copier) -> None:
    fill(client, copier, [3])
    client.set_archive(topic, copier.archive.uri)
    client.create(topic, cap_records=2)
    for number in range(4, 9):
        client.append(topic, [number])
    assert items(client, topic) == [1, 2, 3, (4, 6, "cap"), 7, 8]


def test_a_record_evicted_during_a_read_is_found_in_the_archive(
    client: Client, topic: str, copier: Copier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive has the record by then: no reader may get a tombstone for it."""
    fill(client, copier, [3])
    client.set_archive(topic, copier.archive.uri)
    client.append(topic, [4, 5, 6, 7])
    found = read_records(client, topic)
    assert [next(found).data for _ in range(3)] == [1, 2, 3]  # type: ignore[union-attr]
    copier.up_to(6)
    client.create(topic, cap_records=1)
    client.append(topic, [8])
    assert [each.data if isinstance(each, Record) else each.gap_to for each in found] == [4, 5, 6, 7, 8]


def test_a_topic_without_an_archive_gives_the_live_records(client: Client, topic: str, tmp_path: Path) -> None:
    client.create(topic)
    client.append(topic, [1, 2])
    assert items(client, topic) == [1, 2]
    client.set_archive(topic, str(tmp_path / "not-yet"))
    assert items(client, topic) == [1, 2]
    assert not (tmp_path / "not-yet").exists(), "reading makes no table"


def test_a_removed_table_is_an_error_and_not_an_empty_history(client: Client, topic: str, copier: Copier) -> None:
    import shutil

    from topics.client import ArchivedTo

    fill(client, copier, [3])
    client.set_archive(topic, copier.archive.uri)
    client.archive_progress(topic, [ArchivedTo(0, copier.epoch, 4)], table_version=1)
    shutil.rmtree(copier.archive.uri)
    with pytest.raises(ArchiveError, match="there is no table"):
        items(client, topic)


def test_history_begins_at_a_time(client: Client, topic: str, copier: Copier) -> None:
    fill(client, copier, [3])
    client.set_archive(topic, copier.archive.uri)
    client.append(topic, [4])
    times = [record.ts for record in client.read(topic) if isinstance(record, Record)]
    assert items(client, topic, from_ts=times[0]) == [1, 2, 3, 4]
    assert items(client, topic, from_ts=times[-1] + 1) == []


def test_another_instance_of_the_topic_is_not_mixed_in(client: Client, topic: str, copier: Copier) -> None:
    fill(client, copier, [3])
    client.drop(topic)
    client.create(topic)
    client.append(topic, ["new"])
    client.set_archive(topic, copier.archive.uri)
    assert items(client, topic) == ["new"]


@pytest.mark.parametrize("archived", [1, 3], ids=["live", "archived"])
def test_a_lone_surrogate_is_read_as_the_client_asks_from_the_archive_too(
    client: Client, topic: str, copier: Copier, archived: int
) -> None:
    client.create(topic)
    body = rb'{"records":[{"data":1},{"data":"x\ud800y","meta":{"m":"\udc00"}},{"data":"\ud83d\ude00"}]}'
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{client.url}/v0/topics/{topic}", body, headers)).close()
    copier.up_to(archived)
    client.set_archive(topic, copier.archive.uri)

    def read_as(choice: Any) -> Iterator[tuple[Any, Any]]:
        with Client(str(client.url), lone_surrogates=choice) as reader:
            for item in read_records(reader, topic):
                assert isinstance(item, Record)
                yield item.data, item.meta

    assert list(read_as("replace")) == [(1, None), ("x\ufffdy", {"m": "\ufffd"}), ("\U0001f600", None)]
    assert list(read_as("raw")) == [(1, None), (rb'"x\ud800y"', rb'{"m":"\udc00"}'), ("\U0001f600", None)]
    reading = read_as("error")
    assert next(reading) == (1, None)
    with pytest.raises(UndecodablePayload, match="record 2"):
        next(reading)
