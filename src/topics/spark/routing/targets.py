"""Targets: what a task must know about each route to make and place its messages."""

import msgspec
from msgspec import Struct

from topics.model.tables.route import ChangePosition


class Target(Struct, frozen=True):
    topic: str
    # "key", "full" or "diff".
    mode: str
    key_columns: tuple[str, ...]
    partitions: int
    version: int
    starts_at: ChangePosition | None

    def routes_change(self, epoch: int, partition: int, seq: int) -> bool:
        """Whether the change was made after the route was created."""
        start = self.starts_at
        return start is None or epoch > start.epoch or (epoch == start.epoch and seq >= start.first(partition))


class Targets(Struct, frozen=True):
    """The targets by number of the route, and the routes of each condition."""

    targets: list[Target]
    conditions: list[list[int]]

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()


decode_targets = msgspec.json.Decoder(Targets).decode
