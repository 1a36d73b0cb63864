"""`topics work`: a command for each job, retries, leases, and signals."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import PATIENCE_S, TOPICS, in_pipe
from topics.client import Client


@pytest.fixture
def client(shared_url: str) -> Iterator[Client]:
    with Client(shared_url) as client:
        yield client


def ready(client: Client, queue: str) -> int:
    found = client.info(queue).queue
    assert found is not None
    return found.ready


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_each_job_is_the_input_of_one_command_and_is_finished(client: Client, environment: dict[str, str]) -> None:
    client.create("each", type="queue")
    client.append("each", [{"n": 1}, "text", 3])
    script = 'read -r line; echo "$TOPICS_QUEUE $TOPICS_JOB_SEQ $TOPICS_JOB_DELIVERIES $line"'
    done = in_pipe(["work", "each", "--until-empty", "--", "sh", "-c", script], environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ['each 1 1 {"n":1}', "each 2 1 text", "each 3 1 3"]
    assert client.info("each").count == 0


def test_a_failed_job_is_delivered_again_and_given_up_after_its_retries(
    client: Client, environment: dict[str, str], tmp_path: Path
) -> None:
    client.create("failing", type="queue")
    client.append("failing", ["bad"])
    tried = tmp_path / "tried"
    script = f'echo "$TOPICS_JOB_DELIVERIES" >> {tried}; exit 3'
    arguments = ["work", "failing", "--retry-delay", "0", "--retries", "1", "--until-empty", "--", "sh", "-c", script]
    done = in_pipe(arguments, environment)
    assert done.returncode == 0, done.stderr
    assert tried.read_text() == "1\n2\n"
    assert done.stderr.count("exit code 3\n") == 2
    assert next(iter(client.read("failing.dead"))).data == "bad"  # type: ignore[union-attr]


def test_a_lease_is_extended_while_the_command_runs(client: Client, environment: dict[str, str]) -> None:
    client.create("long", type="queue")
    client.append("long", ["job"])
    done = in_pipe(["work", "long", "--lease", "300ms", "--until-empty", "--", "sleep", "1.2"], environment)
    assert (done.returncode, done.stderr) == (0, ""), "the job was finished under its first lease"
    assert client.info("long").count == 0


def test_commands_run_at_the_same_time(client: Client, environment: dict[str, str], tmp_path: Path) -> None:
    client.create("many", type="queue")
    client.append("many", ["a", "b"])
    # Each command ends only when the other one has begun.
    script = f"touch {tmp_path}/$TOPICS_JOB_SEQ; until [ -e {tmp_path}/1 ] && [ -e {tmp_path}/2 ]; do sleep 0.02; done"
    done = in_pipe(["work", "many", "-c", "2", "--until-empty", "--", "sh", "-c", script], environment)
    assert (done.returncode, done.stderr, client.info("many").count) == (0, "", 0)


@pytest.mark.parametrize(("signals", "left"), [(1, 0), (2, 1)], ids=["finishes", "returns the job"])
def test_one_signal_lets_the_command_finish_and_a_second_one_ends_it(
    signals: int, left: int, client: Client, environment: dict[str, str], tmp_path: Path
) -> None:
    queue = f"signals-{signals}"
    client.create(queue, type="queue")
    client.append(queue, ["job"])
    started, release = tmp_path / "started", tmp_path / "release"
    script = f"touch {started}; until [ -e {release} ]; do sleep 0.02; done"
    command = [*TOPICS, "work", queue, "--", "sh", "-c", script]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        wait_until(started.exists)
        os.kill(process.pid, signal.SIGTERM)
        if signals == 1:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            release.touch()
        else:
            # A signal that comes before the first one is handled would be the same one.
            time.sleep(0.3)
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        release.touch()
        process.kill()
        process.stderr.close()
    assert (client.info(queue).count, ready(client, queue)) == (left, left)


def test_a_missing_command_or_queue_is_reported(client: Client, environment: dict[str, str]) -> None:
    client.create("unused", type="queue")
    client.append("unused", ["job"])
    assert in_pipe(["work", "unused"], environment).returncode == 1
    done = in_pipe(["work", "unused", "--", "/no/such/program"], environment)
    assert (done.returncode, "cannot run /no/such/program" in done.stderr) == (1, True)
    assert ready(client, "unused") == 1, "the job went back"
    assert in_pipe(["work", "no-such-queue", "--", "true"], environment).returncode == 3
    assert in_pipe(["work", "sample", "--", "true"], environment).returncode == 4
