"""The report of a run: text for a terminal, or one JSON document."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from topics.conformance.runner import Result


def summary(url: str, results: Sequence[Result]) -> dict[str, Any]:
    """The run as one JSON value: counts, counts per area, and every check."""
    return {
        "url": url,
        **_counts(results),
        "areas": {
            area: _counts([result for result in results if result.area == area])
            for area in sorted({result.area for result in results})
        },
        "checks": [
            {
                "area": result.area,
                "name": result.name,
                "outcome": result.outcome,
                "seconds": round(result.seconds, 3),
                **({"reason": result.reason} if result.reason else {}),
            }
            for result in results
        ],
    }


def json_report(url: str, results: Sequence[Result]) -> str:
    return json.dumps(summary(url, results), indent=2, ensure_ascii=False)


def text_report(url: str, results: Sequence[Result]) -> str:
    """One line per area, then every failed and skipped check with its reason."""
    lines = []
    for area, counts in summary(url, results)["areas"].items():
        text = f"{area:<14} {counts['passed']:>4} passed"
        text += "".join([f", {counts[kind]} {kind}" for kind in ("failed", "skipped") if counts[kind]])
        lines.append(text)
    for outcome in ("skipped", "failed"):
        for result in results:
            if result.outcome == outcome:
                lines.append(f"\n{outcome.upper()} {result.area}: {result.name}\n    {result.reason}")
    total = _counts(results)
    lines.append(
        f"\n{len(results)} checks of {url}: {total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped"
    )
    return "\n".join(lines)


def _counts(results: Sequence[Result]) -> dict[str, int]:
    counts = Counter([result.outcome for result in results])
    return {outcome: counts[outcome] for outcome in ("passed", "failed", "skipped")}
