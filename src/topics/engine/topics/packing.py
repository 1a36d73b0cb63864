"""What is packed: sizes of packs, and which packed segments are merged."""

from collections.abc import Sequence

from msgspec import Struct


class PackLimits(Struct, frozen=True):
    """A pack is written when it has `pack_bytes`; below a quarter of that it is small and merged with other small ones.

    No entry grows beyond `entry_bytes` by merging: one record of it is read by reading all of it. `merge_count` packed
    segments of a partition, or packs, of about one size are merged.
    """

    pack_bytes: int
    entry_bytes: int
    merge_count: int


class PackUse(Struct):
    """How much of a pack is in use. Sizes in bytes."""

    size: int
    entries: int = 0
    live_bytes: int = 0
    # A live entry cannot be read, so it cannot be copied either.
    is_damaged: bool = False


def merge_count(sizes: Sequence[int], size: int, limits: PackLimits) -> int:
    """How many of the packed segments before a hot one of `size` bytes are merged with it; `sizes` has the nearest first.

    Those of about its size or smaller, if there are `merge_count` - 1 of them; then those of about the size of the result, and so on.
    """
    chosen = 0
    while True:
        stop, total = chosen, size
        while stop < len(sizes) and _tier(sizes[stop]) <= _tier(size):
            total += sizes[stop]
            stop += 1
        if stop - chosen < limits.merge_count - 1 or total > limits.entry_bytes:
            return chosen
        chosen, size = stop, total


def _tier(size: int) -> int:
    """Sizes of one tier differ by a factor of 8 at most; below 2 KiB all are alike."""
    return max(0, size.bit_length() - 9) // 3


SealKey = tuple[int, int, int]
