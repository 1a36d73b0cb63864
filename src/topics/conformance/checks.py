"""Registering checks, and the assertions they are written with.

    @check
    def absent_topic_is_404(server: Server) -> None:
        refused(server.get(server.topic_path()), 404, "topic_not_found")

A check is a function of one server. Its name is its description. With `cases`, one function is several checks, one for
each label. A check that finds a difference raises Failed; one that needs something the server or the command line does
not offer raises Skipped.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from topics.conformance import areas
from topics.conformance.server import Response, Server

CheckFunction = Callable[..., None]
Function = TypeVar("Function", bound=CheckFunction)
Case = TypeVar("Case")

_ERROR_CODE = re.compile(r"[a-z][a-z0-9_]*")


class Failed(AssertionError):
    """The server does not do what the contract says. The message names what was expected and what came."""


class Skipped(Exception):
    """The check does not apply. The message says what it needs."""


@dataclass(frozen=True)
class Check:
    """One statement of the contract."""

    area: str
    name: str
    run: Callable[[Server], None]

    @property
    def title(self) -> str:
        return f"{self.area}: {self.name}"


_checks: list[Check] = []


def check(function: Function) -> Function:
    """Register a function as a check of the area that its module is named for."""
    _checks.append(Check(_area(function), _words(function), function))
    return function


def cases(table: Mapping[str, Case]) -> Callable[[Callable[[Server, Case], None]], Callable[[Server, Case], None]]:
    """Register a function as one check for each entry of the table; the key completes the name."""

    def register(function: Callable[[Server, Case], None]) -> Callable[[Server, Case], None]:
        for label, value in table.items():
            name = f"{_words(function)}: {label}"
            _checks.append(Check(_area(function), name, _bound(function, value)))
        return function

    return register


def all_checks() -> list[Check]:
    """Every check of every area, in the order of the areas' names and of each file."""
    for module in pkgutil.walk_packages(areas.__path__, f"{areas.__name__}."):
        importlib.import_module(module.name)
    return sorted(_checks, key=lambda check: check.area)


def _bound(function: Callable[[Server, Case], None], value: Case) -> Callable[[Server], None]:
    def run(server: Server) -> None:
        function(server, value)

    return run


def _area(function: CheckFunction) -> str:
    return function.__module__.rpartition(".")[2].replace("_", " ")


def _words(function: CheckFunction) -> str:
    return function.__name__.replace("_", " ")


# Assertions


def equal(actual: object, expected: object, what: str = "value") -> None:
    """Require equality; 1, 1.0 and True are three different values."""
    if actual != expected or type(actual) is not type(expected):
        raise Failed(f"{what}: expected {expected!r}, got {actual!r}")


def true(condition: object, what: str) -> None:
    """Require a condition that `what` describes."""
    if not condition:
        raise Failed(what)


def fields(value: Mapping[str, Any], **expected: Any) -> None:
    """Require these fields with these values; others may be present."""
    for name, wanted in expected.items():
        if name not in value:
            raise Failed(f"field {name!r} is missing in {_short(value)}")
        equal(value[name], wanted, f"field {name!r}")


def present(value: Mapping[str, Any], *names: str) -> None:
    missing = [name for name in names if name not in value]
    true(not missing, f"fields {missing} are missing in {_short(value)}")


def absent(value: Mapping[str, Any], *names: str) -> None:
    found = [name for name in names if name in value]
    true(not found, f"fields {found} must be absent in {_short(value)}")


def succeeded(response: Response, status: int = 200) -> dict[str, Any]:
    """Require this status and a JSON object with a `performance` object and no `error`. Returns the object."""
    if response.status != status:
        raise Failed(f"{response.request}: expected {status}, got {response.status} {response.text(300)}")
    true(response.media_type == "application/json", f"{response.request}: Content-Type is {response.media_type!r}")
    body = response.json()
    true(isinstance(body, dict), f"{response.request}: the body is not an object: {response.text(300)}")
    true("error" not in body, f"{response.request}: a success has no `error`")
    performance = body.get("performance")
    true(isinstance(performance, dict), f"{response.request}: `performance` is missing")
    total = performance.get("server_total_ms")
    true(isinstance(total, int | float) and total >= 0, f"{response.request}: performance.server_total_ms is {total!r}")
    return dict(body)


def refused(response: Response, status: int, code: str | Iterable[str]) -> dict[str, Any]:
    """Require this status and the error envelope with this code (or one of these). Returns the error."""
    codes = [code] if isinstance(code, str) else list(code)
    if response.status != status:
        raise Failed(f"{response.request}: expected {status} {codes[0]}, got {response.status} {response.text(300)}")
    error = envelope(response)
    true(error["code"] in codes, f"{response.request}: expected code {' or '.join(codes)}, got {error['code']}")
    return error


def envelope(response: Response) -> dict[str, Any]:
    """Require the error envelope of section 0.5 and return its `error`."""
    true(response.media_type == "application/json", f"{response.request}: Content-Type is {response.media_type!r}")
    body = response.json()
    true(isinstance(body, dict) and "error" in body, f"{response.request}: no `error` in {response.text(300)}")
    true(set(body) <= {"error", "performance"}, f"{response.request}: fields beside `error`: {sorted(body)}")
    error = body["error"]
    true(set(error) <= {"code", "message", "detail"}, f"{response.request}: fields of `error`: {sorted(error)}")
    true(_ERROR_CODE.fullmatch(error.get("code", "")), f"{response.request}: error.code is {error.get('code')!r}")
    message = error.get("message")
    true(isinstance(message, str) and message, f"{response.request}: error.message is {message!r}")
    if response.status in (429, 503):
        true("retry-after" in response.headers, f"{response.request}: {response.status} without Retry-After")
    return dict(error)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:300] + "…"
