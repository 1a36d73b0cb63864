"""Routes: which changes of which table become records of a topic, and what of each change.

The text of `filter_expr` and `partition_key_expr` is in normal form: made from a checked tree, with quoted identifiers.
A pipeline executes this text.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Op = Literal["Insert", "Update", "Delete"]
PayloadMode = Literal["Key", "Full", "Diff"]
# Where a route begins: with the changes made after it was created, or with all that the change topic still has.
RouteStart = Literal["Latest", "Earliest"]


class ChangePosition(Struct, frozen=True):
    """A position in one instance of a change topic: for each partition, the seq of the first change behind it."""

    epoch: Annotated[int, Meta(description="Distinguishes the topic from earlier ones of the same name.")]
    seqs: Annotated[tuple[int, ...], Meta(description="By partition, the seq of the first change.")]

    def first(self, partition: int) -> int:
        """The seq of the first change of a partition."""
        return self.seqs[partition] if partition < len(self.seqs) else 1


class Route(Struct, frozen=True):
    """One source of a topic. `version` is that of all routes together when this one was made; it names the route."""

    table: str
    op: Op
    payload_mode: PayloadMode
    version: int
    filter_expr: str | None = None
    partition_key_expr: str | None = None
    key_columns: tuple[str, ...] = ()
    start: RouteStart = "Latest"
    # The first changes that are routed: behind the end of the change topic when the route was created. None for all that the
    # topic has: it did not exist then, the route starts with the earliest, or an earlier version of the server made it.
    starts_at: ChangePosition | None = None

    def same_as(self, other: "Route") -> bool:
        """Whether both route the same changes in the same way, whenever they were created and wherever they begin."""
        ignored = ("version", "start", "starts_at")
        return all(
            [getattr(self, name) == getattr(other, name) for name in self.__struct_fields__ if name not in ignored]
        )
