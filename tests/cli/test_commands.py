"""Commands against a server, called in this process: JSON lines, errors in one line."""

import io
import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.archive.copier import Copier
from topics.archive import open_archive
from topics.cli.main import main
from topics.client import ArchivedTo, Client, JobStatus
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("cli"))}
    with running_server(load_settings(environment)) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOPICS_URL", url)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


def lines(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_append_takes_json_or_plain_words_as_payloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "words", '{"a": 1}', "plain", "42", "--tag", "t"]) == 0
    assert lines(capsys) == [{"topic": "words", "count": 3, "last_seq": 3}]
    assert main(["read", "words"]) == 0
    records = lines(capsys)
    assert [record["data"] for record in records] == [{"a": 1}, "plain", 42]
    assert {record["$tag"] for record in records} == {"t"}
    assert set(records[0]) == {"$seq", "$ts", "$tag", "data"}


@pytest.mark.parametrize("text", ['{"sku": 1', "{bad", " [1, 2"])
def test_append_refuses_what_begins_like_json_and_is_not(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "mistyped", text]) == 1
    assert "begins like JSON but is not JSON" in capsys.readouterr().err
    assert main(["info", "mistyped"]) == 3


@pytest.mark.parametrize(
    "line", ["tail t -n -5", "read t --limit -1", "read t --from-seq -3", "consume t -g g --limit x"]
)
def test_counts_below_zero_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 1
    assert "is not a whole number of at least 0" in capsys.readouterr().err


def test_options_may_come_between_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "mixed", "--tag", "t", '"one"', "-o", "jsonl", "--", "--two"]) == 0
    assert lines(capsys) == [{"topic": "mixed", "count": 2, "last_seq": 2}]
    assert main(["read", "mixed", "--data"]) == 0
    assert lines(capsys) == ["one", "--two"]
    assert main(["sql", "SELECT name FROM system.topics WHERE name = ?", "-o", "jsonl", "mixed"]) == 0
    assert lines(capsys) == [{"name": "mixed"}]
    assert main(["append", "mixed-2", '"three"']) == 0
    capsys.readouterr()
    assert main(["watch", "mixed", "--all", "mixed-2", "--limit", "3", "--data"]) == 0
    assert sorted(lines(capsys)) == ["--two", "one", "three"]
    assert main(["rm", "mixed", "--yes", "mixed-2"]) == 0


def test_a_topic_is_read_by_its_alias_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "named", "1", "2"]) == 0
    assert main(["sql", "ALTER TOPIC named SET ALIAS 'nickname'"]) == 0
    capsys.readouterr()
    for command in (["read", "nickname"], ["tail", "nickname"]):
        assert main([*command, "--data"]) == 0
        assert lines(capsys) == [1, 2]
    assert main(["info", "nickname"]) == 0
    assert lines(capsys)[0]["topic"] == "named"


def test_append_reads_json_lines_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join([f'{{"n": {number}}}\n' for number in range(2500)]) + "\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["append", "stdin"]) == 0
    assert lines(capsys)[0]["count"] == 2500
    assert main(["read", "stdin", "--data", "--from-seq", "2498"]) == 0
    assert lines(capsys) == [{"n": 2498}, {"n": 2499}]


@pytest.mark.parametrize(
    "limit", [{"TOPICS_MAX_BATCH_RECORDS": "7"}, {"TOPICS_MAX_BODY_BYTES": "2000"}], ids=["records", "bytes"]
)
def test_append_sends_batches_that_the_server_accepts(
    limit: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path), **limit}
    with running_server(load_settings(environment)) as url:
        monkeypatch.setenv("TOPICS_URL", url)
        text = "".join([f'{{"n": {number}}}\n' for number in range(500)])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["append", "split"]) == 0
        assert lines(capsys) == [{"topic": "split", "count": 500, "last_seq": 500}]
        assert main(["append", "split", *[str(number) for number in range(20)]]) == 0
        capsys.readouterr()
        assert main(["read", "split", "--data"]) == 0
        assert lines(capsys) == [*[{"n": number} for number in range(500)], *range(20)]
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'"' + b"x" * 3_000_000 + b'"')))
        assert main(["append", "split"]) == 4, "a record that is too large by itself is not split"


def test_bad_line_on_standard_input_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"1\n{bad\n")))
    assert main(["append", "badline"]) == 1
    assert "line 2 is not JSON" in capsys.readouterr().err
    assert main(["info", "badline"]) == 3


def test_ls_and_info_and_tail(capsys: pytest.CaptureFixture[str]) -> None:
    main(["append", "listed:one", *[str(number) for number in range(20)]])
    capsys.readouterr()
    assert main(["ls", "listed:"]) == 0
    (row,) = lines(capsys)
    assert (row["topic"], row["count"], row["head_seq"]) == ("listed:one", 20, 20)
    assert main(["info", "listed:one"]) == 0
    (info,) = lines(capsys)
    assert info["config"]["durability"] == "disk"
    assert main(["tail", "listed:one", "-n", "3", "--data"]) == 0
    assert lines(capsys) == [17, 18, 19]
    assert main(["read", "listed:one", "--limit", "2", "--data"]) == 0
    assert lines(capsys) == [0, 1]


def test_lost_records_are_reported_on_both_outputs(capsys: pytest.CaptureFixture[str]) -> None:
    with Client() as client:
        client.create("lossy", cap_records=1)
        client.append("lossy", [1])
        client.append("lossy", [2])
    assert main(["read", "lossy"]) == 0
    out, err = capsys.readouterr()
    tombstone, record = [json.loads(line) for line in out.splitlines()]
    assert tombstone["tombstone"]["gap_to"] == 1
    assert record["data"] == 2
    assert "records 1 to 1 are lost (cap)" in err


def test_a_topic_created_again_is_reported_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with Client() as client:
        client.append("again", [1])
    assert main(["read", "again", "--from-seq", "5", "--data"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (
        "1\n",
        "topics: the topic was deleted and created again since; reading it from its beginning\n",
    )


def test_an_error_is_one_line_and_a_missing_topic_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "no-such-topic"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == 'topics: topic "no-such-topic" does not exist (topic_not_found)\n'


def test_tables_have_a_header_and_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    main(["append", "people", "1"])
    capsys.readouterr()
    assert main(["ls", "people", "-o", "table"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["topic", "count", "bytes", "earliest_seq", "head_seq", "durable"]
    assert out[1].split()[:2] == ["people", "1"]
    assert main(["info", "people", "-o", "table"]) == 0
    assert "head_seq" in capsys.readouterr().out


def test_empty_standard_input_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert main(["append", "nothing"]) == 1
    assert "nothing to append" in capsys.readouterr().err


def test_tables_are_added_listed_and_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "add", "chat.messages", "--key", "id,tenant", "--columns", "id:bigint, tenant"]) == 0
    assert main(["table", "add", "chat.rooms", "--postgres", "host=db dbname=chat"]) == 0
    assert main(["table", "add", "chat.rooms", "--delta", "s3://lake/rooms"]) == 0
    assert [line["outcome"] for line in lines(capsys)] == ["added", "added", "changed"]
    assert main(["table", "ls", "chat."]) == 0
    assert [(line["table"], line["kind"], line["location"], line["key_columns"]) for line in lines(capsys)] == [
        ("chat.messages", "push", None, ["id", "tenant"]),
        ("chat.rooms", "delta", "s3://lake/rooms", []),
    ]
    assert main(["table", "drop", "chat.rooms"]) == 0
    capsys.readouterr()
    assert main(["table", "drop", "chat.rooms"]) == 3
    assert "not known" in capsys.readouterr().err
    assert main(["table", "ls", "--url", os.environ["TOPICS_URL"]]) == 0


def test_archives_are_set_shown_listed_and_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    main(["append", "archived", "1", "2"])
    assert main(["archive", "set", "archived", "s3://lake/archived"]) == 0
    assert (
        main(["archive", "set", "archived", "s3://lake/archived", "--freshness-ms", "5000", "--vacuum-hours", "0"]) == 0
    )
    assert [line.get("outcome") for line in lines(capsys)] == [None, "set", "changed"]
    with Client() as client:
        epoch = client.info("archived").epoch
        client.archive_progress("archived", [ArchivedTo(0, epoch, 2)], table_version=3)
    assert main(["archive", "show", "archived"]) == 0
    (shown,) = lines(capsys)
    assert (shown["uri"], shown["freshness_ms"], shown["vacuum_hours"]) == ("s3://lake/archived", 5000, 0)
    assert shown["archived"] == [{"partition": 0, "epoch": epoch, "next_seq": 2}]
    assert main(["archive", "ls", "--url", os.environ["TOPICS_URL"]]) == 0
    (listed,) = lines(capsys)
    assert (listed["topic"], listed["archived"], listed["table_version"]) == ("archived", {"0": 1}, 3)
    assert main(["archive", "clear", "archived"]) == 0
    assert main(["archive", "clear", "archived"]) == 0
    assert [line["outcome"] for line in lines(capsys)] == ["cleared", "was not set"]
    assert main(["archive", "show", "archived"]) == 3
    assert capsys.readouterr().err == 'topics: topic "archived" has no archive (not_found)\n'
    assert main(["archive", "set", "archived", "s3://key:secret@lake"]) == 1
    err = capsys.readouterr().err
    assert "password" in err
    assert "secret" not in err
    assert main(["archive", "set", "nowhere-to-be-found", "s3://lake/x"]) == 3


def test_pipelines_are_shown_and_stopped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["pipeline", "status"]) == 0
    assert main(["pipeline", "stop"]) == 3
    assert "no pipeline runs" in capsys.readouterr().err
    jobs = [
        JobStatus("route a.b", "route", "running", 10, 5.0, 3),
        JobStatus("archive t", "archive", "failed", error="x"),
    ]
    with Client() as client:
        client.report_pipeline("main", "running", jobs, started_ts=1)
        client.report_pipeline("bare", "starting", started_ts=1)
        assert main(["pipeline", "status"]) == 0
        shown = lines(capsys)
        assert [(each["pipeline"], each["state"], each["job"], each["job_state"], each["lag"]) for each in shown] == [
            ("bare", "starting", None, None, None),
            ("main", "running", "route a.b", "running", 3),
            ("main", "running", "archive t", "failed", None),
        ]
        assert main(["pipeline", "status", "main"]) == 0
        assert len(lines(capsys)) == 2
        assert main(["pipeline", "status", "other"]) == 3
        assert main(["pipeline", "stop"]) == 1
        assert "bare, main" in capsys.readouterr().err
        assert main(["pipeline", "stop", "main"]) == 0
        assert lines(capsys) == [{"pipeline": "main", "outcome": "was asked to stop"}]
        assert client.report_pipeline("main", "stopping", started_ts=1).stop
        capsys.readouterr()
        assert main(["pipeline", "stop", "main", "--wait-s", "0.01"]) == 4, "it has not stopped in time"
        assert lines(capsys) == [{"pipeline": "main", "outcome": "has not stopped after 0.01 s: it is stopping"}]
        client.report_pipeline("bare", "stopped", started_ts=1)
        # It stops while the command looks for the second time.
        monkeypatch.setattr("time.sleep", lambda _: client.report_pipeline("main", "stopped", started_ts=1))
        capsys.readouterr()
        assert main(["pipeline", "stop", "--wait-s", "30"]) == 0
        assert lines(capsys) == [{"pipeline": "main", "outcome": "stopped"}]


def test_a_lost_pipeline_is_not_reported_as_stopped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client() as client:
        client.report_pipeline("silent", "running", started_ts=1)
    monkeypatch.setattr("topics.server.tables.pipeline_registry.LOST_AFTER_MS", -1)
    assert main(["pipeline", "stop", "silent", "--wait-s", "0.01"]) == 4
    assert lines(capsys) == [{"pipeline": "silent", "outcome": "has not stopped after 0.01 s: it is lost"}]


def test_a_pipeline_is_run_by_the_module_that_needs_spark(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("topics.spark.pipeline.run")
    module.run = lambda argv: len(argv)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "topics.spark.pipeline.run", module)
    assert main(["pipeline", "run", "--checkpoint", "x"]) == 2
    monkeypatch.setitem(sys.modules, "topics.spark.pipeline.run", None)
    assert main(["pipeline", "run"]) == 1
    assert "pip install '.[spark]' in a checkout" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["pipeline", "--url", "http://x", "run"])


def test_history_is_read_from_the_archive_and_then_live(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client() as client:
        client.create("historic", cap_records=3)
        for number in range(1, 6):
            client.append("historic", [number])
            if number == 2:
                archive = open_archive(str(tmp_path / "table"), create=True)
                Copier(client, archive, "historic").up_to(2)
    # Without an archive there is what is live, and a tombstone for the rest.
    assert main(["read", "historic", "--history", "--data"]) == 0
    assert lines(capsys) == [3, 4, 5]
    main(["archive", "set", "historic", str(tmp_path / "table")])
    capsys.readouterr()
    assert main(["read", "historic", "--history", "--data"]) == 0
    assert lines(capsys) == [1, 2, 3, 4, 5]
    assert main(["read", "historic", "--history", "--from-seq", "1", "--limit", "3"]) == 0
    assert [(line["$seq"], line["data"]) for line in lines(capsys)] == [(2, 2), (3, 3), (4, 4)]
    # A table that the server says is written to but that is not there is an error in one line.
    with Client() as client:
        client.archive_progress("historic", [ArchivedTo(0, client.info("historic").epoch, 3)])
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    assert main(["read", "historic", "--history"]) == 5
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("topics: "), "(unavailable)" in err) == ("", 1, True, True)
    monkeypatch.setitem(sys.modules, "topics.archive", None)
    assert main(["read", "historic", "--history"]) == 1
    assert "pip install '.[spark]' in a checkout" in capsys.readouterr().err


def test_delete_deletes_in_all_partitions_or_in_the_one_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create", "parted", "--partitions", "3"]) == 0
    for partition in ("0", "1", "2"):
        assert main(["append", "parted", "--tag", "user-1", "1", "2", "--partition", partition]) == 0
    capsys.readouterr()
    assert main(["delete", "parted", "--tag", "user-1", "--before-seq", "2", "--partition", "1", "--yes"]) == 0
    assert lines(capsys) == [{"topic": "parted", "deleted": 1, "count": 5, "earliest_seq": 2}]
    assert main(["delete", "parted", "--tag", "user-*", "--yes"]) == 0
    assert lines(capsys) == [{"topic": "parted", "deleted": 5, "count": 0}]


def test_partitions_that_are_not_shown_are_noted_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create", "noted", "--partitions", "2"]) == 0
    for partition in ("0", "1"):
        assert main(["append", "noted", partition, "--partition", partition]) == 0
    capsys.readouterr()
    note = "topic noted has 2 partitions; showing partition 0 (--partition selects another)\n"
    for command in (["read", "noted"], ["tail", "noted"], ["watch", "noted", "--all", "--limit", "1"]):
        assert main([*command, "--data"]) == 0
        assert capsys.readouterr() == ("0\n", note)
        assert main([*command, "--data", "--partition", "1"]) == 0
        assert capsys.readouterr() == ("1\n", "")


@pytest.mark.parametrize("command", ["read lone", "consume lone --group g", "watch lone --all --limit 2"], ids=str)
def test_commands_print_a_lone_surrogate_as_the_replacement_character(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    body = rb'{"records":[{"data":"x\ud800y"},{"data":2}]}'
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['TOPICS_URL']}/v0/topics/lone", body, headers)
    urllib.request.urlopen(request).close()
    assert main([*command.split(), "--data"]) == 0
    assert lines(capsys) == ["x\ufffdy", 2]
    assert main(["rm", "lone", "--yes"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    "argv", [["rm", "kept"], ["delete", "kept", "--before-seq", "9"], ["group", "rm", "kept", "g"]]
)
def test_without_a_terminal_nothing_is_deleted_unless_yes_is_given(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["append", "kept", "1"]) == 0
    capsys.readouterr()
    assert main(argv) == 1
    assert "--yes" in capsys.readouterr().err
    assert main(["info", "kept"]) == 0
    assert lines(capsys)[0]["count"] >= 1


def test_dry_run_of_set_and_delete_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["append", "tried", "1", "2", "3"]) == 0
    capsys.readouterr()
    assert main(["set", "tried", "--cap-records", "1", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"field": "cap_records", "before": 0, "now": 1}
    assert "would drop 2 records" in err
    assert main(["delete", "tried", "--before-seq", "3", "--dry-run"]) == 0
    assert lines(capsys) == [{"topic": "tried", "deleted": 2, "count": 3, "dry_run": True, "earliest_seq": 1}]
    assert main(["info", "tried"]) == 0
    state = lines(capsys)[0]
    assert (state["count"], state["config"]["cap_records"]) == (3, 0)


def test_queue_stats_count_a_job_that_waits_for_its_next_delivery(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("create delayed --queue", "append delayed 1 2", "queue claim delayed --node me"):
        assert main(line.split()) == 0
    assert main(["queue", "nack", "delayed", "1", "--node", "me", "--delay", "1m"]) == 0
    capsys.readouterr()
    assert main(["queue", "stats", "delayed"]) == 0
    (stats,) = lines(capsys)
    assert (stats["ready"], stats["in_flight"], stats["delayed"], stats["jobs"]) == (1, 0, 1, 2)
