"""Routes: which changes of which table become records of a topic, and what of each change.

The text of `filter_expr` and `partition_key_expr` is in normal form: made from a checked tree, with quoted identifiers.
What stands here is what runs.
"""

from typing import Literal

from msgspec import Struct

Op = Literal["Insert", "Update", "Delete"]
PayloadMode = Literal["Key", "Full", "Diff"]


class Route(Struct, frozen=True):
    """One source of a topic. `version` is that of all routes together when this one was made; it names the route."""

    table: str
    op: Op
    payload_mode: PayloadMode
    version: int
    filter_expr: str | None = None
    partition_key_expr: str | None = None
    key_columns: tuple[str, ...] = ()

    def same_as(self, other: "Route") -> bool:
        """Whether both say the same, whenever they were made."""
        return all(
            [getattr(self, name) == getattr(other, name) for name in self.__struct_fields__ if name != "version"]
        )
