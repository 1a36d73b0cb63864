"""The order that a search of topics found, kept for the pages that follow."""

from collections.abc import Sequence

from msgspec import Struct


class Order(Struct):
    """Names and the order of them: `indexes` of `names`, or None when they are in order already."""

    names: list[str]
    indexes: Sequence[int] | None
    made_at: float

    def page(self, offset: int, limit: int) -> list[str]:
        if self.indexes is None:
            return self.names[offset : offset + limit]
        return [self.names[index] for index in self.indexes[offset : offset + limit]]


# By caller and search.
Orders = dict[tuple[str, ...], Order]
