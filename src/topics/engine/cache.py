"""A cache with a limit in bytes. The least recently used entry is removed first."""

from collections.abc import Hashable
from typing import Any


class Cache:
    """Values by key, bounded by the sum of their sizes. A value larger than an eighth of the cache is not kept."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._entries: dict[Hashable, tuple[Any, int]] = {}

    def get(self, key: Hashable) -> Any | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        if size * 8 > self.max_bytes:
            return
        entries = self._entries
        previous = entries.pop(key, None)
        if previous is not None:
            self.bytes -= previous[1]
        entries[key] = (value, size)
        self.bytes += size
        while self.bytes > self.max_bytes:
            oldest = next(iter(entries))
            self.bytes -= entries.pop(oldest)[1]

    def discard(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= entry[1]

    def __len__(self) -> int:
        return len(self._entries)
