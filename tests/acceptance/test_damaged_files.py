"""A server process on a data directory with damaged files: it starts, serves everything else and says what is missing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics.client import Client
from topics.model.errors import TopicsError
from topics.spark.connector.ranges import SeqRange
from topics.spark.connector.reading import read_range
from topics.testing.process import ServerEnded, ServerProcess

SETTINGS = {"TOPICS_SEGMENT_BYTES": "4096", "TOPICS_HOT_BYTES": "4096", "TOPICS_CHECKPOINT_BYTES": "16384"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A stopped server whose topics `bad` and `good` have several segments each."""
    with ServerProcess(tmp_path, **SETTINGS) as process:
        for name in ("bad", "good"):
            for number in range(20):
                records = [{"data": f"{name}-{number * 10 + each + 1}" + "x" * 50, "tag": "t"} for each in range(10)]
                assert process.request("POST", f"/v0/topics/{name}", {"records": records})[0] in (200, 201)
        assert process.stop() == 0
        yield process


def files(server: ServerProcess, topic_id: int, suffix: str) -> list[Path]:
    return sorted((server.data_dir / "segments").glob(f"{topic_id:016x}-*{suffix}"))


def topics(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "topics.cli.main", *arguments, str(server.data_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def read(server: ServerProcess, name: str) -> tuple[list[str], list[dict[str, Any]]]:
    """All records that can be read, and the errors on the way."""
    datas, errors = [], []
    cursor = 0
    while True:
        status, body = server.request("POST", f"/v0/topics/{name}/diff", {"from_seq": cursor, "limit": 1000})
        if status == 200:
            datas += [record["data"].rstrip("x") for record in body["records"]]
            cursor = body["next_from_seq"]
            if body["caught_up"]:
                return datas, errors
        else:
            errors.append(body["error"])
            cursor = body["error"]["detail"]["last_seq"]


def test_server_with_damaged_segments_serves_everything_else_and_names_what_is_missing(server: ServerProcess) -> None:
    first, second, *_ = files(server, 1, ".arrow")
    first.write_bytes(b"")
    files(server, 1, ".dead")[1].unlink()
    for path in files(server, 2, ".tags"):
        path.unlink()
    server.start()

    good, errors = read(server, "good")
    assert (good, errors) == ([f"good-{number}" for number in range(1, 201)], [])
    bad, errors = read(server, "bad")
    assert [error["code"] for error in errors] == ["corrupt_storage"] * 2
    ranges = [(error["detail"]["first_seq"], error["detail"]["last_seq"]) for error in errors]
    damaged = {seq for low, high in ranges for seq in range(low, high + 1)}
    assert ranges[0][0] == 1
    assert bad == [f"bad-{number}" for number in range(1, 201) if number not in damaged]

    status, appended = server.request("POST", "/v0/topics/bad", {"records": [{"data": "new"}]})
    assert (status, appended["last_seq"]) == (200, 201)
    assert server.request("POST", "/v0/topics/good/delete", {"match": "t"})[1]["deleted"] == 200

    ready = server.request("GET", "/v0/ready")[1]
    assert (ready["status"], ready["degraded"]) == ("ready", True)
    named = [
        (first.relative_to(server.data_dir).as_posix(), ranges[0]),
        (second.relative_to(server.data_dir).as_posix().replace(".arrow", ".dead"), ranges[1]),
    ]
    assert server.stop() == 0
    checked = topics(server, "check")
    assert checked.returncode == 11
    reasons = [reason["reason"] for reason in ready["reasons"]]
    for path, (low, high) in named:
        records = f"records {low} to {high} cannot be read"
        assert any([path in reason and records in reason for reason in reasons])
        assert any([path in line and records in line and "degraded" in line for line in server.logs.splitlines()])
        assert any([path in line and records in line for line in checked.stdout.splitlines()])
    assert "topics repair" in checked.stdout


@pytest.mark.parametrize("transport", ["arrow", "json"])
def test_spark_gets_the_records_before_a_damaged_range_and_an_error_that_names_it(
    server: ServerProcess, transport: str
) -> None:
    path = files(server, 1, ".arrow")[1]
    path.write_bytes(path.read_bytes()[:-1])
    server.start()
    (error,) = read(server, "bad")[1]
    low, high = error["detail"]["first_seq"], error["detail"]["last_seq"]
    seqs: list[int] = []
    with Client(server.url) as client:
        wanted = SeqRange("bad", 0, client.diff("bad").epoch, 1, 200)
        batches = read_range(client, wanted, transport=transport, on_data_loss="ignore")
        named = rf'records {low} to {high} of topic "bad", partition 0, are damaged'
        with pytest.raises(TopicsError, match=named):
            seqs.extend(seq for batch in batches for seq in batch.column("seq").to_pylist())
    assert seqs == list(range(1, low))
    printed = subprocess.run(
        [sys.executable, "-m", "topics.cli.main", "read", "bad", "--url", server.url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert printed.returncode != 0
    assert f'records {low} to {high} of topic "bad"' in printed.stderr
    assert len(printed.stdout.splitlines()) == low - 1


def test_repair_gives_up_what_is_damaged_and_the_next_start_is_whole(server: ServerProcess) -> None:
    first, *_ = files(server, 1, ".arrow")
    first.write_bytes(first.read_bytes()[:100])
    before = sorted(server.data_dir.rglob("*"))
    planned = topics(server, "repair", "--dry-run")
    assert planned.returncode == 10
    assert sorted(server.data_dir.rglob("*")) == before
    server.start()
    refused = topics(server, "repair")
    assert (refused.returncode, "a server is using" in refused.stderr) == (4, True)
    (error,) = read(server, "bad")[1]
    low, high = error["detail"]["first_seq"], error["detail"]["last_seq"]
    assert server.stop() == 0

    repaired = topics(server, "repair")
    assert repaired.returncode == 0
    for output in (planned.stdout, repaired.stdout):
        assert f'lost: topic "bad", partition 0: records {low} to {high}' in output
    assert f"{high - low + 1} records are lost" in repaired.stdout
    assert (server.data_dir / "damaged" / first.name).exists()
    assert topics(server, "check").returncode == 0
    again = topics(server, "repair")
    assert (again.returncode, "Nothing is damaged" in again.stdout) == (0, True)

    server.start()
    assert server.request("GET", "/v0/ready")[1]["degraded"] is False
    body = server.request("POST", "/v0/topics/bad/diff", {"from_seq": 0, "limit": 1000})[1]
    tombstone = body["tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"], tombstone["cause"]) == (low, high, "damage")
    bad, errors = read(server, "bad")
    assert (bad, errors) == ([f"bad-{number}" for number in range(high + 1, 201)], [])
    assert read(server, "good") == ([f"good-{number}" for number in range(1, 201)], [])


def test_damage_in_the_middle_of_the_log_stops_the_start_with_file_and_offset(server: ServerProcess) -> None:
    server.start()
    for number in range(5):
        server.request("PUT", f"/v0/topics/new-{number}", {"durability": "fsync"})
    server.kill()
    log = max((server.data_dir / "wal").rglob("*.wal"), key=lambda path: (path.stat().st_mtime, path.name))
    content = bytearray(log.read_bytes())
    content[110] ^= 0x10
    log.write_bytes(content)
    with pytest.raises(ServerEnded, match=rf"{log.name} at byte 96: a frame that was safely stored is broken"):
        server.start()
    assert topics(server, "check").returncode == 11
    repaired = topics(server, "repair")
    assert (repaired.returncode, log.name in repaired.stdout) == (11, True)
