"""A data directory and a Spark checkpoint of the previous release: this version continues both."""

import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import content
from tests.fixtures.write_directories import start
from tests.fixtures.write_upgrade import ARCHIVE, COPIES, JOBS, ORDERS, copy_orders, write_orders
from topics.client import Client

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_data_directory_and_a_checkpoint_of_the_previous_release_continue(spark: Any, tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    process, port = start(sys.executable, tmp_path / "data", content.READ_MS, content.SETTINGS)
    try:
        url = f"http://127.0.0.1:{port}"
        with Client(url) as client:
            assert sorted([record.data["n"] for record in client.read(ORDERS, partition=1)]) == [*range(1, 20, 2)]
            write_orders(content.Server(port), 20, 10)
            copy_orders(spark, url, tmp_path / "checkpoint")
            copies = [record.data["n"] for record in client.read(COPIES)]
            assert sorted(copies) == [*range(30)], (
                "each order once, also those of the batch that the checkpoint did not know"
            )
            claimed = client.claim(JOBS, "worker", 2).claimed
            assert [job.data for job in claimed] == [{"job": 0}, {"job": 1}]
            client.ack(JOBS, "worker", [job.seq for job in claimed])
            client.append(JOBS, [{"job": 4}])
        process.terminate()
        assert process.wait(60) == 0
        process, port = start(sys.executable, tmp_path / "data", content.READ_MS, content.SETTINGS)
        with Client(f"http://127.0.0.1:{port}") as client:
            assert [job.data["job"] for job in client.claim(JOBS, "worker", 9).claimed] == [2, 3, 4]
            assert len([*client.read(COPIES)]) == 30
    finally:
        process.kill()
        process.wait()
