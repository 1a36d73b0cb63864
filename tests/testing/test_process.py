"""A server in a process: where it serves, how it ends, and what it said when it did not start."""

import os
import signal
from pathlib import Path

import pytest

from topics.testing.process import ServerEnded, ServerProcess

# Serves nothing: writes its port file and its settings, and ends with 0 on SIGTERM.
PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print(sorted(name for name in os.environ if name.startswith("TOPICS_")), "port", os.environ["TOPICS_PORT"], flush=True)
print("listening on http://127.0.0.1:4711, data in", os.environ["TOPICS_DATA_DIR"], flush=True)
if "TOPICS_REPLAYS" not in os.environ:
    with open(os.environ["TOPICS_PORT_FILE"] + ".new", "w") as file:
        file.write("127.0.0.1:4711")
    os.rename(file.name, os.environ["TOPICS_PORT_FILE"])
while True:
    time.sleep(60)
"""


class Program(ServerProcess):
    program = ("-c", PROGRAM)


class FailingProgram(ServerProcess):
    program = ("-c", "raise SystemExit('no such option')")


def test_server_is_stopped_and_killed_and_started_again_on_its_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPICS_OF_THE_DEVELOPER", "1")
    server = Program(tmp_path, TOPICS_MARGIN="1")
    server.start()
    assert (server.url, server.data_dir) == ("http://127.0.0.1:4711", tmp_path / "data")
    assert server.stop() == 0
    with server:
        server.kill()
        # Nothing happens when it does not run.
        server.kill()
        server.start()
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()
    names = "['TOPICS_DATA_DIR', 'TOPICS_MARGIN', 'TOPICS_PORT', 'TOPICS_PORT_FILE'] port"
    assert [line for line in server.logs.splitlines() if "port" in line] == [f"{names} 0", *[f"{names} 4711"] * 2]


def test_server_that_replays_its_log_is_found_in_what_it_logs(tmp_path: Path) -> None:
    server = Program(tmp_path)
    server.start(ready=False, TOPICS_REPLAYS="1")
    assert server.port == 4711
    server.kill()
    server.start(ready=False, TOPICS_REPLAYS="1")
    assert server.logs.count("listening") == 2
    server.kill()


def test_status_of_a_killed_server_is_that_of_the_signal(tmp_path: Path) -> None:
    with Program(tmp_path) as server:
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL


def test_server_that_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServerEnded, match=r"exit status 1\nno such option"):
        FailingProgram(tmp_path).start()
