"""A client whose machine is suddenly not there: no goodbye, no reset, nothing that could be read from the connection.

A network of its own, whose only link goes down, simulates that. Such a network is a process's; where processes may not have
one the test is skipped.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.test_queues import QueueApi
from topics.server.ops.settings import load_settings
from topics.testing.events import EventStream
from topics.testing.http import Api
from topics.testing.server import running_server

NETWORK = ["unshare", "--map-root-user", "--net"]


def can_have_networks() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*NETWORK, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_have_networks(), reason="this machine gives processes no network of their own")
def test_a_worker_whose_machine_is_gone_gives_its_jobs_back_long_before_their_leases_end(tmp_path: Path) -> None:
    command = [*NETWORK, sys.executable, "-m", "tests.acceptance.test_vanished", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["held", "free"]


def link(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def main(directory: str) -> None:
    link("up")
    environment = {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": f"{directory}/data", "TOPICS_PEER_TIMEOUT_MS": "2000"}
    with running_server(load_settings(environment)) as url:
        with Api(url) as api:
            queue = QueueApi(api, "q")
            queue.configure(type="queue", lease_ms=3_600_000)
            queue.append(1)
            stream = EventStream(api, "/v0/topics/q/work?node=w", {})
            assert stream.next().name == "job"
            assert queue.counters() == (0, 1, 0)
            print("held")
            link("down")
            # The kernel's own clock: nothing that a test could move.
            time.sleep(5)
            link("up")
        with Api(url) as api:
            assert QueueApi(api, "q").counters() == (1, 0, 0)
            print("free")


if __name__ == "__main__":
    main(sys.argv[1])
