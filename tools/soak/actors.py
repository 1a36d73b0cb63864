"""The load: threads that write, delete, work, consume and watch, and note what was acknowledged.

A request may fail while the server is down or its disk is full; its outcome is then unknown and it is not counted. The
actor goes on after a short time.
"""

import json
import random
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any

from topics.testing.http import Api

RETRY_SECONDS = 0.2
SLOW_READER_SECONDS = 0.5
PROBE_SECONDS = 0.05


class Unavailable(Exception):
    """The server is down, or it refused the request for now."""


def call(api: Api, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """One request. Raises Unavailable for 429, 503 and broken connections, AssertionError for anything else."""
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        answer = api.send(method, path, None if body is None else json.dumps(body).encode(), headers)
    except (OSError, HTTPException) as error:
        raise Unavailable(str(error)) from None
    if answer.status in (429, 503):
        raise Unavailable(answer.body[:200].decode("utf-8", "replace"))
    assert answer.status in (200, 201), f"{method} {path}: {answer.status} {answer.body[:300]!r}"
    return dict(json.loads(answer.body))


class Actor(threading.Thread):
    """A thread that repeats `step` until it is stopped. An AssertionError ends it and is kept in `failure`."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.chance = random.Random(seed)
        self.operations = 0
        self.failure: str | None = None
        # Operations per second at most; 0 for no limit. Set after saturation was measured.
        self.rate = 0.0
        self._url = url
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        due = time.monotonic()
        with Api(self._url, timeout=30) as api:
            while not self._stopping.is_set():
                try:
                    self.step(api)
                    self.operations += 1
                except Unavailable:
                    self._stopping.wait(RETRY_SECONDS)
                except AssertionError as error:
                    self.failure = f"{self.name}: {error}"
                    return
                if self.rate:
                    due = max(due + 1 / self.rate, time.monotonic() - 1)
                    self._stopping.wait(max(0.0, due - time.monotonic()))

    def step(self, api: Api) -> None:
        raise NotImplementedError


class LogWriter(Actor):
    """Appends batches to one topic and deletes some records by tag."""

    def __init__(self, url: str, seed: int, topic: str, config: dict[str, Any]) -> None:
        super().__init__(url, seed)
        self.topic = topic
        self.config = config
        self.acknowledged: dict[int, str] = {}
        self.deleted: set[int] = set()
        # Deletes without an answer: the record may be there or not.
        self.maybe_deleted: set[int] = set()
        self._created = False

    def step(self, api: Api) -> None:
        path = f"/v0/topics/{self.topic}"
        if not self._created:
            call(api, "PUT", path, self.config)
            self._created = True
        texts = [f"{self.chance.getrandbits(64):016x}" for _ in range(self.chance.choice((1, 1, 1, 10)))]
        size = self.chance.choice((0, 100, 1000))
        body = {"records": [{"data": text + "x" * size, "tag": text} for text in texts]}
        first = call(api, "POST", path, body)["first_seq"]
        for number, text in enumerate(texts):
            assert first + number not in self.acknowledged, f"{self.topic}: seq {first + number} was assigned twice"
            self.acknowledged[first + number] = text
        if self.chance.random() < 0.1:
            self.maybe_deleted.add(first)
            call(api, "POST", f"{path}/delete", {"match": ["tag", "Eq", texts[0]]})
            self.deleted.add(first)


class JobProducer(Actor):
    """Appends numbered jobs to a queue."""

    def __init__(self, url: str, seed: int, queue: str) -> None:
        super().__init__(url, seed)
        self.queue = queue
        self.produced: set[int] = set()

    def step(self, api: Api) -> None:
        body = {"records": [{"data": "job"}] * 4}
        first = call(api, "POST", f"/v0/topics/{self.queue}", body)["first_seq"]
        self.produced.update(range(first, first + 4))


class Worker(Actor):
    """Claims jobs and acknowledges most of them; returns some."""

    def __init__(self, url: str, seed: int, queue: str, node: str) -> None:
        super().__init__(url, seed)
        self.queue = queue
        self.node = node
        self.finished: set[int] = set()

    def step(self, api: Api) -> None:
        path = f"/v0/topics/{self.queue}"
        claimed = call(api, "POST", f"{path}/claim", {"node": self.node, "max": 8})["claimed"]
        seqs = [job["$seq"] for job in claimed]
        again = self.finished & set(seqs)
        assert not again, f"{self.queue}: jobs {sorted(again)[:5]} were delivered after their ack"
        if not seqs:
            time.sleep(0.01)
            return
        if self.chance.random() < 0.05:
            call(api, "POST", f"{path}/nack", {"node": self.node, "seqs": seqs})
            return
        answer = call(api, "POST", f"{path}/ack", {"node": self.node, "seqs": seqs})
        self.finished.update(set(seqs) - set(answer["skipped"]))


class GroupConsumer(Actor):
    """Polls a topic as a consumer group and acknowledges what it got."""

    def __init__(self, url: str, seed: int, topic: str) -> None:
        super().__init__(url, seed)
        self.topic = topic
        self.acknowledged = 0

    def step(self, api: Api) -> None:
        poll = {"topic": self.topic, "group_id": "soak", "start": "Earliest", "limit": 100, "timeout_seconds": 1}
        messages = call(api, "POST", "/api/topics/consume", poll)["messages"]
        if not messages:
            return
        offsets = [message["offset"] for message in messages]
        assert offsets == sorted(set(offsets)), f"{self.topic}: offsets {offsets[:10]}"
        assert offsets[0] > self.acknowledged, f"{self.topic}: offset {offsets[0]} after the ack of {self.acknowledged}"
        ack = {"topic": self.topic, "group_id": "soak", "partition_id": 0, "upto_offset": offsets[-1]}
        call(api, "POST", "/api/topics/ack", ack)
        self.acknowledged = offsets[-1]


class Watcher(Actor):
    """Follows a topic over SSE. Every record comes once and in order, also over reconnects; a slow one reads slowly."""

    def __init__(self, url: str, seed: int, topic: str, *, slow: bool) -> None:
        super().__init__(url, seed)
        self.topic = topic
        self.slow = slow
        self.last_seq = 0

    def step(self, api: Api) -> None:
        body = {"topics": {self.topic: {"from_seq": self.last_seq}}, "heartbeat_ms": 1000}
        session = call(api, "POST", "/v0/watch", body)
        connection = HTTPConnection(api.host, api.port, timeout=10)
        try:
            connection.request("GET", session["stream_url"], headers={"Accept": "text/event-stream"})
            response = connection.getresponse()
            while not self._stopping.is_set():
                line = response.readline()
                if not line:
                    raise Unavailable("the stream has ended")
                if line.startswith(b'data: {"topic"') and b'"records"' in line:
                    self._take(json.loads(line[6:]))
        except (OSError, HTTPException) as error:
            raise Unavailable(str(error)) from None
        finally:
            connection.close()

    def _take(self, event: dict[str, Any]) -> None:
        for record in event["records"]:
            assert record["$seq"] > self.last_seq, f"{self.topic}: seq {record['$seq']} came after {self.last_seq}"
            self.last_seq = record["$seq"]
        self.operations += len(event["records"])
        if self.slow:
            self._stopping.wait(SLOW_READER_SECONDS)


class Probe(Actor):
    """Times single appends, for the p99."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(url, seed)
        self.times_ms: list[float] = []

    def step(self, api: Api) -> None:
        started = time.perf_counter()
        call(api, "POST", "/v0/topics/probe", {"records": [{"data": 1}], "config": {"cap_records": 1000}})
        self.times_ms.append(1000 * (time.perf_counter() - started))
        self._stopping.wait(PROBE_SECONDS)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s: {what}"
        time.sleep(0.05)
