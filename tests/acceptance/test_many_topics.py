"""Very many small topics: few files, and a server that stops and starts quickly."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from topics.testing.http import Api
from topics.testing.process import ServerProcess

TEXT = "x" * 1180
CONNECTIONS = 32
HEAD = b"POST /v0/topics/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def name_of(number: int) -> str:
    return f"small-topic-{number:06d}"


def write_one_record_each(server: ServerProcess, topics: int) -> None:
    """Create the topics by writing a record of about 1.2 KB to each."""
    numbers = iter(range(topics))

    async def write() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for number in numbers:
            body = b'{"records":[{"data":{"n":%d,"text":"%b"}}]}' % (number, TEXT.encode())
            writer.write(HEAD % (name_of(number).encode(), len(body)) + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201"), answer
            lengths = [line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].split(b":")[1]))
        writer.close()

    async def write_all() -> None:
        await asyncio.gather(*[write() for _ in range(CONNECTIONS)])

    asyncio.run(write_all())


def assert_readable(server: ServerProcess, numbers: list[int]) -> None:
    with Api(server.url) as api:
        for number in numbers:
            page: Any = api.post(f"/v0/topics/{name_of(number)}/diff", {}).json
            assert [record["data"] for record in page["records"]] == [{"n": number, "text": TEXT}]


def count_files(server: ServerProcess) -> int:
    return len([path for path in server.data_dir.rglob("*") if path.is_file()])


def seconds_waited(server: ServerProcess) -> float:
    """How long its main thread was ready to run and did not get a processor. Linux only."""
    return int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[1]) / 1e9


def seconds_to_stop(server: ServerProcess) -> float:
    """Without the time in which other processes had the processor."""
    waited_before, started = seconds_waited(server), time.monotonic()
    os.kill(server.pid, signal.SIGTERM)
    # The process stays a zombie, so that how long it waited can still be read.
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    took = time.monotonic() - started - (seconds_waited(server) - waited_before)
    assert server.wait() == 0
    return took


def seconds_to_start(server: ServerProcess) -> float:
    """Without the time in which other processes had the processor."""
    started = time.monotonic()
    server.start()
    return time.monotonic() - started - seconds_waited(server)


def test_small_topics_share_files_and_survive_restarts(tmp_path: Path) -> None:
    """With little memory for records, so that most of them are on disk when the server stops."""
    topics = 4000
    looked_at = [0, 1, 17, topics // 2, topics - 1]
    with ServerProcess(tmp_path, TOPICS_HOT_BYTES=str(1 << 20)) as server:
        write_one_record_each(server, topics)
        assert_readable(server, looked_at)
        stopped = seconds_to_stop(server)
        assert count_files(server) < 60
        started = seconds_to_start(server)
        assert_readable(server, looked_at)
        server.kill()
        server.start()
        assert_readable(server, looked_at)
    # Generous: a file for each topic took a minute, and this takes a second.
    assert stopped < 15
    assert started < 15


@pytest.mark.long
def test_100_000_small_topics_stop_and_start_within_5_seconds(tmp_path: Path) -> None:
    topics = 100_000
    looked_at = [0, 99, topics // 3, topics // 2, topics - 1]
    with ServerProcess(tmp_path) as server:
        write_one_record_each(server, topics)
        assert seconds_to_stop(server) < 5
        assert count_files(server) < 100
        assert seconds_to_start(server) < 5
        assert_readable(server, looked_at)
        server.kill()
        assert seconds_to_start(server) < 5
        assert_readable(server, looked_at)
        assert seconds_to_stop(server) < 5
