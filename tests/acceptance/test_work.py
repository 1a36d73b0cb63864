"""GET /v0/topics/:q/work: jobs pushed over one connection, as many as it may hold."""

import json
import time
from typing import Any

import pytest

from tests.acceptance.test_queues import QueueApi
from tests.acceptance.topic import refused, wait_until_past
from topics.server.ops.settings import load_settings
from topics.testing.events import Event, EventStream
from topics.testing.http import Api
from topics.testing.server import running_server


@pytest.fixture
def queue(api: Api, name: str) -> QueueApi:
    queue = QueueApi(api, name)
    queue.configure(type="queue")
    return queue


def work(queue: QueueApi, query: str = "node=s", **headers: str) -> EventStream:
    return EventStream(queue.api, f"{queue.path}/work?{query}", headers)


def job(stream: EventStream) -> dict[str, Any]:
    event = stream.next()
    assert event.name == "job", event
    data: dict[str, Any] = event.data
    assert event.id == str(data["$seq"])
    return data


def eventually(queue: QueueApi, counters: tuple[int, int, int]) -> None:
    """A closed connection is noticed by the server's own loop, a moment later."""
    deadline = time.monotonic() + 20
    while queue.counters() != counters:
        assert time.monotonic() < deadline, queue.counters()
        time.sleep(0.002)


def test_a_stream_opens_with_its_headers_a_retry_and_a_heartbeat(queue: QueueApi) -> None:
    with work(queue) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        first = stream.next(comments=True)
        assert first.name == ""
        assert abs(int(first.text.removeprefix("hb ")) - time.time() * 1000) < 20_000
        assert stream.parser.retries == [2000]


def test_a_job_frame_is_a_claim_entry_with_its_topic(queue: QueueApi) -> None:
    queue.append_records({"data": {"n": 1}, "tag": "t", "meta": {"m": 1}})
    with work(queue, "node=s&lease_ms=5000") as stream:
        data = job(stream)
        assert {key: data[key] for key in ("topic", "$seq", "$tag", "deliveries", "data", "meta")} == {
            "topic": queue.name,
            "$seq": 1,
            "$tag": "t",
            "deliveries": 1,
            "data": {"n": 1},
            "meta": {"m": 1},
        }
        assert 5000 <= data["deadline"] - data["$ts"] < 15_000
        assert queue.settle("ack", 1, node="s", lease_ids=[data["lease_id"]])["acked"] == 1


def test_line_ends_between_tokens_do_not_break_the_frame(queue: QueueApi) -> None:
    queue.api.post(queue.path, b'{"records":[{"data":{"a":\r\n1,\n"b":\r2}}]}')
    with work(queue) as stream:
        assert job(stream)["data"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "query", ["", "node=", "node=s&max=x", "node=s&max=-1", "node=s&max=1.5", "node=s&lease_ms=x", f"node={'n' * 129}"]
)
def test_a_bad_query_is_refused(queue: QueueApi, query: str) -> None:
    with work(queue, query) as stream:
        refused(stream.answer, 400, "invalid_request")


def test_refusals_before_the_stream_opens(queue: QueueApi, api: Api) -> None:
    other = QueueApi(api, f"{queue.name}-other")
    with work(other) as stream:
        refused(stream.answer, 404, "topic_not_found")
    other.configure()
    with work(other) as stream:
        refused(stream.answer, 409, "not_a_queue")
    with work(queue, Accept="application/json") as stream:
        refused(stream.answer, 406, "not_acceptable")
    assert api.post(f"{queue.path}/work", {}).code == "method_not_allowed"


def test_one_job_at_a_time_by_default_and_the_next_after_each_end(queue: QueueApi) -> None:
    queue.append(*range(1, 6))
    with work(queue) as stream:
        assert job(stream)["$seq"] == 1
        assert queue.counters() == (4, 1, 0)
        queue.settle("ack", 1, node="s")
        assert job(stream)["$seq"] == 2
        queue.settle("nack", 2, node="s", delay_ms=60_000)
        assert job(stream)["$seq"] == 3
        queue.settle("extend", 3, node="s", lease_ms=100)
        again = job(stream)
        assert (again["$seq"], again["deliveries"]) == (3, 2), "its lease ran out and it comes first"
        queue.remove(before_seq=4)
        assert job(stream)["$seq"] == 4
        assert queue.counters() == (1, 1, 0)


def test_at_most_max_jobs_are_with_a_stream(queue: QueueApi) -> None:
    queue.append(*range(10))
    with work(queue, "node=s&max=3") as stream:
        assert [job(stream)["$seq"] for _ in range(3)] == [1, 2, 3]
        assert queue.counters() == (7, 3, 0)
        queue.settle("ack", 1, 3, node="s")
        assert [job(stream)["$seq"] for _ in range(2)] == [4, 5]
        assert queue.counters() == (5, 3, 0)


def test_an_append_is_pushed_to_an_idle_stream(queue: QueueApi) -> None:
    with work(queue, "node=s&max=2") as stream:
        stream.next(comments=True)
        queue.append("a")
        assert job(stream)["data"] == "a"
        queue.append_records({"data": "b", "delay_ms": 100})
        assert job(stream)["data"] == "b"


@pytest.mark.parametrize("leases_durable", [False, True])
def test_a_closed_stream_releases_its_own_jobs_and_no_others(queue: QueueApi, leases_durable: bool) -> None:
    queue.configure(leases_durable=leases_durable)
    queue.append(*range(6))
    (claimed,) = queue.jobs("s")
    with work(queue, "node=s&max=2") as first, work(queue, "node=s&max=2") as second:
        mine = [job(first)["$seq"] for _ in range(2)]
        others = [job(second)["$seq"] for _ in range(2)]
        assert queue.counters() == (1, 5, 0)
        first.close()
        eventually(queue, (3, 3, 0))
        assert [(each["$seq"], each["deliveries"]) for each in queue.jobs("v", max=2)] == [(seq, 2) for seq in mine]
        assert queue.settle("ack", claimed["$seq"], *others, node="s")["acked"] == 3


def test_a_reset_connection_releases_its_jobs_at_once(queue: QueueApi) -> None:
    """No goodbye: what a worker leaves behind that died with its socket."""
    queue.configure(lease_ms=3_600_000)
    queue.append("a", "b")
    (kept,) = queue.jobs("s")
    with work(queue) as stream:
        assert job(stream)["$seq"] == 2
        stream.reset()
        eventually(queue, (1, 1, 0))
        assert queue.jobs("v")[0]["deliveries"] == 2
        assert queue.settle("ack", kept["$seq"], node="s")["acked"] == 1


def test_a_queue_made_again_as_a_log_ends_the_stream_with_an_error(queue: QueueApi) -> None:
    with work(queue) as stream:
        stream.next(comments=True)
        queue.drop()
        queue.configure(type="log")
        queue.append("no job")
        event = stream.next()
        assert (event.name, event.data["code"]) == ("error", 409)
        with pytest.raises(EOFError):
            stream.next()


def test_an_idle_stream_that_closes_leaves_nothing_behind(queue: QueueApi) -> None:
    with work(queue) as stream:
        stream.next(comments=True)
    queue.append(1)
    assert queue.claim(wait_ms=10_000)["count"] == 1


def test_a_released_job_goes_to_the_next_stream_at_once(queue: QueueApi) -> None:
    queue.append("only")
    with work(queue, "node=a") as first, work(queue, "node=b") as second:
        assert job(first)["deliveries"] == 1
        first.close()
        assert job(second)["deliveries"] == 2


def test_streams_and_claims_share_a_window(queue: QueueApi) -> None:
    queue.configure(claim_jitter_ms=300)
    with work(queue, "node=a&max=50") as first, work(queue, "node=b&max=50") as second:
        for stream in (first, second):
            stream.next(comments=True)
        queue.append(*range(30))
        polled = queue.claim("c", max=50)["count"]
        assert polled == 10
        for stream in (first, second):
            assert len({job(stream)["$seq"] for _ in range(10)}) == 10
        assert queue.counters() == (0, 30, 0)


def test_deleting_the_topic_ends_the_stream_with_an_error(queue: QueueApi) -> None:
    with work(queue) as stream:
        stream.next(comments=True)
        queue.drop()
        event: Event = stream.next()
        assert event.name == "error"
        assert event.data["code"] == 409
        assert isinstance(event.data["error"], str)
        with pytest.raises(EOFError):
            stream.next()


def test_jobs_that_were_delivered_too_often_are_not_pushed(queue: QueueApi) -> None:
    queue.configure(max_deliveries=1, dead_letter=f"{queue.name}-dead")
    queue.append("worn", "fresh")
    with work(queue) as stream:
        assert job(stream)["data"] == "worn"
        queue.settle("nack", 1, node="s")
        assert job(stream)["data"] == "fresh"
        assert queue.counters() == (0, 1, 1)


def test_an_expired_job_of_a_dead_worker_reaches_a_waiting_stream(queue: QueueApi) -> None:
    queue.append(1)
    (lost,) = queue.jobs("dead", lease_ms=100)
    with work(queue) as stream:
        found = job(stream)
        wait_until_past(lost["deadline"])
        assert (found["$seq"], found["deliveries"]) == (1, 2)


def test_a_stopping_server_ends_its_streams(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = str(tmp_path_factory.mktemp("stopping"))
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": directory})
    with running_server(settings) as url:
        queue = QueueApi(Api(url), "q")
        queue.configure(type="queue", leases_durable=True)
        queue.append(1)
        stream = work(queue)
        assert job(stream)["$seq"] == 1
        queue.api.close()
    with pytest.raises(EOFError):
        stream.next()
    stream.close()
    with running_server(settings) as url:
        queue = QueueApi(Api(url), "q")
        assert queue.counters() == (1, 0, 0), "released, and remembered so"
        assert queue.jobs()[0]["deliveries"] == 2
        queue.api.close()


def test_a_key_in_the_query_opens_a_stream(tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path_factory.mktemp("keys")),
        "TOPICS_API_KEYS": "all,r:read,w:write",
    }
    with running_server(load_settings(environment)) as url:
        owner = QueueApi(Api(url, {"Authorization": "Bearer all"}), "q")
        owner.configure(type="queue")
        owner.append(1)
        without_key = QueueApi(Api(url), "q")
        with work(without_key) as stream:
            refused(stream.answer, 401, "unauthorized")
        for key in ("r", "w"):
            with work(without_key, f"node=s&token={key}") as stream:
                refused(stream.answer, 403, "forbidden")
        with work(without_key, "node=s&token=all") as stream:
            assert json.dumps(job(stream)["data"]) == "1"
        owner.api.close()
