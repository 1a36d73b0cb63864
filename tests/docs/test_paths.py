"""Files, folders and functions of the project that documents and comments name exist."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.test_project import ROOT, project_files

FOLDERS = "src|tests|docs|tools|bench|deploy|examples"
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
# `a/b.py`, `a/b.py::name` or `b.py` in a sentence, and any path below a folder of the project.
MARKED = re.compile(rf"`((?:[\w.-]+/)*[\w-]+\.(?:py|js|md)|(?:{FOLDERS})(?:/[\w.-]+)+/?)(?:::\w+)?`")
# a/b.py in a drawing or a command.
DRAWN = re.compile(r"(?<![\w/.$~{-])((?:[a-z_]+/)+[a-z_]+\.py)\b")
# `a/b.py` (`name`, `other`), or without backticks in a drawing.
SYMBOLS = re.compile(r"(?<![\w/])(`?)((?:\w+/)+\w+\.py)\1 \((\1\w+\1(?:, \1\w+\1)*)\)")
IN_CODE = re.compile(rf"(?<![\w/.{{}}~-])((?:{FOLDERS})(?:/[\w-]+)+\.(?:py|md|js|json|yml|svg))\b")
# Written by a command, and not in every checkout.
WRITTEN = {"docs/data/soak.json"}

DOCUMENTS = sorted([path for path in project_files() if path.suffix == ".md"])


@cache
def places() -> frozenset[str]:
    """All files and folders of the project, each with every shorter form that a document may use: its last parts."""
    paths = {path.relative_to(ROOT) for path in project_files()}
    paths |= {parent for path in paths for parent in path.parents}
    return frozenset({"/".join(path.parts[at:]) for path in paths for at in range(len(path.parts))})


def missing(names: list[str]) -> list[str]:
    return [name for name in names if name.rstrip("/") not in places() and name not in WRITTEN]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_a_document_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    drawings = "\n".join(FENCE.findall(text))
    assert missing(MARKED.findall(FENCE.sub("", text)) + DRAWN.findall(drawings)) == []


def test_functions_that_the_architecture_names_beside_a_file_are_in_it() -> None:
    found = SYMBOLS.findall((ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert len(found) > 10
    absent = []
    for _, path, names in found:
        texts = [each.read_text(encoding="utf-8") for each in project_files() if str(each).endswith(f"/{path}")]
        absent += [f"{path}: {name}" for name in re.findall(r"\w+", names) if not any([name in text for text in texts])]
    assert absent == []


def test_the_drawings_of_the_architecture_name_modules_and_folders_that_exist() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "topics"
    broker = re.findall(r"^ ([a-z]+)/ +([a-z_]+(?: \([^)]*\))?, .*)$", text, re.MULTILINE)
    modules = [(folder, name) for folder, names in broker for name in re.sub(r"\([^)]*\)", "", names).split(",")]
    assert len(modules) > 15
    assert [each for each in modules if not (source / "broker" / each[0] / f"{each[1].strip()}.py").exists()] == []
    folders = re.findall(r"^ (model|engine|storage) +(\w+/.*)$", text, re.MULTILINE)
    assert {package for package, _ in folders} == {"model", "engine", "storage"}
    for package, names in folders:
        listed = set(re.findall(r"(\w+)/", names))
        assert listed == {path.parent.name for path in (source / package).glob("*/__init__.py")}


def test_files_that_comments_name_exist() -> None:
    code = [path for path in project_files() if path.suffix in {".py", ".js", ".toml", ".yml", ".yaml", ".service"}]
    code += [ROOT / "Makefile", ROOT / "Dockerfile"]
    named = [(path, name) for path in code for name in IN_CODE.findall(path.read_text(encoding="utf-8"))]
    assert len(named) > 100
    found = [f"{path.relative_to(ROOT)}: {name}" for path, name in named if missing([name])]
    assert [each for each in found if not each.startswith("tests/docs/test_paths.py")] == []


@pytest.mark.parametrize("text", ["`broker/append.py`", "`src/topics/engine/lease.py`", "`gone_module.py`", "`docs/x`"])
def test_a_path_that_does_not_exist_is_found(text: str) -> None:
    assert missing(MARKED.findall(text))


@pytest.mark.parametrize("text", ["`engine/leases/lease.py`", "`src/topics/model/`", "`test_paths.py::name`"])
def test_a_path_that_exists_is_accepted(text: str) -> None:
    assert MARKED.findall(text)
    assert missing(MARKED.findall(text)) == []
