"""Archives and materialised tables on an S3-compatible store: a real server, credentials, restarts, concurrent writers."""

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from tests.archive.copier import Copier, rows_of
from topics.archive.history import read_records
from topics.archive.ledger import ArchiveError, Overtaken, open_archive
from topics.client import Client
from topics.spark.materialize.table import Change, MaterializedTable
from topics.spark.materialize.table import Overtaken as MaterializeOvertaken
from topics.spark.materialize.versions import decode_event

pytest.importorskip("moto")
pytestmark = pytest.mark.slow
START_SECONDS = 60


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of an S3 server in a process of its own, with one bucket."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"{address}/moto-api/"):
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.05)
        with urllib.request.urlopen(urllib.request.Request(f"{address}/lake", method="PUT")):
            pass
        yield address
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):
            return True
    except OSError:
        return False


@pytest.fixture(autouse=True)
def credentials(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pipeline gets them: in its environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": store,
        "AWS_ACCESS_KEY_ID": "test-key",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


def test_an_archive_is_written_and_read_on_s3_over_restarts(client: Client, topic: str) -> None:
    uri = f"s3://lake/{topic.replace(':', '-')}"
    client.create(topic)
    client.set_archive(topic, uri)
    client.append(topic, [{"n": number} for number in range(100)])
    # A new object each time, as after a restart of the pipeline.
    for last in (30, 60, 100):
        Copier(client, open_archive(uri, create=True), topic).up_to(last)
    assert [row["seq"] for row in rows_of(uri)] == list(range(1, 101))
    client.append(topic, [{"n": 100}])
    history = [record.data["n"] for record in read_records(client, topic)]  # type: ignore[union-attr]
    assert history == list(range(101))
    archive = open_archive(uri)
    assert archive.compact(topic) == 3
    assert [row["seq"] for row in rows_of(uri)] == list(range(1, 101))


def test_two_writers_of_one_archive_leave_every_record_once(client: Client, topic: str) -> None:
    uri = f"s3://lake/{topic.replace(':', '-')}"
    client.create(topic)
    client.append(topic, list(range(60)))
    open_archive(uri, create=True)
    overtaken = [0, 0]
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            copier = Copier(client, open_archive(uri), topic)
            while (at := copier.archive.position(topic).next_seq(copier.epoch, 0)) <= 60:
                try:
                    copier.up_to(min(60, at + 4))
                except Overtaken:
                    overtaken[number] += 1
                    copier.archive.refresh()
        except BaseException as error:  # noqa: BLE001 - reported by the test
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert errors == []
    assert [row["seq"] for row in rows_of(uri)] == list(range(1, 61))
    assert sum(overtaken) > 0, "the writers never met, so this shows nothing"


def changes(count: int) -> list[Change]:
    found = []
    for seq in range(1, count + 1):
        event: dict[str, Any] = {"op": "update", "ts": seq, "key": {"id": seq % 5}, "source": {"position": seq}}
        event["after"] = {"id": seq % 5, "v": seq}
        found.append(Change(0, seq, decode_event(msgspec.json.encode(event))))
    return found


def test_two_drivers_of_one_materialised_table_apply_every_change_once(topic: str) -> None:
    uri = f"s3://lake/{topic.replace(':', '-')}"
    sent = changes(40)
    MaterializedTable(uri, "scd2", topic).apply(1, sent[:1])
    errors: list[BaseException] = []

    def drive() -> None:
        try:
            at = 1
            while at <= 40:
                table = MaterializedTable(uri, "scd2", topic)
                at = table.positions(1, [0])[0]
                try:
                    table.apply(1, sent[at - 1 : at + 4])
                except MaterializeOvertaken:
                    pass
        except BaseException as error:  # noqa: BLE001 - reported by the test
            errors.append(error)

    threads = [threading.Thread(target=drive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert errors == []
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    assert sorted([row["v"] for row in rows]) == list(range(1, 41))
    assert sorted([row["v"] for row in rows if row["_is_current"]]) == list(range(36, 41))


def test_a_bucket_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchiveError, match="s3://no-such-bucket/t"):
        open_archive("s3://no-such-bucket/t", create=True)
