"""Archives and materialised tables on an S3-compatible store: a server that checks credentials, restarts, concurrent writers."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from msgspec import Struct

from tests.archive.copier import Copier, rows_of
from tests.spark.connector.test_exactly_once import Driver
from topics.archive.history import read_records
from topics.archive.ledger import ArchiveError, Overtaken, open_archive
from topics.client import Client
from topics.spark.materialize.table import Change, MaterializedTable, MaterializeError
from topics.spark.materialize.table import Overtaken as MaterializeOvertaken
from topics.spark.materialize.versions import decode_event

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto")
pytestmark = pytest.mark.slow
START_SECONDS = 60


class Store(Struct):
    """The address of an S3 server, and the only key that it accepts."""

    address: str
    key_id: str = ""
    secret: str = ""

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.address,
            region_name="us-east-1",
            aws_access_key_id=self.key_id or "none",
            aws_secret_access_key=self.secret or "none",
        )

    def environment(self) -> dict[str, str]:
        """As a pipeline gets its credentials."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """An S3 server in a process of its own, with one bucket and one user. It checks signatures and policies."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    # The four requests below are accepted without a key.
    environment = os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "4"}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    store = Store(f"http://127.0.0.1:{port}")
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"{store.address}/moto-api/"):
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.05)
        store.client("s3").create_bucket(Bucket="lake")
        users = store.client("iam")
        users.create_user(UserName="pipeline")
        allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        users.put_user_policy(UserName="pipeline", PolicyName="lake", PolicyDocument=document)
        key = users.create_access_key(UserName="pipeline")["AccessKey"]
        yield Store(store.address, key["AccessKeyId"], key["SecretAccessKey"])
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
def credentials(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in store.environment().items():
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


@pytest.mark.parametrize(
    ("name", "reason"),
    [("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"), ("AWS_ACCESS_KEY_ID", "InvalidAccessKeyId")],
)
def test_a_wrong_key_is_refused_with_the_table_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, topic: str, name: str, reason: str
) -> None:
    monkeypatch.setenv(name, "wrong")
    uri = f"s3://lake/{topic.replace(':', '-')}"
    with pytest.raises(ArchiveError, match=f"{uri}.*{reason}"):
        open_archive(uri, create=True)
    with pytest.raises(MaterializeError, match=f"{uri}.*{reason}"):
        MaterializedTable(uri, "scd1", topic)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_drivers_that_race_and_are_killed_leave_every_record_once_on_s3(
    client: Client, topic: str, tmp_path: Path
) -> None:
    """Two drivers archive one change topic and materialise its table; one of them is killed."""
    table = topic.replace(":", "-")
    changes, uri = f"changes:{table}", f"s3://lake/{table}"
    for first in range(0, 4000, 500):
        rows = range(first, first + 500)
        sent = [{"op": "update", "ts": n, "key": {"id": n % 50}, "after": {"id": n % 50, "v": n}} for n in rows]
        client.send_changes(
            table, [{**each, "position": n + 1} for n, each in zip(rows, sent, strict=True)], source="s"
        )
    client.set_archive(changes, f"{uri}-archive", freshness_ms=1000)
    job: dict[str, Any] = {"master": "local[2]", "do": "archive,materialize", "url": client.url, "topic": changes}
    job |= {"seqs_per_ms": 1, "table": table, "uri": f"{uri}-table", "mode": "scd1", "max_changes": 400}
    drivers = [Driver(**job, checkpoint=str(tmp_path / f"checkpoint{number}")) for number in range(2)]
    try:
        deadline = time.monotonic() + 200
        while not _commits(f"{uri}-archive"):
            assert time.monotonic() < deadline, "no commit came"
            assert any([driver.process.poll() is None for driver in drivers]), drivers[0].errors()
            time.sleep(0.05)
        drivers[0].kill()
        # The other one ends, or fails because the first was faster; the next one continues in any case.
        drivers[1].process.wait(200)
    finally:
        for driver in drivers:
            driver.kill()
    Driver(**job, checkpoint=str(tmp_path / "checkpoint2")).reports(200)
    assert [row["seq"] for row in rows_of(f"{uri}-archive")] == list(range(1, 4001))
    stored = DeltaTable(f"{uri}-table").to_pyarrow_table().to_pylist()
    assert sorted([(row["id"], row["v"]) for row in stored]) == [(n % 50, n) for n in range(3950, 4000)]


def _commits(uri: str) -> int:
    return int(DeltaTable(uri).version()) if DeltaTable.is_deltatable(uri) else 0
