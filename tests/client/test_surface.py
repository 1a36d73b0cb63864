"""The public surface: everything exported, documented and typed, the same for both clients, quick to import."""

import inspect
import os
import subprocess
import sys
import textwrap
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topics.client
from topics.client import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    AsyncSent,
    AsyncTopic,
    AsyncWorker,
    Client,
    Consumer,
    Producer,
    Sent,
    Topic,
    Worker,
)

PAIRS = [
    (Client, AsyncClient),
    (Topic, AsyncTopic),
    (Consumer, AsyncConsumer),
    (Producer, AsyncProducer),
    (Sent, AsyncSent),
    (Worker, AsyncWorker),
]
# Measured: 42 to 55 ms on two cores with other work, of which 26 to 35 ms are msgspec.
MAX_IMPORT_MS = 80


def methods(kind: type) -> dict[str, Any]:
    found = {}
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, classmethod | property)):
            continue
        found[name] = member
    return found


def signature(function: Any) -> list[tuple[str, Any, Any, str]]:
    function = getattr(function, "__func__", function)
    if isinstance(function, property):
        function = function.fget
    return [
        (each.name, each.kind, each.default, str(each.annotation).replace("Async", ""))
        for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_both_clients_have_the_same_methods_with_the_same_parameters(sync: type, asynchronous: type) -> None:
    own, other = methods(sync), methods(asynchronous)
    assert set(own) == set(other)
    assert {name: signature(each) for name, each in own.items()} == {
        name: signature(each) for name, each in other.items()
    }
    assert signature(sync.__init__) == signature(asynchronous.__init__)


@pytest.mark.parametrize("kind", [kind for pair in PAIRS for kind in pair])
def test_every_method_is_typed_and_takes_no_unnamed_options(kind: type) -> None:
    for name, member in methods(kind).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        hints = function.__annotations__
        parameters = inspect.signature(function).parameters.values()
        untyped = [each.name for each in parameters if each.name not in ("self", "cls") and each.name not in hints]
        assert untyped == [], f"{kind.__name__}.{name}"
        assert "return" in hints, f"{kind.__name__}.{name}"
        assert not [each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]


def public_things() -> Iterator[tuple[str, Any]]:
    for name in topics.client.__all__:
        value = getattr(topics.client, name)
        yield name, value
        if inspect.isclass(value):
            yield from [(f"{name}.{each}", member) for each, member in methods(value).items()]


def test_every_public_thing_has_a_docstring() -> None:
    undocumented = [
        name
        for name, value in public_things()
        if not typing.get_args(value)
        and not isinstance(value, typing.TypeVar)
        and not (inspect.getdoc(value.fget if isinstance(value, property) else value) or "").strip()
    ]
    assert undocumented == []


def test_everything_in_all_exists_and_nothing_is_listed_twice() -> None:
    assert len(set(topics.client.__all__)) == len(topics.client.__all__)
    assert [name for name in topics.client.__all__ if not hasattr(topics.client, name)] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        topics.client.Nothing  # noqa: B018


# A slow machine is allowed this multiple of the time that the libraries the client needs take on it.
MAX_IMPORT_RATIO = 1.8
IMPORT_LIBRARIES = """
import time
started = time.process_time()
import logging, msgspec, urllib.parse
print((time.process_time() - started) * 1000)
"""
IMPORT = """
import sys, time
started = time.process_time()
import topics.client
took_ms = (time.process_time() - started) * 1000
heavy = [name for name in ("pyarrow", "asyncio", "ssl", "socket", "http.client", "httptools", "email", "random", "xxhash",
                           "concurrent.futures", "topics.api") if name in sys.modules]
print(took_ms, *heavy)
"""


def test_importing_the_client_is_quick_and_brings_nothing_heavy(tmp_path: Path) -> None:
    """Processor time with compiled modules, best of several runs, compared with the libraries in the same minute."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}

    def output_of(program: str) -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        )
        return run.stdout.split()

    runs = [(output_of(IMPORT_LIBRARIES), output_of(IMPORT)) for _ in range(6)]
    assert {tuple(heavy) for _, (_, *heavy) in runs} == {()}
    libraries_ms = min(float(libraries[0]) for libraries, _ in runs)
    client_ms = min(float(client[0]) for _, client in runs)
    assert client_ms <= max(MAX_IMPORT_MS, MAX_IMPORT_RATIO * libraries_ms)


def test_the_package_is_typed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A program that uses the client in the wrong way is found by mypy."""
    program = textwrap.dedent(
        """
        from dataclasses import dataclass
        from topics.client import Client, Message, Record

        @dataclass
        class Order:
            sku: str

        client = Client()
        for item in client.topic("orders").read(type=Order):
            if isinstance(item, Record):
                reveal_type(item.data.sku)
        for message in client.consumer("orders", group="g", type=Order):
            if isinstance(message, Message):
                reveal_type(message.data)
        client.claim("jobs", "worker", maximum=3)
        """
    )
    path = tmp_path_factory.mktemp("typed") / "program.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(path)],
        capture_output=True, text=True, cwd=path.parent,
    )  # fmt: skip
    assert 'Revealed type is "str"' in done.stdout or 'Revealed type is "builtins.str"' in done.stdout, done.stdout
    assert "program.Order" in done.stdout
    assert 'Unexpected keyword argument "maximum"' in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout
