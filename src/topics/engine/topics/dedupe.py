"""Idempotency keys of a topic: the window is enforced, kept and restored here.

find               an append asks whether its key was used within the window (`broker/topics/append.py`)
keep               applying an append remembers its key, live and in recovery (`broker/log/apply.py`)
image, restore     a snapshot holds the keys whose window is not over (`broker/durability/snapshot_image.py`)
"""

from topics.model.images import KeptWrite


class Dedupe:
    """Keys in the order of their writes, oldest first."""

    def __init__(self) -> None:
        self._writes: dict[str, KeptWrite] = {}

    def __len__(self) -> int:
        return len(self._writes)

    def find(self, key: str, now_ms: int, window_ms: int) -> KeptWrite | None:
        write = self._writes.get(key)
        return write if write is not None and now_ms - write.ts < window_ms else None

    def keep(self, key: str, write: KeptWrite) -> None:
        # Taken out first: a key used again after its window must move to the end of the order.
        self._writes.pop(key, None)
        self._writes[key] = write

    def expire(self, now_ms: int, window_ms: int) -> None:
        """Forget the keys whose window is over."""
        stale = []
        for key, write in self._writes.items():
            if now_ms - write.ts < window_ms:
                break
            stale.append(key)
        for key in stale:
            del self._writes[key]

    def all(self) -> list[tuple[str, KeptWrite]]:
        return list(self._writes.items())

    def image(self, now_ms: int, window_ms: int) -> list[tuple[str, KeptWrite]]:
        """The keys for a snapshot, oldest first."""
        self.expire(now_ms, window_ms)
        return self.all()

    def restore(self, image: list[tuple[str, KeptWrite]]) -> None:
        """Load what `image` returned."""
        self._writes = dict(image)
