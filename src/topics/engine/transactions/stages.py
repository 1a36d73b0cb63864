"""The stages of a server, and the fences of its producers.

A stage holds checked records for one topic, not readable before a commit names it. A fence is the last batch of a producer.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from topics.model.facts import Fenced, Staged
from topics.model.records.page import Page


class Stages:
    """All stages and fences of a server."""

    def __init__(self) -> None:
        self.stages: dict[str, Staged] = {}
        # When each stage was made or renewed, in that order. Not in the log: a restart renews all stages.
        self.renewed_ms: dict[str, int] = {}
        self.by_producer: dict[str, set[str]] = {}
        # Stages made for ephemeral topics: they are in no log and go into no snapshot.
        self.unlogged: set[str] = set()
        self.fences: dict[str, Fenced] = {}
        self.bytes = 0
        self.commits_total = 0
        self.repeats_total = 0
        self.expired_total = 0

    def keep(self, stage: Staged) -> None:
        if stage.stage_id not in self.stages:
            self.stages[stage.stage_id] = stage
            self.renewed_ms[stage.stage_id] = stage.ts
            if stage.producer is not None:
                self.by_producer.setdefault(stage.producer, set()).add(stage.stage_id)
            self.bytes += stage.size

    def drop(self, stage_id: str) -> Staged | None:
        stage = self.stages.pop(stage_id, None)
        self.unlogged.discard(stage_id)
        if stage is not None:
            del self.renewed_ms[stage_id]
            if stage.producer is not None:
                others = self.by_producer[stage.producer]
                others.discard(stage_id)
                if not others:
                    del self.by_producer[stage.producer]
            self.bytes -= stage.size
        return stage

    def renew(self, stage_ids: Iterable[str], now_ms: int) -> int:
        """Let these stages expire a whole TTL from now; returns how many of them there are."""
        renewed = 0
        for stage_id in stage_ids:
            if self.renewed_ms.pop(stage_id, None) is not None:
                # Put at the end: `expire_stages` reads them in the order of their times.
                self.renewed_ms[stage_id] = now_ms
                renewed += 1
        return renewed

    def fence(self, fact: Fenced) -> None:
        current = self.fences.get(fact.producer)
        if current is None or fact.batch >= current.batch:
            self.fences[fact.producer] = fact

    # What a snapshot keeps. Taken before the topics: a stage that is applied in between is then still there when the
    # fact that applied it is replayed.

    def capture(self) -> Callable[[], bytes]:
        # Encoded later, in a thread: stages may hold hundreds of megabytes, and encoding them would stall the loop. Their pages
        # never change.
        logged = [stage for stage_id, stage in self.stages.items() if stage_id not in self.unlogged]
        image = _Image(logged, list(self.fences.values()))
        return lambda: msgspec.msgpack.encode(image)

    def restore(self, body: bytes) -> None:
        image = _decode_image(body)
        for stage in image.stages:
            self.keep(stage)
        for fence in image.fences:
            self.fence(fence)


class _Image(Struct):
    stages: list[Staged]
    fences: list[Fenced]


_decode_image = msgspec.msgpack.Decoder(_Image).decode


def numbered(page: Page, first_seq: int, ts: int) -> Page:
    """The page with the seqs and the time that its commit assigns."""
    return Page(first_seq, page.count, ts, page.data, page.metas, page.nodes, page.tags, page.size)
