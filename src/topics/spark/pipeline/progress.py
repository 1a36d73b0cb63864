"""Figures from Spark's progress of a query: lag, bytes, latency; and the reason of a failure.

Spark's own progress has neither bytes nor the time of the newest record: jobs observe them (`observe_records`), or count them
themselves.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OBSERVED = "records"


def observe_records(frame: "DataFrame", newest: "Column") -> "DataFrame":
    """The frame, whose query then reports its records, their bytes and the time of the newest one in its progress.

    `newest` is the time of a record.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name

    return frame.observe(
        OBSERVED,
        F.count(F.lit(1)).alias("records"),
        F.coalesce(F.sum(F.octet_length("data")), F.lit(0)).alias("bytes"),
        # As a number: the texts of times in Spark's progress end with whole seconds.
        F.max(F.unix_millis(newest)).alias("newest_ts"),
    )


def _offsets(progress: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The end offset and the latest offset of each source that reports both."""
    for source in progress.get("sources") or []:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        try:
            end = json.loads(end) if isinstance(end, str) else end
            latest = json.loads(latest) if isinstance(latest, str) else latest
        except ValueError:
            continue
        if isinstance(end, dict) and isinstance(latest, dict):
            yield end, latest


def lag_of(progress: dict[str, Any]) -> int | None:
    """Records between the position of the query and the head of its topics; None when its source does not report them."""
    total, known = 0, False
    for end, latest in _offsets(progress):
        try:
            for topic, partitions in latest.items():
                for number, seq in partitions.items():
                    if number != "epoch":
                        total += max(0, int(seq) - int(end.get(topic, {}).get(number, 1)))
            known = True
        except (AttributeError, TypeError, ValueError):
            continue
    return total if known else None


def lag_s_of(progress: dict[str, Any], now_s: float) -> float | None:
    """Seconds since the newest record that the query has taken was written, 0 when there is no newer one; None if unknown."""
    offsets = list(_offsets(progress))
    at_end = bool(offsets) and all([end == latest for end, latest in offsets])
    return lag_seconds(0 if at_end else lag_of(progress), newest_s_of(progress), now_s)


def lag_seconds(lag: int | None, newest_s: float | None, now_s: float) -> float | None:
    """Seconds since the newest record that was taken, 0 without a lag; None if unknown."""
    if lag == 0:
        return 0.0
    return None if newest_s is None else round(max(0.0, now_s - newest_s), 1)


def latency_ms_of(progress: dict[str, Any]) -> float | None:
    """Milliseconds from the write of the newest record of the last batch to the end of that batch; None if unknown."""
    newest, begun = newest_s_of(progress), progress.get("timestamp")
    duration = (progress.get("durationMs") or {}).get("triggerExecution")
    if newest is None or begun is None or duration is None:
        return None
    started = datetime.fromisoformat(str(begun).replace("Z", "+00:00")).timestamp()
    return round(max(0.0, (started - newest) * 1000 + float(duration)), 1)


def observed_bytes(progress: dict[str, Any]) -> int:
    """Bytes of the records of the batch, for queries that observe them."""
    return int(_observed(progress).get("bytes") or 0)


def position_of(progress: dict[str, Any]) -> str | None:
    """The end offset of the last batch, as JSON for `startingOffsets`."""
    for end, _ in _offsets(progress):
        return json.dumps({topic: {n: s for n, s in parts.items() if n != "epoch"} for topic, parts in end.items()})
    return None


def _observed(progress: dict[str, Any]) -> dict[str, Any]:
    found = (progress.get("observedMetrics") or {}).get(OBSERVED)
    if found is None:
        return {}
    return found.asDict() if hasattr(found, "asDict") else dict(found)


def newest_s_of(progress: dict[str, Any]) -> float | None:
    """The time of the newest record of the last batch, in seconds; None if unknown."""
    newest_ts = _observed(progress).get("newest_ts")
    return None if newest_ts is None else int(newest_ts) / 1000


def reason(error: BaseException) -> str:
    """The reason of a failure in one line: the innermost error of this package, without stacks and plans."""
    # An error of Java itself comes as "An error occurred while calling ...", and on the next line ": the error".
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if re.match(r"^topics\.[\w.]+: ", line)]
    if ours:
        return ours[-1].partition(": ")[2][:1000]
    for line in lines:
        found = re.match(r"^(?:\S*(?:Error|Exception)|\[[A-Z_.]+\]):? (.+)$", line)
        if found and "Traceback" not in line:
            return line[:1000]
    return (lines[0] if lines else type(error).__name__)[:1000]
