"""Which topics matter now: the manual priority when set, else how recently somebody looked at the topic."""

from topics.model.config import TopicConfig

# A topic that was just read counts 500; half of that is gone after a minute without a reader.
RECENT = 500
HALF_LIFE_MS = 60_000


def effective_priority(config: TopicConfig, last_read_ts: int | None, now_ms: int) -> int:
    if config.priority is not None:
        return config.priority
    if not config.auto_priority or last_read_ts is None:
        return 0
    age_ms = max(0, now_ms - last_read_ts)
    return round(RECENT * float(0.5 ** (age_ms / HALF_LIFE_MS)))
