"""A replay routes a range of changes again, once for each id, and reports what it could not send."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.archive.copier import Copier
from tests.served import server_settings
from topics.archive import open_archive
from topics.client import Client
from topics.model.errors import InvalidRequest
from topics.testing.server import running_server

pytest.importorskip("pyspark")

from topics.spark.connector.reading import DataLoss
from topics.spark.pipeline import replay as command
from topics.spark.routing import replay
from topics.spark.routing.replay import Replay, ReplayRange

# Planning a query takes up to a minute on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(450)]


def insert(client: Client, table: str, first: int, last: int, text: str = "") -> None:
    changes = [{"op": "insert", "key": {"id": n}, "after": {"id": n, "text": text}} for n in range(first, last + 1)]
    assert client.send_changes(table, changes).refused == []


def routed(client: Client, table: str, name: str, clause: str = "ON INSERT", **topic: Any) -> str:
    full = f"{table}.{name}"
    client.create(full, **topic)
    client.sql(f'ALTER TOPIC "{full}" ADD SOURCE "{table}" {clause}')
    return full


def ids(client: Client, topic: str) -> list[int]:
    return [record.data["id"] for record in client.read(topic)]


class Command:
    """`topics pipeline replay` in the session of the tests."""

    def __init__(self, spark: Any, url: str, table: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._spark, self._url, self._table, self._capsys = spark, url, table, capsys

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """The exit status, and what was printed."""
        parsed = command.build_parser().parse_args([self._table, *arguments])
        status = command.replay(self._spark, self._url, None, parsed)
        printed = self._capsys.readouterr()
        return status, printed.out + printed.err


@pytest.fixture
def run(spark: Any, client: Client, topic: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    return Command(spark, client.url, topic, capsys)


def test_a_replay_sends_the_messages_of_its_range_again_once_for_each_id(
    spark: Any, client: Client, topic: str
) -> None:
    insert(client, topic, 0, 9)
    for name in ("a", "b"):
        routed(client, topic, name, "ON INSERT WHERE (id > 4)")
    replay = Replay(spark, client.url, None, topic, ReplayRange(1, 8), [f"{topic}.a"])
    assert (replay.changes, replay.count()) == (8, {f"{topic}.a": 3})
    assert client.info(f"{topic}.a").count == 0, "counting writes nothing"
    assert [replay.run("one")["messages"] for _ in range(2)] == [3, 0]
    assert ids(client, f"{topic}.a") == [5, 6, 7]
    assert client.info(f"{topic}.b").count == 0
    for range_, topics in ((ReplayRange(2, 8), [f"{topic}.a"]), (ReplayRange(1, 8), [])):
        with pytest.raises(InvalidRequest, match='id "one" was used'):
            Replay(spark, client.url, None, topic, range_, topics).run("one")
    with pytest.raises(InvalidRequest, match="no routes to elsewhere"):
        Replay(spark, client.url, None, topic, ReplayRange(1), [f"{topic}.a", "elsewhere"])


def test_an_interrupted_replay_of_a_growing_topic_sends_every_message_once(
    spark: Any, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_STEP_CHANGES", 4)
    client.create(f"changes:{topic}", partitions=2)
    insert(client, topic, 1, 10)
    out = routed(client, topic, "out")
    steps: list[int] = []

    def interrupt(changes: int) -> None:
        steps.append(changes)
        if len(steps) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Replay(spark, client.url, None, topic, ReplayRange(1)).run("again", interrupt)
    sent = len(ids(client, out))
    assert 0 < sent < 10
    # The partitions grow, so that steps of the next run have other boundaries.
    insert(client, topic, 11, 17)
    again = Replay(spark, client.url, None, topic, ReplayRange(1))
    done: list[int] = []
    notes = again.run("again", done.append)
    assert (sum(done), notes["messages"]) == (again.changes, 17 - sent)
    assert sorted(ids(client, out)) == list(range(1, 18))
    assert len({record.meta["message_id"] for record in client.read(out)}) == 17


def test_the_command_counts_and_sends_by_time_and_shows_what_was_refused(
    run: Callable[..., tuple[int, str]], client: Client, topic: str
) -> None:
    client.create(f"changes:{topic}", partitions=2)
    insert(client, topic, 1, 6)
    last_ts = max([record.ts for number in (0, 1) for record in client.read(f"changes:{topic}", partition=number)])
    all_of_them = routed(client, topic, "all")
    small = routed(client, topic, "small", cap_records=1, discard="reject")
    status, printed = run("--from-ts", "0", "--dry-run")
    assert (status, printed) == (0, f"6 changes, 2 routes; messages by topic:\n{all_of_them}\t6\n{small}\t6\n")
    assert client.info(all_of_them).count == 0
    assert run("--from-ts", str(last_ts + 1), "--dry-run")[1].startswith("0 changes")
    assert run("--from-ts", "0", "--to", str(last_ts), "--dry-run", "--routes", all_of_them)[1].startswith("6 changes")

    status, printed = run("--from-ts", "0")
    assert status == 4, printed
    assert f"route to {small} on Insert: refused" in printed
    assert "replayed 6 changes, sent " in printed
    assert sorted(ids(client, all_of_them)) == [1, 2, 3, 4, 5, 6]
    assert client.info(small).count <= 1
    status, printed = run("--from-seq", "1", "--routes", "elsewhere")
    assert (status, printed) == (1, f"topics: table {topic} has no routes to elsewhere\n")


def test_changes_below_the_live_floor_are_read_from_the_archive_or_fail_the_replay(
    run: Callable[..., tuple[int, str]], spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    changes = f"changes:{topic}"
    insert(client, topic, 1, 20)
    out = routed(client, topic, "out")
    table = open_archive(str(tmp_path / "table"), create=True)
    Copier(client, table, changes).up_to(12)
    client.create(changes, cap_records=5)
    floor = client.info(changes).earliest_seq
    assert 12 < floor <= 16

    status, printed = run("--from-seq", "1")
    assert status == 1
    assert re.search(rf"changes 1 to {floor - 1} of {topic}, partition 0, are gone.*--ignore-loss", printed), printed
    assert client.info(out).count == 0
    status, printed = run("--from-seq", "1", "--ignore-loss")
    assert (status, f"{floor - 1} changes were lost" in printed) == (0, True), printed
    assert ids(client, out) == list(range(floor, 21))

    client.set_archive(changes, str(tmp_path / "table"))
    status, printed = run("--from-seq", "1", "--to", "12")
    assert (status, "sent 12 messages" in printed) == (0, True), printed
    assert ids(client, out)[21 - floor :] == list(range(1, 13))
    with pytest.raises(Exception, match=f"records 13 to {floor - 1} were lost") as failed:
        Replay(spark, client.url, None, topic, ReplayRange(13)).run("gap")
    assert failed.type is not DataLoss or "13" in str(failed.value)


def test_a_step_beyond_the_stage_space_is_sent_in_portions(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = server_settings(tmp_path / "data", TOPICS_MAX_STAGED_BYTES="20000")
    with running_server(settings) as url, Client(url) as client:
        for start in range(1, 1201, 400):
            insert(client, "shop.t", start, start + 399, "x" * 2000)
        out = routed(client, "shop.t", "out", "ON INSERT WITH (payload = 'full')")
        notes = Replay(spark, url, None, "shop.t", ReplayRange(1)).run("one")
        assert notes["messages"] == 1200
        assert ids(client, out) == list(range(1, 1201))
