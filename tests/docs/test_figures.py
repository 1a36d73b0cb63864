"""No document has a figure of speed that could be older than the code.

Measured figures are in places that a command writes: bench/, docs/RELIABILITY.md and the marked parts of pages. A decision has the figures of its
day, and says so.
"""

import re
from pathlib import Path

import pytest

from tools.reliability import PAGE, page

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *[ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]]
)
# Written by `make powercut` and `make soak`, with the date of the run.
WRITTEN = {PAGE}
MARKED = re.compile(r"^<!-- (\w+) -->$.*?^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
NUMBER = r"\d[\d,.]*(?: to \d[\d,.]*)?"
THINGS = "records|rows|jobs|changes|requests|req|messages|deliveries|writes|M?B|MiB"
FIGURE = re.compile(
    rf"{NUMBER} ?(?:µs|us|ns)\b"
    rf"|{NUMBER} ?(?:{THINGS})(?:/s\b| (?:a|per) second)"
    rf"|{NUMBER} (?:%|times) (?:less|more|faster|slower|as (?:many|much|fast))\b"
    rf"|(?:takes?|took|in) (?:about )?{NUMBER} (?:ms|s)\b"
)
DATE = re.compile(r"^Date: \d{4}-\d{2}-\d{2}\. State: accepted\.(?P<figures> Figures are of this date\.)?$")


@pytest.mark.parametrize(
    "path", sorted({*PAGES} - {*DECISIONS} - WRITTEN), ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_page_has_no_measured_figure_outside_of_its_generated_parts(path: Path) -> None:
    assert FIGURE.findall(MARKED.sub("", path.read_text(encoding="utf-8"))) == []


def test_the_page_of_our_runs_is_made_from_their_summaries() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again with tools.reliability.write_page"


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.name)
def test_a_decision_has_a_date_and_says_that_its_figures_are_of_it(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    dated = DATE.match(lines[2])
    assert dated, lines[2]
    assert not FIGURE.search("\n".join(lines)) or dated["figures"]


@pytest.mark.parametrize(
    "text",
    [
        "65,912 jobs/s",
        "1.3 us for a page",
        "18.87 µs",
        "30 to 80 times as many",
        "30 % less",
        "took 9.6 s",
        "in about 2 s",
    ],
)
def test_a_figure_is_found(text: str) -> None:
    assert FIGURE.search(text)


@pytest.mark.parametrize(
    "text", ["every 20 ms", "wait_ms=300", "512 MiB by default", "10,000 records", "for 15 seconds"]
)
def test_a_limit_is_not_a_figure(text: str) -> None:
    assert not FIGURE.search(text)
