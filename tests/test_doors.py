"""Doors open one way: which room may import which, read from the source of every module.

Imports are found with `ast`, so those inside functions and under `if TYPE_CHECKING` count like any other: a
room that needs another one only now and then, or only for its types, still needs it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = SOURCE / "topics"

ANYTHING = {"model", "engine", "storage", "broker", "sql", "server", "client", "archive", "spark", "capture", "cli"}
DOORS: dict[str, set[str]] = {
    "model": set(),
    "engine": {"model"},
    "storage": {"model"},
    "broker": {"model", "engine", "storage"},
    "sql": {"model"},
    "server": {"model", "broker", "sql"},
    "client": {"model"},
    "archive": {"client", "model"},
    "spark": {"archive", "client", "sql", "model"},
    "capture": {"client", "model"},
    "cli": {"client", "server", "archive", "spark", "capture", "model", "broker", "storage"},
    "console": set(),
    "testing": ANYTHING,
}

# Rooms that only decide: what they know of time, chance and the machine is passed to them.
PURE_ROOMS = ["model", "engine"]
IMPURE_MODULES = {"asyncio", "os", "time", "socket", "threading", "random"}


@pytest.mark.parametrize("room", DOORS)
def test_room_imports_only_through_its_doors(room: str) -> None:
    trespasses = {
        (str(path.relative_to(SOURCE)), name)
        for path, name in imports_of_room(room)
        if (other := room_of(name)) is not None and other not in DOORS[room] | {room}
    }
    assert trespasses == set()


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_pure_room_has_no_clock_no_chance_and_no_machine(room: str) -> None:
    impure = {
        (str(path.relative_to(SOURCE)), name)
        for path, name in imports_of_room(room)
        if name.partition(".")[0] in IMPURE_MODULES
    }
    assert impure == set()


def test_the_package_itself_imports_no_room() -> None:
    imported = {name for path in PACKAGE.glob("*.py") for name in imported_names(path.read_text(), "topics")}
    assert {room_of(name) for name in imported} <= {None}


def test_every_room_has_its_doors_listed() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE}
    assert rooms <= set(DOORS)
    assert {"model", "engine", "storage", "broker", "server", "cli"} <= rooms, "the rooms were not found"


def test_doors_make_no_circle() -> None:
    open_rooms = set(DOORS)
    while leaves := {room for room in open_rooms if not DOORS[room] & open_rooms}:
        open_rooms -= leaves
    assert open_rooms == set()


@pytest.mark.parametrize(
    ("source", "room"),
    [
        ("import topics.storage", "storage"),
        ("import topics.storage.log as log", "storage"),
        ("from topics.storage.log import Log", "storage"),
        ("from topics import storage", "storage"),
        ("from ..storage import log", "storage"),
        ("from .. import storage", "storage"),
        ("from . import sibling", "engine"),
        ("from .sibling import Name", "engine"),
        ("def late():\n    from topics.storage import log", "storage"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import topics.storage", "storage"),
        ("try:\n    import topics.storage\nexcept ImportError:\n    pass", "storage"),
        ("import importlib\nimportlib.import_module('topics.storage.log')", "storage"),
        ("__import__('topics.storage')", "storage"),
        ("import topics", None),
        ("from topics import __version__", None),
        ("import topicsology.storage", None),
    ],
)
def test_an_import_is_seen_however_it_is_written(source: str, room: str | None) -> None:
    rooms = {room_of(name) for name in imported_names(source, "topics.engine")} - {None}
    assert rooms == ({room} if room else set())


@pytest.mark.parametrize("source", ["import os.path", "def f():\n    from os import path", "import time as t, os"])
def test_an_impure_import_is_seen_however_it_is_written(source: str) -> None:
    assert {name.partition(".")[0] for name in imported_names(source, "topics.engine")} & IMPURE_MODULES >= {"os"}


def imports_of_room(room: str) -> Iterator[tuple[Path, str]]:
    """Every module of the room with every dotted name it imports."""
    for path in sorted((PACKAGE / room).rglob("*.py")):
        package = ".".join(path.parent.relative_to(SOURCE).parts)
        for name in imported_names(path.read_text(encoding="utf-8"), package):
            yield path, name


def imported_names(source: str, package: str) -> Iterator[str]:
    """The dotted names that code in `package` imports, with relative ones made absolute.

    `from a import b` gives `a.b`: whether b is a module or a name in one makes no difference to whose room it is.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                prefix = [*base, *([node.module] if node.module else [])]
                yield from (".".join([*prefix, alias.name]) for alias in node.names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name


def room_of(name: str) -> str | None:
    """The room a dotted name lies in; None when it is not ours or lies in the package itself."""
    match name.split("."):
        case ["topics", room, *_] if room in DOORS or (PACKAGE / room).is_dir():
            return room
    return None
