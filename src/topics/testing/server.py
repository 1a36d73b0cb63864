"""A server for tests, in a thread of the test's own process: real sockets, a real data directory, no start-up cost.

    with running_server(Settings(port=0, data_dir=...)) as url:
        Api(url).get("/v0/topics")

It is the server of `topics serve` in everything but the signals. What must survive the end of a process is tested with
a process.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from topics.server.ops.process import serve
from topics.server.ops.settings import Settings
from topics.testing.http import Api

# Reached only by a test that fails.
PATIENCE_SECONDS = 30.0


@contextmanager
def running_server(settings: Settings) -> Iterator[str]:
    """The base URL of a server that is ready to serve; stopped in good order when the block ends."""
    server = _ServerThread(settings)
    server.start()
    try:
        yield server.url()
    finally:
        server.stop()


class _ServerThread(threading.Thread):
    def __init__(self, settings: Settings) -> None:
        super().__init__(name="topics-server", daemon=True)
        self._settings = settings
        self._address: tuple[str, int] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._listening = threading.Event()
        self.status: int | None = None

    def url(self) -> str:
        """Where it serves, once it does."""
        self._listening.wait(PATIENCE_SECONDS)
        assert self._address is not None, "the server did not start"
        url = "http://{}:{}".format(*self._address)
        with Api(url) as api:
            api.wait_until_ready(PATIENCE_SECONDS)
        return url

    def stop(self) -> None:
        if self._loop is not None and self._end is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
        self.join(PATIENCE_SECONDS)
        assert self.status == 0, f"the server ended with {self.status}"

    def run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self.status = runner.run(self._serve())
        self._listening.set()

    async def _serve(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        return await serve(self._settings, self._listens, stop=self._end)

    def _listens(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._listening.set()
