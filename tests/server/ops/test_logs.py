"""What the process says on standard error."""

import io
import json
import logging
import math
import re
from collections.abc import Iterator

import pytest

from tests.server.house import House, in_house, raw
from tests.server.http.wire import until
from topics.api.operation import READ
from topics.server.http import Request
from topics.server.ops import logs
from topics.server.ops.logs import fields, sent_id

RECORDS = {"records": [{"data": 1}]}


@pytest.fixture
def kept_root() -> Iterator[None]:
    """The root logger as it was, afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(log_format: str, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    logs.set_up(log_format, level, stream)
    return logging.getLogger("topics.test"), stream


@pytest.mark.usefixtures("kept_root")
def test_text_line_has_time_level_message_and_fields() -> None:
    log, stream = written("text")
    log.warning("slow %s", "request", extra=fields(path="/v0/topics/a", took_ms=3.5, note="two words", perf={"a": 1}))
    line = stream.getvalue()
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING topics\.test slow request path=", line)
    assert line.endswith('path=/v0/topics/a took_ms=3.5 note="two words" perf={"a":1}\n')


@pytest.mark.usefixtures("kept_root")
def test_json_line_is_one_object() -> None:
    log, stream = written("json")
    log.error("went wrong", extra=fields(path="/a\nb", took_ms=3.5), exc_info=ValueError("why"))
    line = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert (line["level"], line["logger"], line["message"]) == ("error", "topics.test", "went wrong")
    assert (line["path"], line["took_ms"]) == ("/a\nb", 3.5)
    assert "ValueError: why" in line["exception"]


@pytest.mark.usefixtures("kept_root")
def test_text_from_outside_cannot_make_a_line_of_its_own() -> None:
    log, stream = written("text")
    log.info("path %s", "/x\n2026-01-01T00:00:00.000Z ERROR forged", extra=fields(path="/y\r\nforged", name='a" b'))
    assert stream.getvalue().count("\n") == 1
    assert "\r" not in stream.getvalue()


@pytest.mark.usefixtures("kept_root")
def test_level_is_kept() -> None:
    log, stream = written("text", "warning")
    log.info("quiet")
    log.warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


@pytest.mark.parametrize("value", [b"a", b"0a1b-2c.3:d_", b"x" * 128])
def test_sane_request_id_is_taken(value: bytes) -> None:
    assert sent_id({b"x-request-id": value}) == value


@pytest.mark.parametrize("value", [b"", b"x" * 129, b"a b", b"a\x00", b'a"', b"a,b", "é".encode()])
def test_request_id_that_could_harm_a_log_is_not_taken(value: bytes) -> None:
    assert sent_id({b"x-request-id": value}) is None


@in_house()
async def test_request_id_is_echoed_only_to_its_sender(house: House) -> None:
    client = await house.connect()
    for _ in range(2):
        answer = await client.ask(raw("GET", "/v0/health", headers=("X-Request-Id: abc-1",)))
        assert answer.headers["x-request-id"] == "abc-1"
        answer = await client.ask(raw("POST", "/v0/topics/t", RECORDS, headers=("X-Request-Id: abc-2",)))
        assert answer.headers["x-request-id"] == "abc-2"
        assert "x-request-id" not in (await client.ask(raw("GET", "/v0/health"))).headers
        assert "x-request-id" not in (await client.ask(raw("GET", "/", headers=("X-Request-Id: a b",)))).headers
    last = await client.ask(raw("GET", "/nope", headers=("X-Request-Id: abc-3", "Connection: close")))
    assert (last.status, last.headers["x-request-id"]) == (404, "abc-3")


def slow_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [record.fields for record in caplog.records if record.message == "slow request"]


@in_house(SLOW_MS="60000")
async def test_slow_request_is_logged_with_its_performance(house: House, caplog: pytest.LogCaptureFixture) -> None:
    house.listener.slow_seconds = 0.0
    await house.ask("POST", "/v0/topics/t?return_seqs=false", RECORDS, headers=("X-Request-Id: mine",))
    await house.ask("GET", "/v0/topics/absent")
    write, miss = slow_lines(caplog)
    assert (write["request_id"], write["method"], write["path"]) == ("mine", "POST", "/v0/topics/t")
    assert write["status"] == 201
    assert set(write["performance"]) == {"server_total_ms", "wal_append_ms", "fsync_ms", "throttle_wait_ms"}
    assert miss["status"] == 404
    assert set(miss["performance"]) == {"server_total_ms"}
    assert miss["request_id"]


@in_house(SLOW_MS="60000")
async def test_single_records_answered_together_are_slow_one_by_one(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS)
    house.listener.slow_seconds = 0.0
    answer = await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]}, headers=("X-Request-Id: mine",))
    (line,) = slow_lines(caplog)
    assert (line["request_id"], line["status"]) == ("mine", 200)
    assert line["performance"] == answer.json["performance"]


@in_house(SLOW_MS="60000")
async def test_request_that_waits_on_purpose_is_not_slow(house: House, caplog: pytest.LogCaptureFixture) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS)
    house.listener.slow_seconds = 0.0
    await house.ask("POST", "/v0/topics/t/diff", {"from_seq": 1, "wait_ms": 5})
    assert slow_lines(caplog) == []


@in_house(SLOW_MS="60000")
async def test_quick_request_is_not_logged(house: House, caplog: pytest.LogCaptureFixture) -> None:
    await house.ask("POST", "/v0/topics/t", RECORDS)
    assert slow_lines(caplog) == []


@in_house(SLOW_MS="0")
async def test_slow_log_can_be_disabled(house: House, caplog: pytest.LogCaptureFixture) -> None:
    assert house.listener.slow_seconds == math.inf
    await house.ask("POST", "/v0/topics/t", RECORDS)
    assert slow_lines(caplog) == []


@in_house()
async def test_unexpected_error_is_logged_with_the_request_id_of_the_response(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: Request, name: str) -> None:
        raise ValueError("inner detail")

    house.serve("/v0/broken", broken, scope=READ)
    answer = await house.ask("GET", "/v0/broken?token=hidden")
    assert answer.status == 500
    assert b"inner detail" not in answer.body
    (record,) = [record for record in caplog.records if record.message == "unexpected error"]
    assert record.fields["request_id"] == answer.json["error"]["detail"]["request_id"]
    assert "inner detail" in caplog.text
    assert "hidden" not in caplog.text + repr(vars(record))


@in_house()
async def test_long_poll_whose_client_disconnects_is_not_slow(house: House, caplog: pytest.LogCaptureFixture) -> None:
    await house.ask("POST", "/v0/topics/a", {"records": [{"data": 1}]})
    house.listener.slow_seconds = 0.0
    caplog.clear()
    client = await house.connect()
    await client.send(raw("POST", "/v0/topics/a/diff", {"from_seq": 1, "wait_ms": 30_000}))
    await until(lambda: bool(house.broker.polls))
    client.abort()
    await until(lambda: not house.broker.polls)
    await until(lambda: not house.listener.connections)
    assert slow_lines(caplog) == []
