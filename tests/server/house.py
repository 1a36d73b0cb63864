"""A server in the loop of the test, on a fake disk. Tests reach its parts directly."""

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tests.declared import check_response
from tests.server.http.wire import PATIENCE_SECONDS, Answer, Client
from topics.api.operation import Operation
from topics.broker.broker import Broker
from topics.broker.durability.recovery import recover
from topics.runtime.loop_runtime import LoopRuntime
from topics.server.application import TopicsApplication
from topics.server.auth.authentication import Authority
from topics.server.http import HttpLimits, Listener
from topics.server.ops.settings import load_settings
from topics.server.routing import Handler
from topics.server.service import Service
from topics.testing.disk.fake_disk import FakeDisk


class House:
    """A started server. `service` and `broker` are its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.settings = load_settings(environment)
        self.service = Service(self.settings, Authority(self.settings.keys))
        self.app = TopicsApplication(self.service)
        limits = HttpLimits(max_body_bytes=self.settings.limits.max_body_bytes, sweep_interval=3600.0)
        self.listener = Listener(self.app, limits)
        self.disk = FakeDisk()
        self.disk.make_directory("")
        self.address: tuple[str, int] = ("", 0)
        self._clients: list[Client] = []

    async def start(self, *, recovered: bool = True) -> None:
        self.address = await self.listener.start("127.0.0.1", 0)
        self.runtime = self.make_runtime()
        if recovered:
            self.recover()

    def make_runtime(self) -> LoopRuntime:
        return LoopRuntime(asyncio.get_running_loop())

    def recover(self) -> None:
        storage = self.settings.storage
        self.broker = Broker(self.disk, self.runtime, recover(self.disk, storage), self.settings.limits, storage)
        self.broker.start()
        self.service.broker = self.broker
        self.service.recovery_progress = 1.0

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection(*self.address, limit=1 << 20))
        self._clients.append(client)
        return client

    async def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, headers: tuple[str, ...] = ()
    ) -> Answer:
        """One request on a connection of its own."""
        client = await self.connect()
        answer = await client.ask(raw(method, path, body, key=key, headers=headers))
        client.abort()
        check_response(method, path, answer.status, answer.headers.get("content-type", ""), answer.body)
        return answer

    def serve(
        self, path: str, handler: Handler, *, scope: int, stream: bool = False, query_token: bool = False
    ) -> None:
        """Serve GET for a path that the API does not have."""
        declared = Operation(
            name=path.strip("/"),
            noun="server",
            method="GET",
            path=path,
            summary="Made for a test.",
            scope=scope,
            stream=stream,
            query_token=query_token,
        )
        self.app.routes.add(declared, lambda: handler)

    async def stop(self) -> None:
        await self.listener.stop(grace=0)
        for client in self._clients:
            client.abort()
        self.service.selects.close()
        self.runtime.stop()
        await asyncio.sleep(0)


def error_of(answer: Answer) -> dict[str, Any]:
    """The error in an answer, after checking that it has its one shape."""
    whole = answer.json
    assert set(whole) <= {"error", "performance"}
    assert answer.headers["content-type"] == "application/json"
    error: dict[str, Any] = whole["error"]
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}
    return error


def raw(method: str, path: str, body: Any = None, *, key: str | None = None, headers: tuple[str, ...] = ()) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    content = b""
    if body is not None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def in_house(
    recovered: bool = True, **environment: str
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run an async test against a fresh server on uvloop. `API_KEYS="k"` sets TOPICS_API_KEYS, and so on."""

    def decorate(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(scenario)
        def test(**arguments: Any) -> None:
            uvloop.run(play(arguments))

        async def play(arguments: dict[str, Any]) -> None:
            house = House({f"TOPICS_{name}": value for name, value in environment.items()})
            await house.start(recovered=recovered)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await scenario(house, **arguments)
            finally:
                await house.stop()

        signature = inspect.signature(scenario)
        _house, *rest = signature.parameters.values()
        test.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test

    return decorate
