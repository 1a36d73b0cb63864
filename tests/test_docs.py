"""The documents that speak of code and tests speak of what is there."""

import re
from pathlib import Path
from typing import get_args

from topics.model.facts import Fact, SegmentInfo
from topics.model.records.page import Page

ROOT = Path(__file__).resolve().parent.parent
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_guarantee_names_tests_that_exist() -> None:
    named = TEST_NAME.findall((ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists()
        or not re.search(
            rf"^(?:(?:async )?def |class )?{name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE
        )
    ]
    assert missing == []


def test_every_promise_has_a_test() -> None:
    text = (ROOT / "docs" / "GUARANTEES.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "guarantee | test" not in line]
    assert [row for row in rows if not TEST_NAME.search(row)] == []


def test_the_format_lists_every_fact_with_its_number_and_fields() -> None:
    text = (ROOT / "docs" / "FORMAT.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    facts = {
        (str(fact.__struct_config__.tag), fact.__name__, ", ".join(fact.__struct_fields__)) for fact in get_args(Fact)
    }
    assert listed == facts, "docs/FORMAT.md must list every fact of model/facts.py"
    words = " ".join(text.split())
    assert ", ".join(Page.__struct_fields__) in words
    assert ", ".join(SegmentInfo.__struct_fields__) in words
