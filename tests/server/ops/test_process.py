"""The life of the server process: what it says about itself, and when."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from topics.broker.durability.data_directory import DataDirectory
from topics.server.ops import process
from topics.server.ops.settings import load_settings

PATIENCE_SECONDS = 30.0


def test_the_port_file_appears_when_the_server_is_ready_and_goes_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port_file = tmp_path / "port"
    # A server that was killed has left one.
    port_file.write_text("127.0.0.1:1\n")
    may_recover = threading.Event()

    class SlowDirectory(DataDirectory):
        def recover(self, *arguments: Any) -> Any:
            assert may_recover.wait(PATIENCE_SECONDS)
            return super().recover(*arguments)

    monkeypatch.setattr(process, "DataDirectory", SlowDirectory)
    environment = {
        "TOPICS_PORT": "0",
        "TOPICS_DATA_DIR": str(tmp_path / "data"),
        "TOPICS_PORT_FILE": str(port_file),
    }

    async def life() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        listening: asyncio.Future[int] = loop.create_future()
        settings = load_settings(environment)
        server = asyncio.ensure_future(process.serve(settings, lambda _host, port: listening.set_result(port), stop))
        port = await listening
        assert (await status_of(port, "/v0/ready"), port_file.exists()) == (503, False)
        may_recover.set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not port_file.exists():  # noqa: ASYNC110 - a file, which no event tells of
                await asyncio.sleep(0.001)
        assert port_file.read_text() == f"127.0.0.1:{port}\n"
        assert await status_of(port, "/v0/ready") == 200
        stop.set()
        assert await server == 0
        assert not port_file.exists()

    asyncio.run(life())


async def status_of(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])
