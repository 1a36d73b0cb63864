"""Routing measured end to end: changes a second, where a micro-batch spends its time, memory, and how long a change takes to its topic."""

import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.spark_rows import Row
from bench.spark_tools import Bench, in_turns, ratios, write
from topics.client import Client

PATIENCE_SECONDS = 300
# Changes that only warm the pipeline up.
WARM = 20
FIVE_ROUTES = [
    ("out0", "WHERE (visible = true AND channel IN (1, 2, 3))", "full"),
    ("out1", "WHERE (channel = 4)", "key"),
    ("out2", "WHERE (author LIKE 'a%' OR length(text) > 1000)", "full"),
    ("out3", "WHERE (channel > 90) PARTITION BY (author)", "full"),
    ("out4", "WHERE (NOT visible)", "key"),
]
CONSTANTS = [(f"out{at % 10}", f"WHERE (channel = {at})", "full") for at in range(1000)]
# As `--conf spark.hadoop.fs.file.impl=...` of docs/pipeline.md, for a session that has used another implementation already.
FAST = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
# The steps of a micro-batch in Spark's progress, in their order.
STEPS = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
LOAD_CHANGES_S = 2_000
_tables = itertools.count(1)


def routing(bench: Bench) -> Iterator[Row]:
    found = in_turns(bench.rounds, {"new": lambda: routed(bench, bench.rows // 2, FIVE_ROUTES)})
    yield Row("routing, 5 routes", "changes/s", found["new"], 100_000)


def before(bench: Bench) -> Iterator[Row]:
    """The job of an earlier checkout, in a process of its own with its own server, in turns with the present one."""
    if bench.before is None:
        return
    changes = bench.rows // 8
    with _job_of(bench.before) as measure:
        found = in_turns(
            min(3, bench.rounds),
            {"old": lambda: measure(changes), "new": lambda: routed(bench, changes, FIVE_ROUTES)},
        )
    yield Row("routing, 5 routes, the job before", "changes/s", found["old"])
    yield Row("routing, 5 routes, beside the job before", "changes/s", found["new"])
    yield Row("routing, 5 routes, of the job before", "times", ratios(found["new"], found["old"]), 2.5)


_OLD = """
import sys, tempfile
from bench import spark
from bench.tools import topics_server

with topics_server() as server:
    session = spark._session()
    bench = spark.Bench(session, server, tempfile.mkdtemp(), 0, True)
    for line in sys.stdin:
        print("rate", spark._routed(bench, int(line), spark.FIVE_ROUTES), flush=True)
"""


@contextmanager
def _job_of(directory: str) -> Iterator[Callable[[int], float]]:
    path = os.pathsep.join([os.path.join(directory, "src"), directory])
    process = subprocess.Popen(
        [sys.executable, "-c", _OLD],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def measure(changes: int) -> float:
        stdin.write(f"{changes}\n")
        stdin.flush()
        for line in stdout:
            if line.startswith("rate "):
                return float(line.split()[1])
        raise RuntimeError(f"the job of {directory} ended with status {process.wait()}")

    try:
        yield measure
    finally:
        stdin.close()
        process.wait(120)
        stdout.close()


def routes(bench: Bench) -> Iterator[Row]:
    """Each change goes to one of the routes: found by lookup for `column = constant`, by evaluation for others."""
    changes = bench.rows // 10
    rounds = min(3, bench.rounds)
    found = in_turns(rounds, {"lookup": lambda: routed(bench, changes, CONSTANTS)})
    yield Row("routing, 1,000 routes of column = constant", "changes/s", found["lookup"], 20_000)
    for number in (1, 10, 100, 1000):
        evaluated = [(f"out{at % 10}", f"WHERE (channel % {number} = {at})", "full") for at in range(number)]
        # The plan for many conditions takes longer to make than a round.
        size = changes if number < 1000 else changes // 5
        found = in_turns(
            1 if number == 1000 else rounds,
            {"evaluated": lambda evaluated=evaluated, size=size: routed(bench, size, evaluated)},  # type: ignore[misc]
        )
        plural = "" if number == 1 else "s"
        yield Row(f"routing, {number:,} evaluated condition{plural}", "changes/s", found["evaluated"])


def backlog(bench: Bench) -> Iterator[Row]:
    """What waits does not slow the job down, and where a full micro-batch spends its time."""
    sizes = (bench.rows // 10, bench.rows)
    steps: list[dict[str, float]] = []

    def measure(changes: int) -> Callable[[], float]:
        def run() -> float:
            batches = _batches(bench, changes, FIVE_ROUTES)
            if changes == sizes[-1]:
                steps[:] = [_steps(each) for each in batches if each["numInputRows"] >= 50_000][1:]
            return rate_of(batches)

        return run

    found = in_turns(min(2, bench.rounds), {f"{size:,}": measure(size) for size in sizes})
    small, large = found.values()
    for name, rows in found.items():
        yield Row(f"routing, backlog of {name}", "changes/s", rows)
    yield Row("routing, the larger backlog, of the smaller", "times", ratios(large, small), 0.9)
    yield from _step_rows("micro-batch of 50,000 changes", steps)


def _step_rows(what: str, steps: list[dict[str, float]]) -> Iterator[Row]:
    for name in [*STEPS, "other", "triggerExecution"]:
        yield Row(f"{what}: {name}", "ms", [each.get(name, 0.0) for each in steps])


def _steps(progress: Any) -> dict[str, float]:
    found = {name: float(value) for name, value in progress["durationMs"].items()}
    found["other"] = max(0.0, found["triggerExecution"] - sum([found.get(name, 0.0) for name in STEPS]))
    return found


def memory(bench: Bench) -> Iterator[Row]:
    """The most memory at any time while 1 M changes are routed. Pages that processes share are divided among them."""
    peaks: list[dict[str, float]] = []
    for _ in range(min(3, bench.rounds)):
        peak = dict.fromkeys(("server", "driver (JVM)", "driver (Python)", "workers (Python, all together)"), 0.0)
        done = threading.Event()
        sampler = threading.Thread(target=_sample, args=(bench.server.pid, peak, done), daemon=True)
        sampler.start()
        try:
            routed(bench, bench.rows, FIVE_ROUTES)
        finally:
            done.set()
            sampler.join()
        peaks.append(peak)
    for name in peaks[0]:
        yield Row(f"memory while routing, {name}", "MB", [each[name] for each in peaks])


def _sample(server: int, peak: dict[str, float], done: threading.Event) -> None:
    while not done.wait(0.5):
        now = dict.fromkeys(peak, 0.0)
        for pid, parent, name in _processes():
            if server in (pid, parent):
                kind = "server"
            elif pid == os.getpid():
                kind = "driver (Python)"
            elif name == "java":
                kind = "driver (JVM)"
            else:
                kind = "workers (Python, all together)"
            now[kind] += _pss_mb(pid)
        for name, value in now.items():
            peak[name] = max(peak[name], value)


def _processes() -> list[tuple[int, int, str]]:
    """This process and all that descend from it: id, parent and name."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(") ")
        except OSError:
            continue
        parents[int(path.parent.name)] = (int(tail.split()[1]), head.partition("(")[2])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, (parent, _) in parents.items() if parent == pid]
    return [(pid, *parents[pid]) for pid in found if pid in parents]


def _pss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum([int(line.split()[1]) for line in lines if line.startswith("Pss:")]) / 1024


def latency(bench: Bench) -> Iterator[Row]:
    """One change after the other, from its request to its arrival at a reader that waits for it."""
    for what, settings, bounds in (("", {}, (150, 220)), (", fast mode", FAST, (100, 150))):
        times, steps = _rounds(bench, settings, load=False)
        yield Row(f"change to topic{what}, p50", "ms", [_share(each, 0.50) for each in times], bounds[0], at_most=True)
        yield Row(f"change to topic{what}, p95", "ms", [_share(each, 0.95) for each in times], bounds[1], at_most=True)
        yield from _step_rows(f"micro-batch of one change{what}", steps)


def load(bench: Bench) -> Iterator[Row]:
    """The same while other changes of the table arrive, which are read, evaluated and not routed."""
    times, _ = _rounds(bench, {}, load=True)
    for share in (50, 95):
        name = f"change to topic beside {LOAD_CHANGES_S:,} changes/s, p{share}"
        yield Row(name, "ms", [_share(each, share / 100) for each in times])


def _rounds(bench: Bench, settings: dict[str, str], *, load: bool) -> tuple[list[list[float]], list[dict[str, float]]]:
    for name, value in settings.items():
        bench.spark.conf.set(name, value)
    try:
        rounds = [_route_times(bench, 30 if bench.quick else 60, load=load) for _ in range(min(3, bench.rounds))]
    finally:
        for name in settings:
            bench.spark.conf.unset(name)
    return [times for times, _ in rounds], [each for _, steps in rounds for each in steps]


def _route_times(bench: Bench, changes: int, *, load: bool) -> tuple[list[float], list[dict[str, float]]]:
    table = f"bench.t{next(_tables)}"
    with Client(bench.url) as client:
        client.create(f"{table}.out")
        where = "WHERE (is_load IS NULL)" if load else ""
        client.sql(f"ALTER TOPIC {table}.out ADD SOURCE {table} ON INSERT {where} WITH (payload = 'full', key = 'id')")
        client.create(f"changes:{table}", durability="fsync")
        query = started(bench, _job(client, table))
        done = threading.Event()
        sender = threading.Thread(target=_send_load, args=(bench.url, table, done), daemon=True)
        try:
            if load:
                sender.start()
            times = _latencies(client, table, changes)
            steps = [_steps(each) for each in query.recentProgress if each["numInputRows"]]
        finally:
            done.set()
            if load:
                sender.join()
            query.stop()
        return times, steps


def _send_load(url: str, table: str, done: threading.Event) -> None:
    portion = LOAD_CHANGES_S // 20
    with Client(url) as client:
        rows = [{"id": -number, "is_load": True, "text": "x" * 40} for number in range(1, portion + 1)]
        changes = [{"op": "insert", "key": {"id": row["id"]}, "after": row} for row in rows]
        next_s = time.perf_counter()
        while not done.wait(max(0.0, next_s - time.perf_counter())):
            client.send_changes(table, changes)
            next_s += 0.05


def _latencies(client: Client, table: str, number: int) -> list[float]:
    times = []
    chance = random.Random(9)
    for at in range(number + WARM):
        time.sleep(chance.uniform(0.05, 0.35))  # so that changes meet the micro-batches at any moment
        begun = time.perf_counter()
        client.send_changes(table, [{"op": "insert", "key": {"id": at}, "after": {"id": at}}])
        page = client.diff(f"{table}.out", at, limit=1, wait_ms=30_000)
        while not page.records:
            if time.perf_counter() - begun > PATIENCE_SECONDS:
                raise RuntimeError("a change did not arrive")
            page = client.diff(f"{table}.out", at, limit=1, wait_ms=30_000)
        times.append(1000 * (time.perf_counter() - begun))
    return times[WARM:]


def _share(times: list[float], share: float) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[round(share * 100) - 1]


# Jobs and their progress


def routed(bench: Bench, changes: int, rules: list[tuple[str, str, str]]) -> float:
    """Changes a second through a job of a table of its own, from the start of the first batch to the end of the last."""
    return rate_of(_batches(bench, changes, rules))


def _batches(bench: Bench, changes: int, rules: list[tuple[str, str, str]]) -> list[Any]:
    table = f"bench.t{next(_tables)}"
    with Client(bench.url) as client:
        for topic, rest, payload in rules:
            name = f"{table}.{topic}"
            client.create(name)
            where, _, partition = rest.partition(" PARTITION BY ")
            by = f" PARTITION BY {partition}" if partition else ""
            client.sql(
                f"ALTER TOPIC {name} ADD SOURCE {table} ON INSERT {where}{by} WITH (payload = '{payload}', key = 'id')"
            )
        _fill_changes(bench, client, table, changes)
        query = started(bench, _job(client, table))
        try:
            return progress_until(query, changes)
        finally:
            query.stop()
            for topic in {topic for topic, _, _ in rules}:
                client.drop(f"{table}.{topic}")
            client.drop(f"changes:{table}")


def _job(client: Client, table: str) -> Any:
    from topics.spark.routing.job import route_jobs

    (job,) = route_jobs(client.routes(table=table).routes)
    return job


def _fill_changes(bench: Bench, client: Client, table: str, changes: int) -> None:
    """Change events as the server keeps them, put there with the sink, which is faster than sending them."""
    client.create(f"changes:{table}", durability="fsync")
    event = (
        'concat(\'{"op":"insert","ts":1730000000000,"key":{"id":\', id, \'},"before":null,"after":{"id":\', id, '
        "',\"channel\":', id % 1000, ',\"author\":\"', element_at(array('ada', 'grace', 'linus'), CAST(id % 3 + 1 AS INT)), "
        '\'","text":"\', repeat(\'x\', 40), \'","visible":\', id % 10 <> 0, \'},"source":null}\')'
    )
    write(bench.spark.range(0, changes, 1, 2).selectExpr(f"{event} AS data"), bench.url, f"changes:{table}", "arrow")


def started(bench: Bench, job: Any) -> Any:
    from topics.spark.pipeline.job import JobContext

    checkpoint = tempfile.mkdtemp(dir=bench.directory)
    return job.start(JobContext(bench.spark, bench.url, None, checkpoint, 0))


def first_batch(query: Any) -> float:
    """When the first batch with rows began. It is in the progress only when it is over."""
    wait(query, lambda: any([each["numInputRows"] for each in query.recentProgress]))
    return min([_seconds(each) for each in query.recentProgress if each["numInputRows"]])


def rate_of(batches: list[Any]) -> float:
    """Rows a second from the start of the first batch to the end of the last."""
    seconds = _seconds(batches[-1]) + batches[-1]["batchDuration"] / 1000 - _seconds(batches[0])
    return float(sum([each["numInputRows"] for each in batches]) / seconds)


def progress_until(query: Any, rows: int) -> list[Any]:
    """The batches with the first `rows` rows."""
    seen: dict[int, Any] = {}

    def enough() -> bool:
        # Spark keeps the last ones only.
        seen.update({each["batchId"]: each for each in query.recentProgress if each["numInputRows"]})
        return sum([each["numInputRows"] for each in seen.values()]) >= rows

    wait(query, enough)
    return [seen[number] for number in sorted(seen)]


def wait(query: Any, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if not query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"the job did not end: {query.exception()}")
        time.sleep(0.05)


def _seconds(progress: Any) -> float:
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
