"""Positions in time, as people write them: `-1h`, `2026-11-01`, milliseconds."""

import re
import time
from datetime import UTC, datetime

from topics.model.errors import InvalidRequest

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-(\d+)(ms|s|m|h|d|w)")


def parse_time_ms(text: str, now_ms: int | None = None) -> int:
    """Unix milliseconds of a time: `-90s`, `-1h`, `-7d`, an ISO 8601 date or time (UTC without an offset).

    Raises InvalidRequest for anything else.

    Example:

        assert parse_time_ms("-1h", now_ms=7_200_000) == 3_600_000
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return max(0, now - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidRequest(f"{text!r} is not a time; it looks like -1h, 2026-11-01 or 2026-11-01T12:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
