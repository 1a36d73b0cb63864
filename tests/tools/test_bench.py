"""The benchmark program: rounds are interleaved, results are kept by workload, and the page and charts follow from them."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Contender, Contenders, Options, Sample, Workload, run
from bench.report import HEADLINES, SIZING_GROUPS, Results, chart, line
from bench.servers import ServerProcess
from bench.workloads import ALL
from tools.marked import marked
from tools.reliability import counts

ROOT = Path(__file__).resolve().parents[2]


def workload(calls: list[str], name: str = "w", *, lower_is_better: bool = False) -> Workload:
    values = {"topics": iter([9.0, 4.0, 2.0, 3.0]), "redis": iter([9.0, 8.0, 6.0, 7.0])}

    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        def measure(who: str) -> Contender:
            def sample() -> Sample:
                calls.append(who)
                return Sample(next(values[who]), 1)

            return Contender(sample)

        yield {who: measure(who) for who in values}

    return Workload("append", name, "records/s", contenders, lower_is_better)


def test_contenders_take_turns_and_the_warm_up_round_does_not_count() -> None:
    calls: list[str] = []
    result = run(workload(calls), Options(rounds=3))
    assert calls == ["topics", "redis"] * 4
    assert result["contenders"]["topics"] == {"median": 3.0, "low": 2.0, "high": 4.0}


class BusyServer(ServerProcess):
    """Uses 50 ms of processor time between any two looks at it, ten times; then it is idle."""

    def __init__(self) -> None:
        super().__init__("busy")
        self.looks = 0

    def cpu_seconds(self) -> float:
        self.looks += 1
        return 0.05 * min(self.looks, 10)

    def rss_mb(self) -> float:
        return 1.0


def test_next_contender_is_measured_when_the_server_of_the_one_before_is_idle() -> None:
    server = BusyServer()
    looks: list[int] = []

    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        def other() -> Sample:
            looks.append(server.looks)
            return Sample(1.0, 1)

        yield {"topics": Contender(lambda: Sample(1.0, 1), server), "redis": Contender(other)}

    try:
        run(Workload("append", "w", "records/s", contenders), Options(rounds=1))
    finally:
        server.remove()
    assert looks == [11]


def test_ratio_above_1_means_that_we_are_ahead() -> None:
    assert "redis 7 (ratio 0.43)" in line(run(workload([]), Options(rounds=3)))
    assert "redis 7 (ratio 2.33)" in line(run(workload([], lower_is_better=True), Options(rounds=3)))


def test_a_run_of_some_workloads_replaces_only_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = Results.load(path)
    results.put(run(workload([], "one"), Options(rounds=3)))
    results.put(run(workload([], "two"), Options(rounds=3)))
    again = Results.load(path)
    again.put({**run(workload([], "two"), Options(rounds=3)), "unit": "changed"})
    rows = Results.load(path).rows
    assert [row["unit"] for row in rows.values()] == ["records/s", "changed"]


def test_page_and_charts_are_written_from_the_stored_rows(tmp_path: Path) -> None:
    results = Results.load(tmp_path / "results.json")
    results.put(run(workload([]), Options(rounds=3)))
    results.write_documents(tmp_path / "RESULTS.md", tmp_path / "images")
    assert "| w | records/s | 3 | 2 to 4 |" in (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert ET.parse(tmp_path / "images" / "bench.svg").getroot().tag.endswith("svg")


def test_matrix_is_one_table_with_a_line_for_each_class_and_size(tmp_path: Path) -> None:
    results = Results.load(tmp_path / "results.json")
    matrix = [each for each in ALL if each.group == "append matrix"]
    for number, each in enumerate(matrix):
        results.put({**run(workload([]), Options(rounds=3)), "group": each.group, "name": each.name})
        results.rows[each.title]["contenders"]["topics"]["median"] = float(number)
    results.write_documents(tmp_path / "RESULTS.md", tmp_path / "images")
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith(("| ephemeral", "| memory", "| disk", "| fsync"))]
    assert len(lines) == 12
    assert lines[0] == "| ephemeral | 100 B | 0 / 1 / 2 | 3 / 4 / 5 | 6 / 7 / 8 | 9 / 10 / 11 |"


def test_a_name_with_markup_is_escaped_in_a_chart() -> None:
    row = {"name": "a < b & c", "contenders": {"topics": {"median": 1.0}}}
    assert "a &lt; b &amp; c" in ET.canonicalize(chart("t", [row]))


def test_titles_are_unique() -> None:
    titles = [each.title for each in ALL]
    assert len(titles) == len(set(titles))


def test_the_chart_and_the_sizing_page_name_workloads_that_exist() -> None:
    titles = {each.title for each in ALL}
    assert [title for title in HEADLINES if title not in titles] == []
    assert [group for group in SIZING_GROUPS if group not in {each.group for each in ALL}] == []


def test_figures_of_the_documents_are_those_of_the_stored_results() -> None:
    results = Results.load(ROOT / "bench" / "results.json")
    assert (ROOT / "docs/images/bench.svg").read_text(encoding="utf-8") == results.headline_chart(), (
        "run `python -m bench --report`"
    )
    sizing = (ROOT / "docs/operate/sizing.md").read_text(encoding="utf-8")
    assert marked(sizing, "measured") == results.sizing_tables(), "run `python -m bench --report`"


def test_counts_of_the_readme_are_those_of_the_stored_runs() -> None:
    assert marked((ROOT / "README.md").read_text(encoding="utf-8"), "counts") == counts()
