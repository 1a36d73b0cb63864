"""Which topics matter now: the manual priority when set, else how recently the topic was read.

Among writes that wait, waiting makes up for priority: every millisecond counts AGEING_PER_MS points, so nothing waits
for ever behind what is more important. All of them age alike, so the order of two never changes and can be kept.
"""

from topics.model.config import TopicConfig

# A topic that was just read counts 500; half of that is gone after a minute without a reader.
RECENT = 500
HALF_LIFE_MS = 60_000
# The least important topic (-1000) overtakes the most important one (1000) that comes a second later.
AGEING_PER_MS = 2


def effective_priority(config: TopicConfig, last_read_ts: int | None, now_ms: int) -> int:
    if config.priority is not None:
        return config.priority
    if not config.auto_priority or last_read_ts is None:
        return 0
    age_ms = max(0, now_ms - last_read_ts)
    return round(RECENT * float(0.5 ** (age_ms / HALF_LIFE_MS)))


def rank(priority: int, since_ms: float) -> float:
    """Sort key of a write that waits since `since_ms`: the smallest is admitted first, now and at any later time."""
    return AGEING_PER_MS * since_ms - priority
