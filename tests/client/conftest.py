"""One server for the client's tests, and both clients driven by the same tests."""

import asyncio
import itertools
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.served import url as url
from topics.client import AsyncClient, AsyncConsumer, Client, RetryPolicy

_numbers = itertools.count(1)
QUICK = RetryPolicy(attempts=4, first_wait_s=0.001, longest_wait_s=0.01)


@pytest.fixture
def topic() -> str:
    return f"client-{next(_numbers)}"


class Waiting:
    """The async client with blocking methods, so that one suite tests both."""

    def __init__(self, url: str, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._make(url, options))

    async def _make(self, url: str, options: dict[str, Any]) -> AsyncClient:
        return AsyncClient(url, retry=QUICK, **options)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            if hasattr(result, "__aiter__"):
                return self._iterate(result)
            return self._runner.run(_awaited(result))

        return call

    def consumer(self, *arguments: Any, **options: Any) -> "WaitingConsumer":
        return WaitingConsumer(self._runner, self._client.consumer(*arguments, **options))

    def _iterate(self, source: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(_awaited(anext(source)))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(_awaited(source.aclose()))

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


async def _awaited(thing: Any) -> Any:
    return await thing


class WaitingConsumer:
    """The consumer of the async client with blocking methods. Its heartbeats run while one of them, or of the client, runs."""

    def __init__(self, runner: asyncio.Runner, consumer: AsyncConsumer[Any]) -> None:
        self._runner = runner
        self._consumer = consumer
        self.name = consumer.name

    def __enter__(self) -> "WaitingConsumer":
        self._runner.run(_awaited(self._consumer.__aenter__()))
        return self

    def __exit__(self, *error: Any) -> None:
        self._runner.run(_awaited(self._consumer.__aexit__(*error)))

    def __iter__(self) -> "WaitingConsumer":
        return self

    def __next__(self) -> Any:
        try:
            return self._runner.run(_awaited(anext(self._consumer)))
        except StopAsyncIteration:
            raise StopIteration from None

    def ack(self, *messages: Any) -> None:
        self._runner.run(_awaited(self._consumer.ack(*messages)))


def make_client(kind: str, url: str, **options: Any) -> Any:
    return Client(url, retry=QUICK, **options) if kind == "sync" else Waiting(url, **options)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(kind: str, url: str) -> Iterator[Any]:
    client = make_client(kind, url)
    yield client
    client.close()


# The second record holds a lone surrogate in its payload and in its metadata; the third a whole pair.
LONE = rb'{"records":[{"data":1},{"data":{"a":"x\ud800y"},"meta":{"m":"\udc00"}},{"data":"\ud83d\ude00"}]}'


def write_lone_surrogate(url: str, topic: str) -> None:
    request = urllib.request.Request(f"{url}/v0/topics/{topic}", LONE, {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()
