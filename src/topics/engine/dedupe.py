"""Idempotency keys of a topic: which write a key belonged to, for as long as the topic's window lasts."""

from msgspec import Struct


class KeptWrite(Struct, array_like=True, gc=False, frozen=True):
    """The first write that carried a key."""

    partition: int
    first_seq: int
    count: int
    ts: int


class Dedupe:
    """Keys in the order of their writes, so that the oldest stand first."""

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
        """Let go of the keys whose window is over."""
        stale = []
        for key, write in self._writes.items():
            if now_ms - write.ts < window_ms:
                break
            stale.append(key)
        for key in stale:
            del self._writes[key]

    def all(self) -> list[tuple[str, KeptWrite]]:
        return list(self._writes.items())
