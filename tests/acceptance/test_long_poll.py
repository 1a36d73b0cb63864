"""A reader at the tail may wait: the append itself wakes it, and no other request is delayed."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from tests.acceptance.topic import TopicApi, checked_diff, seqs_of, wait_until_past
from topics.testing.http import Answer

T = TypeVar("T")

# What must not happen would take this long; what must happen takes milliseconds.
LONG_MS = 30_000
PATIENCE_SECONDS = 20


class Waiting:
    """A long poll under way."""

    def __init__(self, topic: TopicApi, from_seq: int, **fields: Any) -> None:
        self._from_seq = from_seq
        self._threads = ThreadPoolExecutor(1)
        body = {"from_seq": from_seq, "wait_ms": LONG_MS, **fields}
        before = topic.state()["last_read_ts"]
        wait_until_past(before or 0)
        self._future: Future[Answer] = self._threads.submit(lambda: topic.api.post(f"{topic.path}/diff", body))
        # The server counts the poll as a look at the topic: from then on it waits.
        eventually(lambda: self._future.done() or topic.state()["last_read_ts"] not in (before, None))

    @property
    def is_over(self) -> bool:
        return self._future.done()

    def answer(self) -> Answer:
        answer = self._future.result(PATIENCE_SECONDS)
        self._threads.shutdown()
        return answer

    def diff(self) -> dict[str, Any]:
        return checked_diff(self._from_seq, self.answer())


def eventually(condition: Callable[[], T]) -> T:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)
    return found


@pytest.fixture
def empty(topic: TopicApi) -> TopicApi:
    topic.configure()
    return topic


def test_an_append_wakes_the_reader(empty: TopicApi) -> None:
    waiting = Waiting(empty, 0)
    assert not waiting.is_over
    empty.append("here")
    body = waiting.diff()
    assert [record["data"] for record in body["records"]] == ["here"]
    assert (body["next_from_seq"], body["caught_up"]) == (1, True)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_an_append_of_every_class_wakes_the_reader(topic: TopicApi, durability: str) -> None:
    topic.configure(durability=durability)
    topic.append(1)
    waiting = Waiting(topic, 1)
    topic.append(2, 3)
    assert seqs_of(waiting.diff()) == [2, 3]


def test_all_readers_are_woken(empty: TopicApi) -> None:
    readers = [Waiting(empty, 0) for _ in range(10)]
    empty.append("here")
    assert [seqs_of(reader.diff()) for reader in readers] == [[1]] * 10


def test_a_reader_of_another_topic_is_not_woken(empty: TopicApi) -> None:
    other = TopicApi(empty.api, empty.name + ".other")
    other.configure()
    waiting = Waiting(other, 0)
    empty.append(1)
    empty.diff()
    assert not waiting.is_over
    other.append(1)
    assert seqs_of(waiting.diff()) == [1]


def test_waiting_readers_delay_no_other_request(empty: TopicApi) -> None:
    readers = [Waiting(empty, 0) for _ in range(20)]
    other = TopicApi(empty.api, empty.name + ".other")
    for n in range(20):
        other.append(n)
        assert len(other.seqs()) == n + 1
    assert not any([reader.is_over for reader in readers])
    empty.append(1)
    for reader in readers:
        reader.diff()


def test_own_records_do_not_end_the_wait_but_are_passed(empty: TopicApi) -> None:
    waiting = Waiting(empty, 0, node="own")
    empty.append(1, 2, node="own")
    empty.diff()
    assert not waiting.is_over
    empty.append(3, node="other")
    body = waiting.diff()
    assert (seqs_of(body), body["next_from_seq"]) == ([3], 3)


def test_the_wait_ends_in_time_with_an_empty_answer(empty: TopicApi) -> None:
    empty.append(1)
    started = time.monotonic()
    body = empty.diff(1, wait_ms=100)
    took = time.monotonic() - started
    assert (body["records"], body["next_from_seq"], body["caught_up"], body["tombstone"]) == ([], 1, True, None)
    assert 0.09 <= took < 5


def test_an_answer_at_the_end_of_the_wait_tells_the_state_of_that_moment(topic: TopicApi) -> None:
    topic.configure(ttl_ms=60)
    topic.append(1)
    body = topic.diff(1, wait_ms=150)
    assert (body["records"], body["earliest_seq"], body["head_seq"]) == ([], 2, 1)


@pytest.mark.parametrize("wait_ms", [1, 30_000, 30_001, 10**9, 2**64 - 1])
def test_what_is_there_is_answered_at_once(empty: TopicApi, wait_ms: int) -> None:
    empty.append(1)
    assert empty.seqs(0, wait_ms=wait_ms) == [1]


def test_wait_is_clamped_not_refused(empty: TopicApi) -> None:
    waiting = Waiting(empty, 0, wait_ms=2**40)
    empty.append(1)
    assert seqs_of(waiting.diff()) == [1]


def test_a_reader_with_a_tombstone_does_not_wait(topic: TopicApi) -> None:
    topic.configure(cap_records=1)
    topic.append(1)
    topic.append(2)
    topic.remove(before_seq=3)
    body = topic.diff(0, wait_ms=LONG_MS)
    assert (body["records"], body["tombstone"]["reason"]) == ([], "cap")
    assert topic.diff(99, wait_ms=LONG_MS)["tombstone"]["reason"] == "recreated"


def test_a_cursor_that_passes_deleted_records_waits_at_the_tail(topic: TopicApi) -> None:
    topic.append(1, 2)
    topic.remove(before_seq=3)
    waiting = Waiting(topic, 0)
    assert not waiting.is_over
    topic.append(3)
    assert seqs_of(waiting.diff()) == [3]


def test_deleting_the_topic_ends_the_wait(empty: TopicApi) -> None:
    waiting = Waiting(empty, 0)
    empty.drop()
    answer = waiting.answer()
    assert (answer.status, answer.code) == (404, "topic_not_found")


def test_zero_does_not_wait(empty: TopicApi) -> None:
    assert empty.diff(0, wait_ms=0)["records"] == []
    assert empty.diff(0)["records"] == []


def test_a_reader_that_goes_away_is_forgotten(empty: TopicApi) -> None:
    body = b'{"wait_ms":30000}'
    request = (
        f"POST {empty.path}/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    for _ in range(20):
        with socket.create_connection((empty.api.host, empty.api.port)) as gone:
            gone.sendall(request + body)
    empty.append(1)
    assert empty.seqs() == [1]


def test_a_reader_may_send_its_next_request_before_the_answer(empty: TopicApi) -> None:
    body = b'{"wait_ms":30000}'
    request = (
        f"POST {empty.path}/diff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with socket.create_connection((empty.api.host, empty.api.port), timeout=PATIENCE_SECONDS) as reader:
        reader.sendall(request * 2)
        threading.Timer(0.02, lambda: empty.append(1)).start()
        received = b""
        while received.count(b'"next_from_seq":1') < 2:
            part = reader.recv(65536)
            assert part
            received += part
    assert received.count(b"HTTP/1.1 200") == 2
