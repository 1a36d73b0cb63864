"""Every command in a real terminal and in a pipe: it succeeds, and its output is for people or for programs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from tests.cli.terminal import in_pipe, in_terminal
from topics.cli.main import COMMANDS, main
from topics.client import Client

pytestmark = pytest.mark.slow


class Case(Struct):
    """A command line, in which {mode} is `terminal` or `pipe` and {dir} a directory; what it prints in both; its exit code.

    `pipe` is a text, or the fields that the last line, as JSON, has. `before` are command lines that run first, in this
    process, and `queued` is the number of jobs that the queue gets first.
    """

    line: str
    terminal: str
    pipe: str | dict[str, object]
    code: int = 0
    stdin: str = ""
    queued: int = 0
    before: tuple[str, ...] = ()


CREATE = "create made-{mode} --if-not-exists"
APPEND = "append added-{mode} 1 two"
EXPORT = "export sample {dir}/{mode}.jsonl"
ROUTER = "router add sample routed-{mode}"
TABLE = "table add chat.{mode} --key id"
ARCHIVE = "archive set made-{mode} s3://lake/{mode}"
LOGIN = "login {url} --name {mode}"

CASES = [
    Case(
        "create made-{mode} --partitions 2 --ttl-ms 1h",
        "topic made-terminal created",
        {"outcome": "created"},
        before=("rm made-{mode} --if-exists --yes",),
    ),
    Case("create made-{mode}", "exists; change it with: topics set", "topic_exists", code=4, before=(CREATE,)),
    Case(
        "set made-{mode} --cap-bytes 1MB",
        "1000000",
        {"field": "cap_bytes", "now": 1000000},
        before=(CREATE, "set made-{mode} --cap-bytes 5"),
    ),
    Case("ls sample", "earliest_seq", {"topic": "sample", "count": 3}),
    Case("info sample", "config.durability", {"topic": "sample", "head_seq": 3}),
    Case(
        "append added-{mode} 1 two",
        "2 records, the last with seq 2",
        {"count": 2, "last_seq": 2},
        before=("rm added-{mode} --if-exists --yes",),
    ),
    Case("read sample --from -1h", '"n":3', {"$seq": 3, "$tag": "tag-3", "data": {"n": 3}}),
    Case("tail sample -n 1", '"n":3', {"$seq": 3}),
    Case("watch sample --all --limit 3", '"n":3', {"topic": "sample", "$seq": 3}),
    Case(
        "delete added-{mode} --before-seq 2 --yes",
        "1 records deleted, 1 left",
        {"deleted": 1, "count": 1},
        before=("rm added-{mode} --if-exists --yes", APPEND),
    ),
    Case("rm added-{mode} --yes", "topic added-terminal deleted", {"outcome": "deleted"}, before=(APPEND,)),
    Case("export sample {dir}/{mode}.jsonl", "3 records of sample in", {"count": 3}),
    Case("import copy-{mode} {dir}/{mode}.jsonl", "3 records of", {"count": 3}, before=(EXPORT,)),
    Case("sql SELECT\u00a01\u00a0AS\u00a0one", "one", {"one": 1}),
    Case("queue stats work", "in_flight", {"queue": "work", "in_flight": 0}, queued=2),
    Case("queue peek work -n 1 --data", "job", '"job"', queued=1),
    Case("queue claim work --node n-{mode} --max 1", "lease_", {"deliveries": 1, "data": "job"}, queued=1),
    Case("queue ack work 99 --node n-{mode}", "holds no lease of 99", "lease_lost", code=4),
    Case("queue nack work 99 --node n-{mode}", "holds no lease of 99", "lease_lost", code=4),
    Case("work work --until-empty -- cat", "job", "job", queued=1),
    Case("group ls sample", "readers", {"topic_id": "sample"}),
    Case("group lag sample readers", "last_acked_offset", {"partition_id": 0, "lag_records": 3}),
    Case("group seek sample readers -1h --dry-run", "next_offset", {"next_offset": 1}),
    Case("consume sample --group new-{mode}", '"n":3', {"$seq": 3, "data": {"n": 3}}),
    Case(
        "group rm sample g-{mode} --yes",
        "group g-terminal deleted",
        {"outcome": "deleted"},
        before=("consume sample --group g-{mode}",),
    ),
    Case(
        "router add sample routed-{mode}",
        "router sample->routed-terminal added",
        {"outcome": "added"},
        before=("rm routed-{mode} --if-exists --yes",),
    ),
    Case("router ls --dest routed-{mode}", "forwarded_total", {"source": "sample"}, before=(ROUTER,)),
    Case("router rm sample->routed-{mode}", "removed", {"outcome": "removed"}, before=(ROUTER,)),
    Case("table add new.{mode} --key id", "table new.terminal added", {"outcome": "added"}),
    Case("table ls chat.{mode}", "key_columns", {"table": "chat.pipe", "key_columns": ["id"]}, before=(TABLE,)),
    Case("table drop chat.{mode}", "dropped", {"outcome": "dropped"}, before=(TABLE,)),
    Case(
        "archive set made-{mode} s3://lake/{mode}",
        "archive made-terminal set",
        {"outcome": "set"},
        before=(CREATE, "archive clear made-{mode}"),
    ),
    Case("archive show made-{mode}", "freshness_ms", {"uri": "s3://lake/pipe"}, before=(CREATE, ARCHIVE)),
    Case("archive ls", "vacuum_hours", {"vacuum_hours": 168}, before=(CREATE, ARCHIVE)),
    Case("archive clear made-{mode}", "cleared", {"outcome": "cleared"}, before=(CREATE, ARCHIVE)),
    Case("capture postgres --help", "examples:", "examples:"),
    Case("pipeline status", "job_state", ""),
    Case("pipeline stop", "no pipeline runs", "no pipeline runs", code=3),
    Case("demo --port 0 --seconds 0.5", "console: http://127.0.0.1:", "orders written"),
    Case("top --count 1 --interval 0.1", "busiest topics", {"streams": 0}),
    Case("bench --seconds 0.05", "append, 1 record", {"test": "claim and ack, 50 jobs"}),
    Case("doctor --data {dir}", "disk space", {"check": "event loop"}),
    Case("config", "[server]", "[server]"),
    Case("user add ada --role dba --password-stdin", "[[users]]", "argon2id", stdin="a long password\n"),
    Case("login {url} --name {mode}", "context terminal logged in to", {"context": "pipe"}),
    Case("context ls", "credential", {"context": "pipe", "current": True}, before=(LOGIN,)),
    Case("context use {mode}", "is the current one", {"outcome": "is the current one"}, before=(LOGIN,)),
    Case("context show {mode}", "url", {"context": "pipe", "credential": "none"}, before=(LOGIN,)),
    Case("context rm {mode}", "removed", {"outcome": "removed"}, before=(LOGIN,)),
    Case("check {dir}/none", "there is no data in", "there is no data in", code=3),
    Case("repair {dir}/none", "there is no data in", "there is no data in", code=3),
    Case("conformance --list --only health", "", ""),
    Case("completion bash", "complete -o default -F _topics_words topics", "complete -o default"),
    Case("completion words -- queue st", "stats", "stats"),
]
# Commands that do not end by themselves, or need a prompt; they have tests of their own.
ELSEWHERE = {"serve"}


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def arguments(line: str, mode: str, directory: Path, url: str) -> list[str]:
    """The words of the line; a no-break space is a space inside of a word."""
    return [word.replace("\u00a0", " ") for word in line.format(mode=mode, dir=directory, url=url).split(" ")]


@pytest.fixture
def prepare(
    environment: dict[str, str], directory: Path, shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Case, str], list[str]]:
    """A function that runs what comes before a case and returns the arguments of the case."""
    for name in ("TOPICS_URL", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, environment[name])

    def run_before(case: Case, mode: str) -> list[str]:
        if case.queued:
            with Client(shared_url) as client:
                client.delete("work", before_seq=2**40)
                client.append("work", ["job"] * case.queued)
        for line in case.before:
            assert main(arguments(line, mode, directory, shared_url)) == 0
        return arguments(case.line, mode, directory, shared_url)

    return run_before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_command_in_a_terminal_prints_for_people(
    case: Case, environment: dict[str, str], prepare: Callable[[Case, str], list[str]]
) -> None:
    code, text = in_terminal(prepare(case, "terminal"), environment, case.stdin)
    assert code == case.code, text
    assert case.terminal in text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line)
def test_command_in_a_pipe_prints_for_programs(
    case: Case, environment: dict[str, str], prepare: Callable[[Case, str], list[str]]
) -> None:
    done = in_pipe(prepare(case, "pipe"), environment, case.stdin)
    assert done.returncode == case.code, done.stderr
    assert "\x1b" not in done.stdout + done.stderr, "control characters in a pipe"
    if isinstance(case.pipe, str):
        assert case.pipe in done.stdout + done.stderr
        return
    assert done.stderr == ""
    last = json.loads(done.stdout.splitlines()[-1])
    assert {name: last.get(name) for name in case.pipe} == case.pipe


def test_every_command_is_in_the_table() -> None:
    assert {case.line.split()[0] for case in CASES} | ELSEWHERE == set(COMMANDS)
