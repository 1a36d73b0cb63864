"""Section 10.8: jobs pushed over an event stream."""

from topics.conformance.checks import cases, check, equal, fields, present, refused, true
from topics.conformance.server import Response, Server
from topics.conformance.streams import EventStream


def _work(server: Server, name: str, query: str = "node=w1") -> EventStream:
    return server.stream(server.topic_path(name, f"/work?{query}"))


def _refusal(server: Server, path: str) -> Response:
    stream = server.stream(path)
    return Response(stream.request, stream.status, stream.headers, stream.body())


@check
def stream_has_its_headers_and_begins_with_a_heartbeat(server: Server) -> None:
    stream = _work(server, server.create(type="queue"))
    equal(stream.status, 200, "status")
    true(
        stream.headers["content-type"].startswith("text/event-stream"),
        f"Content-Type is {stream.headers['content-type']}",
    )
    true("no-store" in stream.headers.get("cache-control", ""), "Cache-Control is not no-store")
    true(stream.next(comments=True).text.startswith("hb "), "the first line is no heartbeat")
    equal(stream.retries, [2000], "retry")


@check
def job_is_pushed_with_its_lease(server: Server) -> None:
    name = server.create(type="queue")
    server.append(name, {"data": {"a": 1}, "tag": "t"})
    event = _work(server, name).until("job")
    equal(event.id, "1", "id")
    fields(event.data, **{"topic": name, "$seq": 1, "$tag": "t", "data": {"a": 1}, "deliveries": 1})
    present(event.data, "lease_id", "deadline", "$ts")


@check
def no_more_than_max_jobs_are_pushed(server: Server) -> None:
    name = server.create(type="queue")
    server.append(name, *range(5))
    stream = _work(server, name, "node=w1&max=2")
    equal([stream.until("job").data["$seq"] for _ in range(2)], [1, 2], "seqs")
    fields(server.state(name)["queue"], ready=3, in_flight=2)


@check
def ack_brings_the_next_job(server: Server) -> None:
    name = server.create(type="queue")
    server.append(name, 1, 2)
    stream = _work(server, name)
    equal(stream.until("job").data["$seq"], 1, "first seq")
    server.queue_call(name, "ack", node="w1", seqs=[1])
    equal(stream.until("job").data["$seq"], 2, "second seq")


@check
def nack_brings_the_job_again(server: Server) -> None:
    name = server.create(type="queue")
    server.append(name, 1)
    stream = _work(server, name)
    stream.until("job")
    server.queue_call(name, "nack", node="w1", seqs=[1])
    fields(stream.until("job").data, **{"$seq": 1, "deliveries": 2})


@check
def new_job_is_pushed_to_an_idle_stream(server: Server) -> None:
    name = server.create(type="queue")
    stream = _work(server, name)
    stream.next(comments=True)
    server.append(name, "late")
    equal(stream.until("job").data["data"], "late", "data")


@check
def disconnect_releases_the_jobs_of_the_stream(server: Server) -> None:
    name = server.create(type="queue", lease_ms=600_000)
    server.append(name, 1, 2)
    server.claim(name, "w1")
    stream = _work(server, name)
    equal(stream.until("job").data["$seq"], 2, "seq")
    stream.close()
    server.wait_for(lambda: server.state(name)["queue"]["ready"] == 1, "the job was not released")
    fields(server.state(name)["queue"], in_flight=1)
    fields(server.claim(name, "w2")["claimed"][0], **{"$seq": 2, "deliveries": 2})


@check
def deleting_the_topic_ends_the_stream(server: Server) -> None:
    name = server.create(type="queue")
    stream = _work(server, name)
    stream.next(comments=True)
    server.delete(server.topic_path(name))
    try:
        while True:
            stream.next()
    except EOFError:
        pass


@cases(
    {
        "no node": ("", 400, "invalid_request"),
        "an empty node": ("node=", 400, "invalid_request"),
        "max as text": ("node=w&max=many", 400, "invalid_request"),
        "a negative max": ("node=w&max=-1", 400, "invalid_request"),
        "lease_ms as text": ("node=w&lease_ms=long", 400, "invalid_request"),
    }
)
def bad_query_is_refused(server: Server, case: tuple[str, int, str]) -> None:
    query, status, code = case
    name = server.create(type="queue")
    refused(_refusal(server, server.topic_path(name, f"/work?{query}")), status, code)


@check
def absent_queue_is_404(server: Server) -> None:
    refused(_refusal(server, server.topic_path(None, "/work?node=w")), 404, "topic_not_found")


@check
def log_is_409(server: Server) -> None:
    refused(_refusal(server, server.topic_path(server.create(), "/work?node=w")), 409, "not_a_queue")


@check
def other_accept_is_406(server: Server) -> None:
    name = server.create(type="queue")
    response = server.get(server.topic_path(name, "/work?node=w"), {"Accept": "application/json"})
    refused(response, 406, "not_acceptable")
