"""The example for Spark Declarative Pipelines, run as its user runs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from topics.client import Client
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]


def test_the_pipelines_example_moves_each_paid_order_once(tmp_path: Path) -> None:
    example = tmp_path / "example"
    shutil.copytree(ROOT / "examples" / "spark-pipeline", example)
    spec = example / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/topics-paid-orders", str(tmp_path / "storage")))
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url, Client(url) as client:
        client.create("orders")
        client.create("orders.paid")
        client.append("orders", [{"id": number, "paid": number % 2 == 0} for number in range(10)])
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"TOPICS_URL": url, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
        environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE"):
            environment.pop(name, None)
        command = ["spark-pipelines", "run", "--spec", str(spec)]
        command[1:1] = ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=512m"]
        ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        paid = [(record.data, record.meta) for record in client.read("orders.paid")]
    assert paid == [({"id": n, "paid": True}, {"src_topic": "orders", "src_seq": n + 1}) for n in range(0, 10, 2)]
