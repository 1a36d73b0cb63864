"""One call of every command, and what it prints in a terminal and in a pipe.

`CASES` need a server, `CAPTURE_CASES` a PostgreSQL as well (tests/capture), `SPARK_CASES` a Java runtime (tests/spark).
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from topics.cli.main import COMMANDS, main
from topics.cli.shared.arguments import actions, subparsers
from topics.client import Client

Setup = Callable[[Client, str], None]


class Case(Struct):
    """A command line, what it prints in a terminal and in a pipe, and its exit code.

    In the line {mode} is `terminal` or `pipe`, {dir} a directory, and {url} the server. `pipe` is a text, or the fields that
    the last line, as JSON, has. `setup` and then the command lines of `before` run first, in this process.
    """

    line: str
    terminal: str
    pipe: str | dict[str, object]
    code: int = 0
    stdin: str = ""
    setup: Setup | None = None
    before: tuple[str, ...] = ()


def jobs(count: int) -> Setup:
    """The queue `work` holds this number of jobs."""

    def fill(client: Client, mode: str) -> None:
        client.delete("work", before_seq=2**40)
        client.append("work", ["job"] * count)

    return fill


def claimed_job(client: Client, mode: str) -> None:
    """The queue claimed-{mode} holds the job 1, leased to n-{mode}."""
    queue = f"claimed-{mode}"
    client.drop(queue)
    client.create(queue, type="queue")
    client.append(queue, ["job"])
    client.claim(queue, f"n-{mode}")


def reported_pipeline(client: Client, mode: str) -> None:
    client.report_pipeline(f"main-{mode}", "running", master="local[2]", started_ts=1)


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
    Case("export sample {dir}/{mode}.parquet", "3 records of sample in", {"count": 3}),
    Case("import copy-{mode} {dir}/{mode}.jsonl", "3 records of", {"count": 3}, before=(EXPORT,)),
    Case(
        "import copy-{mode} {dir}/{mode}.parquet",
        "3 records of",
        {"count": 3},
        before=("export sample {dir}/{mode}.parquet",),
    ),
    Case("sql SELECT\u00a01\u00a0AS\u00a0one", "one", {"one": 1}),
    Case("queue stats work", "in_flight", {"queue": "work", "in_flight": 0}, setup=jobs(2)),
    Case("queue peek work -n 1 --data", "job", '"job"', setup=jobs(1)),
    Case("queue claim work --node n-{mode} --max 1", "lease_", {"deliveries": 1, "data": "job"}, setup=jobs(1)),
    Case("queue ack claimed-{mode} 1 --node n-{mode}", "acked", {"acked": 1, "skipped": []}, setup=claimed_job),
    Case("queue ack work 99 --node n-{mode}", "holds no lease of 99", "lease_lost", code=4),
    Case("queue nack claimed-{mode} 1 --node n-{mode}", "nacked", {"nacked": 1, "skipped": []}, setup=claimed_job),
    Case("queue nack work 99 --node n-{mode}", "holds no lease of 99", "lease_lost", code=4),
    Case("work work --until-empty -- cat", "job", "job", setup=jobs(1)),
    Case("group ls sample", "readers", {"topic_id": "sample"}),
    Case("group lag sample readers", "last_acked_offset", {"partition_id": 0, "lag_records": 3}),
    Case("group seek sample readers -1h --dry-run", "next_offset", {"next_offset": 1}),
    Case(
        "group seek sample moved-{mode} earliest",
        "next_offset",
        {"next_offset": 1},
        before=("consume sample --group moved-{mode}",),
    ),
    Case(
        "group lag sample moved-{mode}",
        "last_acked_offset",
        {"next_offset": 1, "lag_records": 3},
        before=("consume sample --group moved-{mode}", "group seek sample moved-{mode} earliest"),
    ),
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
    Case(
        "pipeline status main-{mode}",
        "job_state",
        {"pipeline": "main-pipe", "state": "running"},
        setup=reported_pipeline,
    ),
    Case(
        "pipeline stop main-{mode}",
        "pipeline main-terminal was asked to stop",
        {"pipeline": "main-pipe", "outcome": "was asked to stop"},
        setup=reported_pipeline,
    ),
    Case("pipeline stop none", "pipeline", "not_found", code=3),
    Case("demo --port 0 --seconds 0.5", "console: http://127.0.0.1:", "orders written"),
    Case("top --count 1 --interval 0.1", "busiest topics", '"writes_per_s":'),
    Case("bench --seconds 0.05", "append, 1 record", {"test": "claim and ack, 50 jobs"}),
    Case("doctor --data {dir}", "disk space", {"check": "event loop"}),
    Case("config", "[server]", "[server]"),
    Case("user add ada --role dba --password-stdin", "[[users]]", "argon2id", stdin="a long password\n"),
    Case("login {url} --name {mode}", "context terminal logged in to", {"context": "pipe"}),
    Case("context ls", "credential", {"context": "pipe", "current": True}, before=(LOGIN,)),
    Case("context use {mode}", "is the current one", {"outcome": "is the current one"}, before=(LOGIN,)),
    Case("context show {mode}", "url", {"context": "pipe", "credential": "none"}, before=(LOGIN,)),
    Case("context rm {mode}", "removed", {"outcome": "removed"}, before=(LOGIN,)),
    Case("check {dir}/data", "Everything is whole.", "Everything is whole."),
    Case("check {dir}/none", "there is no data in", "there is no data in", code=3),
    Case("repair {dir}/data", "Nothing is damaged.", "Nothing is damaged."),
    Case("repair {dir}/none", "there is no data in", "there is no data in", code=3),
    Case("conformance {url} --only diff:", "passed, 0 failed", "passed, 0 failed"),
    Case("completion bash", "complete -o default -F _topics_words topics", "complete -o default"),
    Case("completion zsh", "compdef _topics_words topics", "compdef _topics_words topics"),
    Case("completion fish", "complete -c topics", "complete -c topics"),
    Case("completion words -- queue st", "stats", "stats"),
]

CAPTURE_CASES = [
    Case(
        "capture postgres --dsn {dsn} --table public.case_{mode} --once",
        "following public.case_terminal into changes:public.case_terminal",
        '"sent":2',
    ),
    Case(
        "capture postgres --dsn {dsn} --table public.case_{mode} --status",
        "lag_bytes",
        {"slot": "topics_public_case_pipe"},
    ),
]

SPARK_CASES = [
    Case(
        "pipeline replay {table} --from-seq 1 --dry-run --master local[2]",
        "2 changes, 1 routes",
        "2 changes, 1 routes",
    ),
    Case(
        "table materialize {table} --delta {dir}/{mode} --once --master local[2]",
        '"upserts":2',
        '"upserts":2',
    ),
]


def command_names() -> list[str]:
    """Every command as it is called: `ls`, `queue ack`."""
    return [name for command in COMMANDS for name in _below(command)]


def _below(command: str) -> Iterator[str]:
    below = subparsers(import_module(COMMANDS[command][0]).build_parser())
    yield from [f"{command} {each}" for each in below] or [command]


def command_of(line: str) -> str:
    """The command that a line calls."""
    words = line.split()
    return " ".join(words[:2]) if " ".join(words[:2]) in command_names() else words[0]


def arguments(line: str, **values: object) -> list[str]:
    """The words of the line; a no-break space is a space inside of a word."""
    return [word.replace("\u00a0", " ") for word in line.format(**values).split(" ")]


def prepare(case: Case, mode: str, directory: Path, url: str, **values: str) -> list[str]:
    """Run what comes before the case and return its arguments. TOPICS_URL must be set to `url`."""
    if case.setup is not None:
        with Client(url) as client:
            case.setup(client, mode)
    for line in case.before:
        assert main(arguments(line, mode=mode, dir=directory, url=url, **values)) == 0
    return arguments(case.line, mode=mode, dir=directory, url=url, **values)


def check_terminal(case: Case, code: int, text: str) -> None:
    assert code == case.code, text
    assert case.terminal in text


def check_pipe(case: Case, done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == case.code, done.stderr
    assert "\x1b" not in done.stdout + done.stderr, "control characters in a pipe"
    if isinstance(case.pipe, str):
        assert case.pipe in done.stdout + done.stderr
        return
    assert done.stderr == ""
    last: Mapping[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert {name: last.get(name) for name in case.pipe} == case.pipe


def has_output_option(case: Case) -> bool:
    """Whether the command of the case takes `-o`."""
    command, *below = command_of(case.line).split()
    parser = import_module(COMMANDS[command][0]).build_parser()
    for name in below:
        parser = subparsers(parser)[name]
    return "-o" in [option for action in actions(parser) for option in action.option_strings]
