"""The jobs of a queue by state, as operators see them."""

from typing import Any

from topics.broker.broker import Broker, Topic
from topics.server.auth.authorization import Caller


def job_counts(broker: Broker, caller: Caller, queue: Topic) -> dict[str, Any]:
    """Counts of all partitions. Dead letters are counted for callers that may touch their topic."""
    stats = broker.queues.stats(queue)
    letters = queue.config.dead_letter
    dead = broker.state.topics.get(letters) if letters is not None and caller.may_touch(letters) else None
    oldest = [partition.oldest_ts for partition in queue.partitions if partition.count]
    leases = [partition.leases for partition in queue.partitions]
    return {
        "ready": stats.ready,
        "delayed": sum([each.delayed for each in leases if each is not None]),
        "in_flight": stats.in_flight,
        "dead_lettered": stats.dead_lettered,
        "dead_letters": 0 if dead is None else dead.count,
        "oldest_age_ms": max(0, broker.runtime.now_ms() - min(oldest)) if oldest else None,
    }
