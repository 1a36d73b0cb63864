"""Bad input to the whole pipeline: the error is shown, nothing is lost, and everything else goes on.

One pipeline, with the session of all tests, serves the whole file: each test has its tables, and the jobs of the others are those
that must not notice.
"""

import itertools
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.served import server_settings
from tests.spark.delta.lake_table import LakeTable
from topics.client import Client, JobStatus, RetryPolicy
from topics.model.errors import InvalidRequest, NotFound
from topics.spark.pipeline.run import Pipeline
from topics.spark.pipeline.supervisor import Supervisor
from topics.spark.routing.conditions import Columns
from topics.sql.tokens import SqlError
from topics.testing.server import running_server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

NAME = "hostile"
PATIENCE_SECONDS = 150
_numbers = itertools.count(1)


class RunningPipeline:
    """The loop of `topics pipeline run`, in a thread, against a server of its own."""

    def __init__(self, spark: Any, client: Client, directory: Path) -> None:
        self.client = client
        self.checkpoint = directory / "checkpoint"
        self._stop = threading.Event()
        self._own_client = Client(client.url, timeout_s=5.0, retry=RetryPolicy(attempts=1))
        supervisor = Supervisor(spark, client.url, None, str(self.checkpoint), 50)
        loop = Pipeline(NAME, "local[2]", 1, self._own_client, supervisor, self._stop)
        self._thread = threading.Thread(target=loop.run, daemon=True)
        self._thread.start()

    def job(self, name: str) -> JobStatus | None:
        try:
            return next((job for job in self.client.pipeline(NAME).jobs if job.name == name), None)
        except NotFound:
            return None

    def rows(self, name: str) -> int:
        job = self.job(name)
        return 0 if job is None else job.rows

    def wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self._thread.is_alive(), "the pipeline ended"
            if time.monotonic() > deadline:
                jobs = [(job.name, job.state, job.error) for job in self.client.pipeline(NAME).jobs]
                raise AssertionError(f"{otherwise}; jobs: {jobs}")
            time.sleep(0.05)

    def wait_for_error(self, name: str, text: str) -> JobStatus:
        """Until the job is shown as failed, with these words."""
        found: list[JobStatus] = []

        def failed() -> bool:
            job = self.job(name)
            found[:] = [] if job is None else [job]
            return job is not None and text in (job.error or "")

        self.wait(failed, f"{name} never showed {text!r}")
        return found[0]

    def end(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)
        self._own_client.close()


@pytest.fixture(scope="module")
def pipeline(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPipeline]:
    directory = tmp_path_factory.mktemp("hostile")
    with running_server(server_settings(directory / "data")) as url, Client(url) as client:
        made = RunningPipeline(spark, client, directory)
        try:
            yield made
        finally:
            made.end()


class Table:
    """A pushed table, and the topics that its routes fill."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.name = f"t{next(_numbers)}.rows"
        self.topic = f"changes:{self.name}"
        self._position = 0

    def route(self, topic: str, rest: str = "", payload: str = "full", op: str = "INSERT") -> str:
        name = f"{self.name}.{topic}"
        self.client.create(name)
        self.client.sql(
            f"ALTER TOPIC {name} ADD SOURCE {self.name} ON {op} {rest} WITH (payload = '{payload}', key = 'id')"
        )
        return name

    def insert(self, *rows: dict[str, Any]) -> None:
        changes = []
        for row in rows:
            self._position += 1
            changes.append({"op": "insert", "key": {"id": row["id"]}, "after": row, "position": self._position})
        self.client.send_changes(self.name, changes, source="test")

    def got(self, topic: str) -> list[Any]:
        return [record.data for record in self.client.read(f"{self.name}.{topic}")]


@pytest.fixture
def table(pipeline: RunningPipeline) -> Table:
    return Table(pipeline.client)


@pytest.fixture
def bystander(pipeline: RunningPipeline) -> Iterator[Callable[[], None]]:
    """A job of another table. Called, it must still do its work."""
    other = Table(pipeline.client)
    other.route("out")
    other.insert({"id": 0})
    pipeline.wait(lambda: other.got("out") == [{"id": 0}], "the other job never ran")
    sent = itertools.count(1)

    def check() -> None:
        number = next(sent)
        other.insert({"id": number})
        pipeline.wait(lambda: {"id": number} in other.got("out"), "the other job does not continue")
        job = pipeline.job(f"route {other.name}")
        assert job is not None
        assert (job.error, job.restarts) == (None, 0)

    yield check
    other.client.drop(f"{other.name}.out")


# Filters


HOSTILE_FILTERS = [
    "id IN (SELECT id FROM other)",
    "EXISTS (SELECT 1)",
    "(SELECT count(*) FROM system.users) > 0",
    "reflect('java.lang.Runtime', 'getRuntime') IS NOT NULL",
    "java_method('java.lang.System', 'exit', 1) = 0",
    "try_reflect('java.lang.System', 'getenv', 'HOME') = ''",
    "input_file_name() = ''",
    "read_files('/etc/passwd') IS NULL",
    "from_csv('a', 'b STRING') IS NULL",
    "schema_of_json('{}') = ''",
    "current_user() = 'root'",
    "rand() < 2",
    "uuid() IS NOT NULL",
    "raise_error('x') IS NULL",
    "assert_true(false) IS NULL",
    "sleep(10) = 0",
    "transform(array(1), x -> x) IS NOT NULL",
    "id = 1) OR (1 = 1",
    "id = 1); DROP TOPIC x; --",
    "id = 1 -- a comment",
    "id = 1 /* a comment */",
    "/*+ BROADCAST(x) */ id = 1",
    "id = 1; SELECT 1",
    "id RLIKE '(a+)+$'",
    "regexp_like(id, '(a+)+$')",
    'id = "text"',
    "id = 'it\\'s'",
    "id = '\\u0027 OR true'",
    "ｒｅｆｌｅｃｔ('a', 'b') IS NULL",
    "id\u00a0= 1\u2028OR 1 = 1",
    "id = 1\x00",
    "id = 1 \u202e",
    "`a`.`b`.c() = 1",
    "id::binary = x'00'",
    "CAST(id AS ARRAY<INT>) IS NULL",
    "id = ?",
    "id = :name",
    "id = ${spark.app.id}",
    "id = @@version",
    "sum(id) > 1",
    "row_number() OVER (ORDER BY id) = 1",
    "(" * 300 + "id = 1" + ")" * 300,
    " OR ".join(["id = 1"] * 5000),
    "id = " + "9" * 100_000,
]


def test_a_hostile_filter_that_bypassed_the_server_check_is_not_run() -> None:
    for text in HOSTILE_FILTERS:
        with pytest.raises((SqlError, ValueError, IndexError)):
            Columns({}).compiled(text, "boolean")


@pytest.mark.parametrize("text", HOSTILE_FILTERS, ids=lambda text: text[:30])
def test_a_hostile_filter_is_refused_when_it_is_added(client: Client, topic: str, text: str) -> None:
    client.create(topic)
    for clause in (f"WHERE ({text})", f"PARTITION BY ({text})"):
        with pytest.raises(InvalidRequest):
            client.sql(
                f"ALTER TOPIC {topic} ADD SOURCE hostile.rows ON INSERT {clause} WITH (payload = 'full', key = 'id')"
            )
    assert not [route for route in client.routes().routes if route.topic_id == topic]


# Events


GARBAGE: list[Any] = [
    None,
    True,
    17,
    "insert",
    [],
    [{"op": "insert"}],
    {},
    {"op": None},
    {"op": 5, "after": {"id": 1}},
    {"op": "INSERT; DROP TABLE x", "after": {"id": 1}},
    {"op": "insert", "key": {"id": 1}},
    {"op": "insert", "key": {"id": 1}, "after": "text"},
    {"op": "insert", "key": {"id": 1}, "after": [1, 2]},
    {"op": "insert", "key": "text", "after": 7},
    {"op": "update", "key": {"id": 1}, "before": 3, "after": None},
    {"op": "delete", "key": None, "before": None, "after": None},
    {"op": ["insert"], "key": {}, "after": {}},
    {"op": {"insert": 1}, "ts": "yesterday"},
    {"op": "truncate", "key": {"id": 1}, "before": "x"},
    {"schema": {}, "payload": {"op": "c"}},
    {"_topics_tombstone": {"gap_from": 1, "gap_to": 9}},
    {"op": "insert", "key": {"id": 1}, "after": {"id": {"$ref": "#"}}, "source": {"name": 3}},
]


def test_garbage_in_a_change_topic_stops_nothing_and_what_is_good_arrives(
    pipeline: RunningPipeline, table: Table, bystander: Callable[[], None]
) -> None:
    """A key with the scope write may append records to a change topic that are no change events."""
    table.route("out", "WHERE (id >= 100)")
    table.route("keys", payload="key", op="UPDATE")
    table.insert({"id": 100})
    pipeline.client.append(table.topic, GARBAGE)
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    pipeline.client.append(table.topic, [{"op": "insert", "key": {"id": 5}, "after": deep}])
    table.insert({"id": 101, "text": "😀 \u0000 \u2028 '; --"}, {"id": 10**30}, {"id": "x"}, {"id": 102})
    good = [100, 101, 102]
    pipeline.wait(lambda: len(table.got("out")) >= len(good), "the good events never came")
    assert [row["id"] for row in table.got("out")] == good
    expected = len(GARBAGE) + 6
    pipeline.wait(
        lambda: pipeline.rows(f"route {table.name}") >= expected, "the job does not show all that it has seen"
    )
    job = pipeline.job(f"route {table.name}")
    assert job is not None
    assert (job.state, job.restarts, job.error) == ("running", 0, None)
    assert job.notes["unreadable"] > 0, "what is no change event is counted"
    # An id that is no number and one that is too large for any: no match, and shown.
    assert [each["what"] for each in job.notes["trouble"]], job.notes
    bystander()


def test_columns_that_come_and_go_and_change_their_type_mid_stream(pipeline: RunningPipeline, table: Table) -> None:
    table.route("cheap", "WHERE (cents < 10)")
    table.route("all", payload="diff")
    rows: list[dict[str, Any]] = [
        {"id": 1, "cents": 5},
        {"id": 2, "cents": "7"},
        {"id": 3, "cents": "cheap"},
        {"id": 4},
        {"id": 5, "cents": None},
        {"id": 6, "cents": {"eur": 3}},
        {"id": 7, "cents": [1]},
        {"id": 8, "cents": 3.5, "currency": "EUR"},
        {"id": "nine", "cents": 9},
        {"id": 10, "CENTS": 1, "cents": 99},
    ]
    for row in rows:
        table.insert(row)
    pipeline.wait(lambda: len(table.got("all")) >= len(rows), "some rows never came")
    assert [each["key"]["id"] for each in table.got("all")] == [row["id"] for row in rows]
    assert [row["id"] for row in table.got("cheap")] == [1, 2, 8, "nine"]
    # A route on a column that is there only from now on.
    table.route("euro", "WHERE (currency = 'EUR')")
    pipeline.wait(lambda: table.insert({"id": 0, "currency": "EUR"}) is None and bool(table.got("euro")), "no route")
    job = pipeline.job(f"route {table.name}")
    assert job is not None
    assert job.error is None


# The lake


def test_a_vacuumed_feed_is_reported_and_other_jobs_continue(
    pipeline: RunningPipeline, tmp_path: Path, bystander: Callable[[], None]
) -> None:
    client = pipeline.client
    name = f"lake.t{next(_numbers)}"
    lake = LakeTable(tmp_path / "lake", {"id": [1, 2], "v": ["a", "b"]})
    client.put_table(name, "delta", lake.uri, key_columns=["id"])
    client.create(f"{name}.out")
    route = f"ALTER TOPIC {name}.out ADD SOURCE {name} ON INSERT WITH (payload = 'full', key = 'id')"
    client.sql(route)
    pipeline.wait(lambda: client.info(f"{name}.out").count == 2, "the table never came")
    client.sql(f"ALTER TOPIC {name}.out DROP SOURCE {name} ON INSERT")
    pipeline.wait(lambda: pipeline.job(f"delta {name}") is None, "the job never ended")
    lake.append({"id": [3], "v": ["c"]})
    lake.append({"id": [4], "v": ["d"]})
    lake.delta.optimize.compact()
    lake.delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    client.sql(route)
    job = pipeline.wait_for_error(f"delta {name}", "has lost versions 1 to 2")
    assert "delete the checkpoint of this job" in (job.error or "")
    bystander()
    assert client.info(f"{name}.out").count == 2, "nothing was skipped"


# The disk


def test_a_full_disk_under_a_checkpoint_is_reported_and_writes_every_message_once(
    pipeline: RunningPipeline, table: Table, bystander: Callable[[], None], tmp_path: Path
) -> None:
    table.route("out")
    before = set(pipeline.checkpoint.iterdir())
    table.insert({"id": 1})
    pipeline.wait(lambda: len(table.got("out")) == 1, "the job never ran")
    (directory,) = set(pipeline.checkpoint.iterdir()) - before
    with full_disk(directory, tmp_path):
        table.insert({"id": 2})
        job = pipeline.wait_for_error(f"route {table.name}", "")
        pipeline.wait(lambda: bool((pipeline.job(f"route {table.name}") or job).error), "the job never showed an error")
        bystander()
    table.insert({"id": 3})
    pipeline.wait(lambda: len(table.got("out")) >= 3, "the job never went on")
    assert [row["id"] for row in table.got("out")] == [1, 2, 3]


class full_disk:  # noqa: N801 - reads as a word of its own
    """While it lasts, nothing more can be written below the directory."""

    def __init__(self, directory: Path, spare: Path) -> None:
        self._directory = directory
        self._spare = spare / "kept"

    def __enter__(self) -> None:
        if os.getuid() != 0:
            for path in [self._directory, *[each for each in self._directory.rglob("*") if each.is_dir()]]:
                path.chmod(0o555)
            return
        shutil.copytree(self._directory, self._spare)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(self._directory)], capture_output=True
        )
        if done.returncode:
            pytest.skip("a small disk cannot be mounted here")
        shutil.copytree(self._spare, self._directory, dirs_exist_ok=True)
        filler = os.open(self._directory / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(filler, bytes(4096))
        except OSError:
            pass
        finally:
            os.close(filler)

    def __exit__(self, *_: object) -> None:
        if os.getuid() != 0:
            for path in [self._directory, *[each for each in self._directory.rglob("*") if each.is_dir()]]:
                path.chmod(0o755)
            return
        # What was there before is below, and nothing could be added since.
        subprocess.run(["umount", "-l", str(self._directory)], check=True)
