"""The checker of the soak run finds records that are lost, changed, deleted twice or back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.soak.actors import JobProducer, LogWriter, Worker, call
from tools.soak.checker import check_log, check_queue
from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url, Api(url) as api:
        call(api, "PUT", "/v0/topics/t", {})
        call(api, "PUT", "/v0/topics/q", {"type": "queue"})
        for topic in ("t", "q"):
            call(api, "POST", f"/v0/topics/{topic}", {"records": [{"data": "one"}, {"data": "two"}]})
        yield api


def writer(api: Api, acknowledged: dict[int, str]) -> LogWriter:
    made = LogWriter(api.url, 1, "t", {})
    made.acknowledged = acknowledged
    return made


def test_history_that_the_server_kept_is_accepted(api: Api) -> None:
    assert check_log(api, writer(api, {1: "one", 2: "two"}), may_lose=False) == []


@pytest.mark.parametrize(
    ("acknowledged", "problem"), [({1: "one", 3: "three"}, "missing"), ({1: "other"}, "other data")]
)
def test_lost_and_changed_records_are_found(api: Api, acknowledged: dict[int, str], problem: str) -> None:
    (found,) = check_log(api, writer(api, acknowledged), may_lose=False)
    assert problem in found


def test_deleted_record_that_is_there_is_found(api: Api) -> None:
    made = writer(api, {1: "one"})
    made.deleted = made.maybe_deleted = {1}
    (found,) = check_log(api, made, may_lose=False)
    assert "deleted seq 1" in found


def test_tombstone_of_a_topic_that_may_not_lose_records_is_found(api: Api) -> None:
    call(api, "PUT", "/v0/topics/t", {"cap_records": 1})
    (found,) = check_log(api, writer(api, {1: "one", 2: "two"}), may_lose=False)
    assert "tombstone" in found
    assert check_log(api, writer(api, {1: "one", 2: "two"}), may_lose=True) == []


def test_finished_job_that_is_in_the_queue_and_job_finished_twice_are_found(api: Api) -> None:
    producer = JobProducer(api.url, 1, "q")
    workers = [Worker(api.url, 1, "q", node) for node in ("a", "b")]
    assert check_queue(api, producer, workers) == []
    workers[0].finished = {1, 5}
    workers[1].finished = {5}
    twice, back = check_queue(api, producer, workers)
    assert "two workers" in twice
    assert "in the queue" in back
