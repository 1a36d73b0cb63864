"""What needs attention: failures of the server, a full disk, dead letters, lagging groups, stopped pipelines, blocked routers.

All topics are looked at when a client asks, in slices, and the result is shared by all who ask within MAX_AGE_MS: with 100,000
topics without groups a look takes about 30 ms of the loop's time in steps of less than a millisecond.
"""

import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from topics.broker.broker import Broker, Topic
from topics.model.steps import Steps
from topics.server.auth.authorization import Caller
from topics.server.lag import total_lag
from topics.server.ops.monitoring.process_metrics import free_bytes, size_bytes
from topics.server.tables.pipeline_registry import Pipelines

log = logging.getLogger("topics.server")

MAX_AGE_MS = 2_000
MAX_WARNINGS_SHOWN = 100
MAX_WARNINGS_FOUND = 1_000
TOPICS_PER_STEP = 500
# A group is lagging when its next record has waited this long.
LAGGING_SECONDS = 30.0
LOW_DISK_SHARE = 0.1
CRITICAL_DISK_SHARE = 0.03
SEVERITIES = ("critical", "warning", "info")
FIELDS = ("kind", "severity", "message", "topic", "group", "pipeline", "router")


class Warned(Struct):
    """A warning. `names` are those that a caller must be allowed to touch to see it."""

    kind: str
    severity: str
    message: str
    names: tuple[str, ...] = ()
    topic: str | None = None
    group: str | None = None
    pipeline: str | None = None
    router: str | None = None


class Attention:
    """The warnings of one server."""

    def __init__(self, data_dir: str, pipelines: Pipelines) -> None:
        self._data_dir = data_dir
        self._pipelines = pipelines
        self._warnings: list[Warned] = []
        self._found_at: float | None = None
        self._waiting: list[Callable[[], None]] = []

    def refresh(self, broker: Broker, done: Callable[[], None]) -> None:
        """Call `done` when the warnings are recent."""
        now = broker.runtime.perf()
        if self._found_at is not None and not self._waiting and (now - self._found_at) * 1000 < MAX_AGE_MS:
            done()
            return
        self._waiting.append(done)
        if len(self._waiting) > 1:
            return

        def finished(found: list[Warned] | None, error: BaseException | None) -> None:
            if error is not None:
                log.error("exception while looking for warnings; the last ones are shown", exc_info=error)
            self._warnings = found if found is not None else self._warnings
            self._found_at = broker.runtime.perf()
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each()

        broker.slices.run(self._look(broker), finished)

    def shown_to(self, caller: Caller) -> list[dict[str, Any]]:
        """The warnings whose names the caller may touch, the most severe first."""
        shown = [each for each in self._warnings if all([caller.may_touch(name) for name in each.names])]
        return [
            {name: value for name in FIELDS if (value := getattr(each, name)) is not None}
            for each in shown[:MAX_WARNINGS_SHOWN]
        ]

    def _look(self, broker: Broker) -> Steps[list[Warned]]:
        found = [*self._of_server(broker), *self._of_pipelines(broker), *_of_routers(broker)]
        for index, topic in enumerate(list(broker.state.topics.values())):
            if index % TOPICS_PER_STEP == TOPICS_PER_STEP - 1:
                yield
            if len(found) >= MAX_WARNINGS_FOUND:
                break
            if topic.config.dead_letter is not None:
                found += _of_queue(broker, topic, topic.config.dead_letter)
            if topic.groups:
                found += _of_groups(broker, topic)
        return sorted(found, key=lambda each: SEVERITIES.index(each.severity))

    def _of_server(self, broker: Broker) -> list[Warned]:
        conditions = broker.health.conditions[:MAX_WARNINGS_SHOWN]
        found = [Warned("degraded", "critical", f"{each.kind}: {each.reason}") for each in conditions]
        size, free = size_bytes(self._data_dir), free_bytes(self._data_dir)
        if size and free < size * LOW_DISK_SHARE:
            severity = "critical" if free < size * CRITICAL_DISK_SHARE else "warning"
            found.append(Warned("disk", severity, f"{free / size:.0%} of the disk is free"))
        return found

    def _of_pipelines(self, broker: Broker) -> list[Warned]:
        found = []
        now_ms = broker.runtime.now_ms()
        for pipeline in self._pipelines.by_name.values():
            state = pipeline.state(now_ms)
            failed = [job.name for job in pipeline.report.jobs if job.state == "failed"]
            if state in ("stopped", "lost") or failed:
                what = f"has failed jobs: {', '.join(failed[:3])}" if failed else f"is {state}"
                severity = "warning" if state == "stopped" else "critical"
                message = f"Pipeline {pipeline.name} {what}"
                found.append(Warned("pipeline", severity, message, (pipeline.name,), pipeline=pipeline.name))
        return found


def _of_routers(broker: Broker) -> list[Warned]:
    found = []
    for router in broker.state.routers.by_name.values():
        state = broker.forwarder.state_of(router)
        source, dest = broker.state.by_id.get(router.source_id), broker.state.by_id.get(router.dest_id)
        if state in ("blocked", "backoff") and source is not None and dest is not None:
            message = f"Router {router.name} is in state {state}: {dest.name} cannot be written"
            names = (router.name, source.name, dest.name)
            found.append(Warned("router", "warning", message, names, router=router.name))
    return found


def _of_queue(broker: Broker, queue: Topic, letters: str) -> list[Warned]:
    dead = broker.state.topics.get(letters)
    if dead is None or not dead.count:
        return []
    message = f"{dead.count:,} dead letters of {queue.name} in {letters}"
    return [Warned("dead_letters", "warning", message, (queue.name, letters), topic=queue.name)]


def _of_groups(broker: Broker, topic: Topic) -> list[Warned]:
    found = []
    for group in topic.groups.values():
        lag = total_lag(broker, topic, group)
        if lag.seconds >= LAGGING_SECONDS:
            message = f"Group {group.name} of {topic.name} is {lag.records:,} records and {lag.seconds:,.0f} s behind"
            found.append(Warned("lagging_group", "warning", message, (topic.name,), topic=topic.name, group=group.name))
    return found
