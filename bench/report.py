"""Results as JSON, as one page of tables, and as charts."""

import json
import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench.measure import OURS
from tools.marked import write_marked

INTRODUCTION = """# Results

Written by `make bench` from `bench/results.json`; measured on {machine}, {dates}, commit {commits}. The measurements took {minutes:.0f} minutes.

Load generator, server and peers share the machine. Each row is the median of interleaved rounds after a warm-up round, with the lowest
and highest round as its spread. `ratio` is ours divided by the other, turned round where less is better: above 1 we are ahead. CPU is the
processor time of our server per operation. Redis has an append-only file with `appendfsync everysec` (`always` for class fsync, `no` for
pub/sub); NATS is JetStream on disk, which syncs every two minutes. Payloads, connections and batches are the same for all.
wrk drives HTTP, redis-benchmark drives Redis writes and reads, and one Python program drives everything else. `echo` is our HTTP stack with a
constant answer.
"""

MATRIX = "append matrix"
MATRIX_INTRODUCTION = """
## Append matrix

Records per second, one round each. In a cell: 1, 16 and 64 connections. More than 16 MB in flight is not measured.

"""

# Batch, size, connections and class of a row of the matrix.
MATRIX_NAME = re.compile(r"(\d+) × (\d+ K?B), (\d+) connections, (\w+)")

# The rows of the one chart of the README, by title.
HEADLINES = {
    "append: 1 record of 100 B, disk, 16 connections": "append 1 record, records/s",
    "append: 100 records of 100 B per request, disk, 16 connections": "append 100 records, records/s",
    "append: 1 record of 100 B, fsync, 16 connections": "append 1 record, synced, records/s",
    "read: diff of 256 records from memory, 16 connections": "read 256 records, records/s",
    "live: single records to 100 SSE watchers": "100 live readers, deliveries/s",
    "queues: claim and ack, 16 workers, 16 at a time": "claim and ack 16 jobs, jobs/s",
}
# Groups of the tables in docs/operate/sizing.md, beside the rows of the chart.
SIZING_GROUPS = ("latency", "pressure", "scale", "lifecycle")
COLORS = {OURS: "#2563eb", "redis": "#dc2626", "redis list": "#f97316", "nats": "#059669", "echo": "#9ca3af"}
OTHER_COLOR = "#7c3aed"
BAR_HEIGHT = 13
LABEL_WIDTH = 400
PLOT_WIDTH = 420


@dataclass
class Results:
    """Every row that was measured, by its title."""

    path: Path
    rows: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, path: Path) -> "Results":
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
        return cls(path, {f"{row['group']}: {row['name']}": row for row in rows})

    def put(self, row: dict[str, Any]) -> None:
        """Store a row at once, so that an interrupted run keeps what it has measured."""
        row = {**row, "measured_at": datetime.now(UTC).strftime("%Y-%m-%d"), "commit": code_state()}
        self.rows[f"{row['group']}: {row['name']}"] = row
        content = {"machine": _machine(), "rows": list(self.rows.values())}
        self.path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def write_documents(self, page: Path, images: Path, sizing: Path | None = None) -> None:
        """Write the page of tables, the charts, and the tables of the page `sizing`."""
        if not self.rows:
            return
        page.write_text(self._introduction() + self._tables(), encoding="utf-8")
        images.mkdir(parents=True, exist_ok=True)
        (images / "bench.svg").write_text(self.headline_chart(), encoding="utf-8")
        if sizing is not None:
            write_marked(sizing, "measured", self.sizing_tables())

    def _introduction(self) -> str:
        machine = json.loads(self.path.read_text(encoding="utf-8"))["machine"]
        dates = sorted({row["measured_at"] for row in self.rows.values()})
        commits = sorted({row.get("commit", "unknown") for row in self.rows.values()})
        seconds = sum([row.get("seconds", 0.0) for row in self.rows.values()])
        return INTRODUCTION.format(
            machine=machine,
            dates=" to ".join(dates[:1] + dates[1:][-1:]),
            commits=", ".join(commits),
            minutes=seconds / 60,
        )

    def headline_chart(self) -> str:
        """The one chart of the README: a few rows under short names."""
        rows = [{**self.rows[title], "name": name} for title, name in HEADLINES.items() if title in self.rows]
        return chart("More is better; each row has its own scale", rows)

    def sizing_tables(self) -> str:
        """Our own figures for docs/operate/sizing.md: what one server does, and what it needs."""
        rows = [row for title, row in self.rows.items() if title in HEADLINES or row["group"] in SIZING_GROUPS]
        if not rows:
            return "No figures yet: run `make bench`.\n"
        machine = json.loads(self.path.read_text(encoding="utf-8"))["machine"]
        dates = sorted({row["measured_at"] for row in rows})
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        lines = [f"Measured {when} on {machine}; load generator and server share the machine.", ""]
        lines += ["| workload | unit | median | CPU |", "|---|---|---|---|"]
        for row in rows:
            ours = row["contenders"][OURS]
            cpu = f"{ours['cpu_us_per_operation']:g} µs" if ours.get("cpu_us_per_operation") else ""
            lines.append(f"| {row['group']}: {row['name']} | {row['unit']} | {_number(ours['median'])} | {cpu} |")
        return "\n".join(lines) + "\n"

    def _tables(self) -> str:
        from bench.workloads import ALL

        order = {workload.title: at for at, workload in enumerate(ALL)}
        rows = sorted(self.rows.items(), key=lambda item: order.get(item[0], len(order)))
        text = ""
        group = ""
        for _, row in rows:
            if row["group"] == MATRIX:
                continue
            if row["group"] != group:
                group = row["group"]
                text += f"\n## {group.capitalize()}\n\n| workload | unit | topics | spread | CPU | RSS | against |\n|---|---|---|---|---|---|---|\n"
            text += line(row) + "\n"
        return text + self._matrix()

    def _matrix(self) -> str:
        """One line for each class and size, one column for each number of records per request."""
        cells: dict[tuple[str, str], dict[str, list[str]]] = {}
        for row in self.rows.values():
            if row["group"] == MATRIX:
                batch, size, _, durability = MATRIX_NAME.fullmatch(row["name"]).groups()  # type: ignore[union-attr]
                columns = cells.setdefault((durability, size), {})
                columns.setdefault(batch, []).append(_number(row["contenders"][OURS]["median"]))
        if not cells:
            return ""
        batches = list(dict.fromkeys([batch for columns in cells.values() for batch in columns]))
        text = MATRIX_INTRODUCTION + f"| class | record | {' | '.join([f'{each} per request' for each in batches])} |\n"
        text += "|---" * (2 + len(batches)) + "|\n"
        for (durability, size), columns in cells.items():
            text += (
                f"| {durability} | {size} | {' | '.join([' / '.join(columns.get(each, [])) for each in batches])} |\n"
            )
        return text


def line(row: dict[str, Any]) -> str:
    """A row as a line of a Markdown table."""
    ours = row["contenders"][OURS]
    extra = "".join([f", {name} {_number(ours[name])}" for name in ("p50", "p99", "p99.9", "rate") if name in ours])
    against = [
        f"{name} {_number(other['median'])} (ratio {_ratio(row, other['median']):.2f})"
        for name, other in row["contenders"].items()
        if name != OURS
    ]
    cells = [
        row["name"],
        row["unit"],
        _number(ours["median"]) + extra,
        f"{_number(ours['low'])} to {_number(ours['high'])}" if row["rounds"] > 1 else "",
        f"{ours['cpu_us_per_operation']:g} µs" if ours.get("cpu_us_per_operation") else "",
        f"{ours['rss_mb']:.0f} MB" if "rss_mb" in ours else "",
        "; ".join(against),
    ]
    return "| " + " | ".join(cells) + " |"


def _ratio(row: dict[str, Any], other: float) -> float:
    ours: float = row["contenders"][OURS]["median"]
    return other / ours if row["lower_is_better"] else ours / other


def chart(title: str, rows: list[dict[str, Any]]) -> str:
    """Horizontal bars, one group for each row; each group has its own scale, because rows differ by orders of magnitude."""
    parts = []
    top = 44
    for row in rows:
        contenders = row["contenders"]
        largest = max([each["median"] for each in contenders.values()])
        middle = top + BAR_HEIGHT * len(contenders) / 2 + 4
        parts.append(f'<text x="{LABEL_WIDTH - 10}" y="{middle:.0f}" text-anchor="end">{escape(row["name"])}</text>')
        for name, each in contenders.items():
            width = PLOT_WIDTH * each["median"] / largest
            color = COLORS.get(name, OTHER_COLOR)
            parts.append(
                f'<rect x="{LABEL_WIDTH}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT - 2}" fill="{color}"/>'
            )
            label = f"{name} {_number(each['median'])}"
            parts.append(
                f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{top + BAR_HEIGHT - 4}" class="v">{escape(label)}</text>'
            )
            top += BAR_HEIGHT
        top += 10
    width = LABEL_WIDTH + PLOT_WIDTH + 160
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + 4}" width="{width}" height="{top + 4}" '
        f'role="img" aria-label="{escape(title)}">\n'
        "<style>text{font:12px system-ui,sans-serif;fill:#1f2937}.v{font-size:11px}.h{font-size:15px;font-weight:600}"
        "@media (prefers-color-scheme:dark){text{fill:#e5e7eb}}</style>\n"
        f'<text x="10" y="24" class="h">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def code_state() -> str:
    """The state of the code that was measured; with "+" if files differ from the commit."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=8", "--exclude=*"]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return run.stdout.strip() or "unknown"


def _machine() -> str:
    model = "unknown processor"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = f"{len(names)} × {names[0]}" if names else model
    except OSError:
        pass
    return f"{model}, Linux {platform.release().partition('-')[0]}, {platform.python_implementation()} {platform.python_version()}"
