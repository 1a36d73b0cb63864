"""/v0/health and /v0/ready tell a load balancer what it needs to know, in every phase of a server's life."""

import asyncio

import pytest

from tests.acceptance.topic import TopicApi, refused, succeeded
from topics import __version__
from topics.server.application import TopicsApplication
from topics.server.http import Listener
from topics.server.service import Service
from topics.testing.http import Answer, Api


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
def test_health_says_ok_version_and_uptime(api: Api, path: str) -> None:
    body = succeeded(api.get(path))
    assert (body["status"], body["version"]) == ("ok", __version__)
    assert isinstance(body["uptime_ms"], int)
    assert body["uptime_ms"] >= 0
    assert api.get(path).json["uptime_ms"] >= body["uptime_ms"]


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
def test_ready_counts_the_topics(topic: TopicApi, path: str) -> None:
    before = succeeded(topic.api.get(path))
    assert (before["status"], before["wal_replay_complete"]) == ("ready", True)
    topic.configure()
    assert topic.api.get(path).json["topics"] == before["topics"] + 1
    topic.drop()
    assert topic.api.get(path).json["topics"] == before["topics"]


@pytest.mark.parametrize("path", ["/v0/health", "/healthz", "/v0/ready", "/readyz"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_probe_answers_to_nothing_but_get_and_head(api: Api, path: str, method: str) -> None:
    answer = refused(api.send(method, path), 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD"


DATA_PLANE = [
    ("GET", "/v0/topics", None),
    ("GET", "/v0/topics/a", None),
    ("PUT", "/v0/topics/a", b"{}"),
    ("POST", "/v0/topics/a", b'{"records":[{"data":1}]}'),
    ("POST", "/v0/topics/a/diff", b"{}"),
    ("POST", "/v0/topics/a/delete", b'{"before_seq":1}'),
    ("DELETE", "/v0/topics/a", None),
]


def test_while_the_log_is_replayed_only_health_is_well() -> None:
    service = Service()
    service.recovery_progress = 0.25
    requests = [("GET", "/v0/health", None), ("GET", "/v0/ready", None), ("GET", "/readyz", None), *DATA_PLANE]
    health, *others = answers_of(service, requests)
    assert health.status == 200
    for answer in others:
        refused(answer, 503, "not_ready")
        assert answer.detail["replay_progress"] == 0.25
        assert int(answer.headers["retry-after"]) >= 1


def test_while_the_server_stops_only_health_is_well() -> None:
    service = Service()
    service.stopping = True
    requests = [("GET", "/healthz", None), ("GET", "/v0/ready", None), ("GET", "/readyz", None), *DATA_PLANE]
    health, *others = answers_of(service, requests)
    assert health.status == 200
    for answer in others:
        refused(answer, 503, "shutting_down")
        assert int(answer.headers["retry-after"]) >= 1


def answers_of(service: Service, requests: list[tuple[str, str, bytes | None]]) -> list[Answer]:
    """What a server in this phase of its life answers."""

    def ask(url: str) -> list[Answer]:
        with Api(url) as api:
            return [
                api.send(method, path, body, {"Content-Type": "application/json"}) for method, path, body in requests
            ]

    async def serve() -> list[Answer]:
        listener = Listener(TopicsApplication(service))
        host, port = await listener.start("127.0.0.1", 0)
        try:
            return await asyncio.to_thread(ask, f"http://{host}:{port}")
        finally:
            await listener.stop(grace=0)

    return asyncio.run(serve())
