"""Imports between packages go one way: which package may import which, read from the source of every module.

Imports are found with `ast`, so those inside functions and under `if TYPE_CHECKING` count like any other: a package
that needs another one only in one function, or only for its types, still depends on it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = SOURCE / "topics"

ALL_PACKAGES = {
    "model",
    "wire",
    "engine",
    "storage",
    "segments",
    "runtime",
    "broker",
    "maintenance",
    "sql",
    "server",
    "client",
    "archive",
    "spark",
    "capture",
    "cli",
}
ALLOWED: dict[str, set[str]] = {
    "model": set(),
    "wire": {"model"},
    "engine": {"model"},
    "storage": {"model"},
    "runtime": {"model"},
    "segments": {"model", "engine", "storage"},
    "broker": {"model", "engine", "storage", "segments", "wire", "runtime"},
    "maintenance": {"model", "engine", "storage", "segments", "runtime", "broker"},
    "sql": {"model"},
    "api": {"model"},
    "server": {"model", "wire", "engine", "runtime", "broker", "sql", "api"},
    "client": {"api", "model"},
    "archive": {"client", "model"},
    "spark": {"archive", "client", "sql", "model"},
    "capture": {"client", "model"},
    "conformance": set(),
    "cli": {
        "conformance",
        "client",
        "server",
        "archive",
        "spark",
        "capture",
        "model",
        "runtime",
        "broker",
        "maintenance",
        "storage",
        "sql",
    },
    "console": set(),
    "testing": ALL_PACKAGES,
}

# Inside a package: which unit may import which. A unit is a folder, a module beside the folders, or a module named here.
MODEL: dict[str, set[str]] = {
    "errors": set(),
    "names": {"errors"},
    "limits": set(),
    "steps": set(),
    "config": {"errors", "names"},
    "records": {"errors", "limits", "steps", "config"},
    "tables": {"errors", "names", "steps", "records"},
    "router": {"records"},
    "facts": {"config", "records", "tables", "router"},
}
ENGINE: dict[str, set[str]] = {
    "cache": set(),
    "leases": set(),
    "partitions": {"cache", "leases"},
    "groups.group": {"partitions"},
    "topics": {"cache", "leases", "partitions", "groups.group"},
    "groups": {"groups.group", "partitions", "topics"},
    "queues": {"leases", "partitions", "topics"},
    "routers": {"partitions", "topics"},
    "transactions": set(),
    "tables": set(),
}
STORAGE: dict[str, set[str]] = {
    "fs": set(),
    "reading": {"fs"},
    "damaged_files": {"fs", "reading"},
    "reserve": {"fs", "reading", "damaged_files"},
    "log": {"fs", "reading", "damaged_files", "reserve"},
    "segments": {"fs", "reading", "damaged_files"},
    "snapshots": {"fs", "reading", "damaged_files", "log", "segments"},
    "layout": {"fs", "log", "segments", "snapshots"},
}
BROKER: dict[str, set[str]] = {
    "state": set(),
    "log": {"state"},
    "durability": {"state", "log"},
    "topics.quota": {"state"},
    "core": {"state", "log", "durability", "topics.quota"},
    "long_poll": {"core"},
    "topics": {"state", "log", "topics.quota", "core"},
    "groups": {"state", "log", "core"},
    "queues": {"state", "log", "core", "long_poll", "topics"},
    "routers": {"state", "log", "core", "topics", "topics.quota"},
    "transactions": {"state", "log", "core", "topics", "topics.quota"},
    "tables": {"core", "topics", "transactions"},
    "broker": {"core", "durability", "topics", "groups", "queues", "routers", "transactions", "tables"},
}
# Inside the server: which folder may import which. Modules beside the folders wire them together and may import all.
SERVER: dict[str, set[str]] = {
    "http": set(),
    "auth": {"http", "ops"},
    "topics": {"http", "auth", "ops", "queues"},
    "queues": {"http", "auth", "live"},
    "live": {"http", "auth", "ops", "topics"},
    "groups": {"http", "auth"},
    "tables": {"http", "auth", "sql"},
    "sql": {"auth", "ops", "groups", "tables"},
    "ops": {"http", "auth", "topics", "live", "tables"},
}
FOLDERS = {"model": MODEL, "engine": ENGINE, "storage": STORAGE, "broker": BROKER, "server": SERVER}

# Packages without side effects: time, random numbers and bytes are passed to them as arguments.
PURE_PACKAGES = ["model", "wire", "engine", "api"]
IMPURE_MODULES = {"asyncio", "os", "time", "socket", "threading", "random"}


@pytest.mark.parametrize("package", ALLOWED)
def test_package_imports_only_what_the_table_allows(package: str) -> None:
    violations = {
        (str(path.relative_to(SOURCE)), name)
        for path, name in imports_of_package(package)
        if (other := package_of(name)) is not None and other not in ALLOWED[package] | {package}
    }
    assert violations == set()


@pytest.mark.parametrize(("package", "table"), FOLDERS.items(), ids=FOLDERS)
def test_folder_imports_only_what_its_table_allows(package: str, table: dict[str, set[str]]) -> None:
    violations = {
        (str(path.relative_to(SOURCE)), name)
        for path, name in imports_of_package(package)
        if (unit := unit_of(".".join(path.relative_to(SOURCE).with_suffix("").parts), package, table)) in table
        and (other := unit_of(name, package, table)) in table
        and other not in table[unit] | {unit}
    }
    assert violations == set()


@pytest.mark.parametrize(("package", "table"), FOLDERS.items(), ids=FOLDERS)
def test_every_folder_is_in_its_table(package: str, table: dict[str, set[str]]) -> None:
    folders = {path.parent.name for path in (PACKAGE / package).glob("*/__init__.py")}
    assert folders <= set(table)


def test_every_module_of_the_broker_belongs_to_a_unit() -> None:
    names = [path.relative_to(SOURCE).with_suffix("") for path in (PACKAGE / "broker").rglob("*.py")]
    modules = [".".join(name.parts) for name in names if name.name != "__init__"]
    assert {unit_of(module, "broker", BROKER) for module in modules} == set(BROKER)


@pytest.mark.parametrize("table", [ALLOWED, MODEL, ENGINE, STORAGE, BROKER])
def test_allowed_imports_have_no_cycle(table: dict[str, set[str]]) -> None:
    remaining = set(table)
    while leaves := {unit for unit in remaining if not table[unit] & remaining}:
        remaining -= leaves
    assert remaining == set()


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("topics.broker.log.apply.apply", "log"),
        ("topics.broker.topics.quota.Growth", "topics.quota"),
        ("topics.broker.topics.quotation", "topics"),
        ("topics.broker.core.Core", "core"),
        ("topics.server.http", None),
    ],
)
def test_unit_is_the_longest_entry_of_the_table(name: str, unit: str | None) -> None:
    assert unit_of(name, "broker", BROKER) == unit


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_pure_package_imports_no_clock_no_randomness_and_no_io(package: str) -> None:
    impure = {
        (str(path.relative_to(SOURCE)), name)
        for path, name in imports_of_package(package)
        if name.partition(".")[0] in IMPURE_MODULES
    }
    assert impure == set()


def test_importing_topics_imports_no_subpackage() -> None:
    imported = {name for path in PACKAGE.glob("*.py") for name in imported_names(path.read_text(), "topics")}
    assert {package_of(name) for name in imported} <= {None}


def test_every_package_is_in_the_table() -> None:
    packages = {path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE}
    assert packages <= set(ALLOWED)
    assert {"model", "engine", "storage", "broker", "server", "cli"} <= packages, "the packages were not found"


@pytest.mark.parametrize(
    ("source", "package"),
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
def test_an_import_is_seen_however_it_is_written(source: str, package: str | None) -> None:
    packages = {package_of(name) for name in imported_names(source, "topics.engine")} - {None}
    assert packages == ({package} if package else set())


@pytest.mark.parametrize("source", ["import os.path", "def f():\n    from os import path", "import time as t, os"])
def test_an_impure_import_is_seen_however_it_is_written(source: str) -> None:
    assert {name.partition(".")[0] for name in imported_names(source, "topics.engine")} & IMPURE_MODULES >= {"os"}


def imports_of_package(package: str) -> Iterator[tuple[Path, str]]:
    """Yield every module of the package with every dotted name it imports."""
    for path in sorted((PACKAGE / package).rglob("*.py")):
        parent = ".".join(path.parent.relative_to(SOURCE).parts)
        for name in imported_names(path.read_text(encoding="utf-8"), parent):
            yield path, name


def imported_names(source: str, package: str) -> Iterator[str]:
    """The dotted names that code in `package` imports, with relative ones made absolute.

    `from a import b` gives `a.b`: whether b is a module or a name in one makes no difference to its package.
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


def package_of(name: str) -> str | None:
    """Return the package below `topics` that a dotted name belongs to, None if there is none."""
    match name.split("."):
        case ["topics", package, *_] if package in ALLOWED or (PACKAGE / package).is_dir():
            return package
    return None


def unit_of(name: str, package: str, table: dict[str, set[str]]) -> str | None:
    """Return the entry of the table that a dotted name belongs to: the longest one; None outside the package."""
    parts = name.split(".")
    if parts[:2] != ["topics", package]:
        return None
    candidates = [".".join(parts[2:stop]) for stop in range(len(parts), 2, -1)]
    return next((unit for unit in candidates if unit in table), None)
