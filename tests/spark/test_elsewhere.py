"""Spark Connect, and a standalone cluster whose executors are processes of their own on two workers."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.connector.test_exactly_once import PATIENCE_SECONDS, Driver, check_copied, fill
from tests.spark.pipeline.test_run import Process, ServerAndPipeline, check, count, send, wait_until
from tests.spark.pipeline.test_run import system as system
from topics.client import Client, Record

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE_SECONDS)]


def test_spark_connect_gets_the_package_reads_writes_and_streams(client: Client, topic: str, tmp_path: Path) -> None:
    fill(client, topic, 5000)
    client.create(f"{topic}.batch")
    job = {"remote": "local[2]", "url": client.url, "source": topic}
    job |= {"target": f"{topic}.out", "checkpoint": str(tmp_path / "checkpoint"), "batch": 2000, "min_partitions": 2}
    job |= {"written": f"{topic}.batch"}
    client.create(f"{topic}.routed")
    client.sql(f'ALTER TOPIC "{topic}.routed" ADD SOURCE "{topic}" ON INSERT WHERE (n > 10)')
    client.send_changes(topic, [{"op": "insert", "key": {"id": n}, "after": {"id": n, "n": n}} for n in range(20)])
    reports = Driver(**job, do="shipped,stream,batch,route").reports()
    assert all([".zip" in path for path in reports["shipped"]["paths"]]), reports
    assert reports["batch"] == {"did": "batch", "rows": 5000}
    check_copied(client, f"{topic}.batch", 5000)
    check_copied(client, f"{topic}.out", 5000)
    assert client.last_commit(f"spark-{reports['stream']['id']}") is not None, "the query id is known under Connect too"
    assert [record.data for record in client.read(f"{topic}.routed")] == [{"id": n} for n in range(11, 20)]
    assert reports["route"] == {"did": "route", "messages": 9, "trouble": []}


class Cluster:
    """A master and two workers. Their addresses differ, as speculative tasks only run on another host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._master_log = directory / "master.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def start(self) -> None:
        log = self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = self._wait(log, r"Starting Spark master at (spark://\S+)")
        logs = [
            self._start(
                f"worker{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", f"127.0.0.{number + 2}", "--cores", "2", "--memory", "1g"),
                *("--work-dir", str(self._directory / f"work{number}"), self.url),
            )
            for number in range(2)
        ]
        for log in logs:
            self._wait(log, r"Successfully registered with master (\S+)")

    def applications(self) -> list[str]:
        """The names of the applications that have run here."""
        return re.findall(r"Registering app (.+)", self._master_log.read_text(errors="replace"))

    def _start(self, name: str, *command: str) -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self._directory / f"{name}.log"
        environment = os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        environment |= {"SPARK_LOCAL_DIRS": str(self._directory / "local"), "SPARK_DAEMON_MEMORY": "256m"}
        environment.pop("SPARK_LOCAL_IP", None)
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), *command, "--webui-port", "0"],
                    env=environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found.group(1)
            time.sleep(0.05)
        raise AssertionError(log.read_text(errors="replace")[-3000:])

    def stop(self) -> None:
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            except ProcessLookupError:
                process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for both applications: its three JVMs take longer to start than either has to do."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.mark.long
def test_a_cluster_of_two_workers_gets_the_package_and_copies_every_record_once(
    cluster: Cluster, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 5000)
    client.create(f"{topic}.speculated")
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        # Both executors are there before the first task: on a busy machine one of them could do everything alone.
        "spark.cores.max": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "500ms",
    }
    job = {"master": cluster.url, "url": client.url, "source": topic, "settings": settings, "batch": 2000}
    job |= {"target": f"{topic}.out", "checkpoint": str(tmp_path / "checkpoint"), "min_partitions": 4}
    job |= {"speculated": f"{topic}.speculated"}
    reports = Driver(**job, do="shipped,stream,speculate").reports()
    assert all([".zip" in path for path in reports["shipped"]["paths"]]), reports
    assert reports["shipped"]["executors"] > 1
    check_copied(client, f"{topic}.out", 5000)

    check_copied(client, f"{topic}.speculated", 5000)
    tags = [record.tag for record in client.read(f"{topic}.speculated") if isinstance(record, Record)]
    assert set(tags[3750:]) == {"attempt-1"}, "the second attempt won"
    # On a busy machine others may have been tried twice as well.
    assert set(tags[:3750]) <= {"attempt-0", "attempt-1"}


def documented_submit_line(checkpoint: Path, master: str) -> str:
    """The shell lines for a standalone cluster from docs/pipeline.md, with this checkpoint and master."""
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith(("ENTRY=", "ZIP=")) or line.endswith("# standalone")]
    assert len(lines) == 3, lines
    return "\n".join(lines).replace("spark://host:7077", master).replace("s3a://lake/checkpoints", str(checkpoint))


def test_the_documented_spark_submit_line_routes_every_change_once_on_a_cluster_of_two_workers(
    system: ServerAndPipeline, cluster: Cluster, tmp_path: Path
) -> None:
    import pyspark

    client = system.client
    client.create("changes:shop.orders", partitions=2)
    client.create("all", partitions=3)
    client.sql("ALTER TOPIC \"all\" ADD SOURCE shop.orders ON UPDATE WHERE (n >= 0) WITH (payload = 'full')")
    send(system, "shop.orders", 0, 6000)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.ui.enabled": "false",
    }
    (tmp_path / "spark-defaults.conf").write_text("".join([f"{key} {value}\n" for key, value in settings.items()]))
    path = [str(Path(pyspark.__file__).parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    system.pipeline = pipeline = Process(
        command=["bash", "-ec", "cd $WORK\n" + documented_submit_line(tmp_path / "checkpoint", cluster.url)],
        PATH=os.pathsep.join(path),
        WORK=str(tmp_path),
        TOPICS_URL=client.url,
        SPARK_CONF_DIR=str(tmp_path),
        PYSPARK_PYTHON=sys.executable,
    )
    wait_until(lambda: count(system, "all") >= 6000, pipeline)
    assert client.stop_pipeline("main").stop
    assert pipeline.process.wait(90) == 0, pipeline.output()[-3000:]
    assert client.pipeline("main").master == cluster.url
    assert cluster.applications()[-1] == "changes", "spark-submit decides the name"
    check(system, "all", list(range(6000)), 3)
