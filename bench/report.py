"""Results as JSON, as one page of tables, and as charts."""

import json
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from bench.measure import OURS

INTRODUCTION = """# Results

Written by `make bench` from `bench/results.json`; measured on {machine}.

Load generator, server and peers share the machine. Each row is the median of interleaved rounds after a warm-up round, with the lowest
and highest round as its spread. `ratio` is ours divided by the other, turned round where less is better: above 1 we are ahead. CPU is the
processor time of our server per operation. Redis has an append-only file with `appendfsync everysec` (`always` for class fsync, `no` for
pub/sub); NATS is JetStream on disk, which syncs every two minutes. Payloads, connections and batches are the same for all.
wrk drives HTTP, redis-benchmark drives Redis writes and reads, and one Python program drives everything else. `echo` is our HTTP stack with a
constant answer. Rows of the append matrix are one round each.
"""

CHARTS = {
    "append": "Appends, records per second",
    "read": "Reads, records per second",
    "live": "Deliveries per second",
    "queues": "Jobs per second",
}
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
        row = {**row, "measured_at": datetime.now(UTC).strftime("%Y-%m-%d")}
        self.rows[f"{row['group']}: {row['name']}"] = row
        content = {"machine": _machine(), "rows": list(self.rows.values())}
        self.path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def write_documents(self, page: Path, images: Path) -> None:
        """Write the page of tables and one chart for each of the main groups."""
        if not self.rows:
            return
        machine = json.loads(self.path.read_text(encoding="utf-8"))["machine"]
        page.write_text(INTRODUCTION.format(machine=machine) + self._tables(), encoding="utf-8")
        images.mkdir(parents=True, exist_ok=True)
        for group, title in CHARTS.items():
            rows = [row for row in self.rows.values() if row["group"] == group and not row["lower_is_better"]]
            if rows:
                (images / f"bench-{group}.svg").write_text(chart(title, rows), encoding="utf-8")

    def _tables(self) -> str:
        from bench.workloads import ALL

        order = {workload.title: at for at, workload in enumerate(ALL)}
        rows = sorted(self.rows.items(), key=lambda item: order.get(item[0], len(order)))
        text = ""
        group = ""
        for _, row in rows:
            if row["group"] != group:
                group = row["group"]
                text += f"\n## {group.capitalize()}\n\n| workload | unit | topics | spread | CPU | RSS | against |\n|---|---|---|---|---|---|---|\n"
            text += line(row) + "\n"
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


def _machine() -> str:
    model = "unknown processor"
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = f"{len(names)} × {names[0]}" if names else model
    except OSError:
        pass
    return f"{model}, Linux {platform.release().partition('-')[0]}, {platform.python_implementation()} {platform.python_version()}"
