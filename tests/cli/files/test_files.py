"""Export and import: what comes out goes in again, in both formats."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from topics.cli.main import main
from topics.client import Client, Record, RecordIn


@pytest.fixture(autouse=True)
def client(shared_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    monkeypatch.setenv("TOPICS_URL", shared_url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with Client(shared_url) as client:
        yield client


def contents(client: Client, topic: str, partition: int = 0) -> list[Any]:
    found = client.read(topic, partition=partition)
    return [(each.data, each.tag, each.node, each.meta) for each in found if isinstance(each, Record)]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_export_is_imported_with_tags_nodes_meta_and_partitions(suffix: str, client: Client, tmp_path: Path) -> None:
    source, copy, file = f"source-{suffix}", f"copy-{suffix}", str(tmp_path / f"records.{suffix}")
    for topic in (source, copy):
        client.create(topic, partitions=2)
    client.append(source, [RecordIn({"n": 1, "x": [None, "é"]}, tag="t", meta={"k": 1}), "text", None], node="n")
    client.append(source, [RecordIn(n) for n in range(1500)], partition=1)
    assert main(["export", source, file]) == 0
    assert main(["import", copy, file]) == 0
    for partition in (0, 1):
        assert contents(client, copy, partition) == contents(client, source, partition)
    assert len(contents(client, copy, 1)) == 1500


def test_a_parquet_export_has_columns_that_other_tools_read(client: Client, tmp_path: Path) -> None:
    client.append("columns", [RecordIn({"n": 1}, tag="t")])
    assert main(["export", "columns", str(tmp_path / "c.parquet")]) == 0
    (row,) = pyarrow.parquet.read_table(tmp_path / "c.parquet").to_pylist()
    assert (row["seq"], row["tag"], json.loads(row["data"])) == (1, "t", {"n": 1})


def test_times_limit_an_export(client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client.append("timed", [1, 2, 3])
    middle = next(iter(client.read("timed"))).ts + 1  # type: ignore[union-attr]
    assert main(["export", "timed", "-", "--to", str(middle)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["export", "timed", "-", "--from", str(middle + 60_000)]) == 0
    assert capsys.readouterr().out == ""


def test_a_failed_export_leaves_no_file(client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "missing", str(tmp_path / "x.jsonl")]) == 3
    assert main(["export", "sample", str(tmp_path / "x.txt")]) == 1
    assert "--format" in capsys.readouterr().err
    assert main(["export", "sample", str(tmp_path / "no" / "x.jsonl")]) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_bad_line_is_named_and_skip_continues_behind_what_was_written(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.jsonl"
    lines = [json.dumps({"data": n}) for n in range(1001)]
    file.write_text("\n".join([*lines, "{bad"]))
    assert main(["import", "lines", str(file)]) == 1
    err = capsys.readouterr().err
    assert "line 1002 is not a record" in err
    assert "--skip 1000 continues" in err
    file.write_text("\n".join(lines))
    assert main(["import", "lines", str(file), "--skip", "1000"]) == 0
    assert [each[0] for each in contents(client, "lines")] == list(range(1001))


def test_payload_lines_are_imported_as_they_are(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "payloads.jsonl"
    file.write_text('{"data": 1}\n"text"\n')
    assert main(["import", "payloads", str(file), "--payloads"]) == 0
    assert [each[0] for each in contents(client, "payloads")] == [{"data": 1}, "text"]


def test_an_import_creates_a_missing_topic_with_the_partitions_of_the_file(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "parted.jsonl"
    file.write_text('{"data": 1}\n{"data": 2, "partition": 2}\n')
    assert main(["import", "parted-import", str(file)]) == 0
    assert [len(contents(client, "parted-import", partition)) for partition in range(3)] == [1, 0, 1]
