"""A standalone cluster of Spark: a master and two workers with one core each, as processes of this machine."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKERS = 2
START_SECONDS = 120.0
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    # Both executors are there before the first task.
    "spark.cores.max": str(WORKERS),
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


@contextmanager
def running(directory: str) -> Iterator[str]:
    """Answers the address of the master."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    environment["SPARK_LOCAL_DIRS"] = os.path.join(directory, "local")
    environment.pop("SPARK_LOCAL_IP", None)
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, pattern: str, *command: str) -> str:
        log = Path(directory) / f"{name}.log"
        with log.open("wb") as out:
            line = [str(home / "bin" / "spark-class"), *command, "--host", "127.0.0.1", "--webui-port", "0"]
            processes.append(
                subprocess.Popen(line, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found.group(1)
            time.sleep(0.05)
        raise RuntimeError(f"the {name} did not start: {log.read_text(errors='replace')[-2000:]}")

    try:
        deploy = "org.apache.spark.deploy"
        master = start("master", r"Starting Spark master at (spark://\S+)", f"{deploy}.master.Master", "--port", "0")
        for number in range(WORKERS):
            work = os.path.join(directory, f"work{number}")
            command = [f"{deploy}.worker.Worker", master, "--cores", "1", "--memory", "1g", "--work-dir", work]
            start(f"worker {number}", r"Successfully registered with master (\S+)", *command)
        yield master
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
