"""Rows of the Spark benchmark: a target is compared with the median, and each row is kept as soon as it is measured."""

from pathlib import Path

from bench.spark_rows import HEADER, Row, store
from bench.spark_tools import in_turns


def test_the_median_is_compared_with_the_target_and_the_spread_is_shown() -> None:
    assert Row("read", "rows/s", [1.0, 300.0, 200.0], 200).line("today") == (
        "| read | 200 rows/s | 1.00 to 300 (3) | ≥ 200 | yes | today |"
    )
    late = Row("latency", "ms", [140.0, 151.0, 160.0], 150, at_most=True)
    assert (late.met, Row("alone", "s", [1.0]).met) == (False, None)


def test_a_known_row_is_replaced_and_a_new_one_is_added_to_the_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{HEADER}\n\nText.\n")
    for value in (1.0, 2.0):
        store(page, Row("a", "s", [value]), "today")
    store(page, Row("b", "s", [3.0]), "today")
    assert page.read_text().splitlines()[4:] == [
        "| a | 2.00 s | 2.00 to 2.00 (1) |  |  | today |",
        "| b | 3.00 s | 3.00 to 3.00 (1) |  |  | today |",
        "",
        "Text.",
    ]


def test_actions_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def action(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    found = in_turns(2, {name: lambda name=name: action(name) for name in "ab"})  # type: ignore[misc]
    assert "".join(calls) == "ababab"
    assert found == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
