"""Rules that the source of the Spark packages keeps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "topics" / "spark").rglob("*.py"))
PRIVATE = ("_gateway", "_jvm", "_accumulatorServer", "_jsparkSession", "_jsc", "_jdf")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_attribute_of_spark_is_used(path: Path) -> None:
    found = [name for name in PRIVATE if re.search(rf"\.{name}\b|\"{name}\"", path.read_text())]
    assert found == []
