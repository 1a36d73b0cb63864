"""Rules that the source of the Spark packages keeps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "topics" / "spark").rglob("*.py"))
PRIVATE = ("_gateway", "_jvm", "_accumulatorServer", "_jsparkSession", "_jsc", "_jdf")
WORDS = re.compile(r"\b(whoever|nobody|somebody|anybody|told|owed|so many)\b", re.IGNORECASE)
PACKAGES = [f"spark/{name}" for name in ("archive", "connector", "delta", "materialize", "pipeline", "routing")]
OWN = [ROOT / part / package for part in ("src/topics", "tests") for package in (*PACKAGES, "archive", "capture")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_attribute_of_spark_is_used(path: Path) -> None:
    found = [name for name in PRIVATE if re.search(rf"\.{name}\b|\"{name}\"", path.read_text())]
    assert found == []


@pytest.mark.parametrize("folder", OWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_and_names_are_plain(folder: Path) -> None:
    found = [(path.name, word) for path in folder.rglob("*.py") for word in WORDS.findall(path.read_text())]
    assert found == []
