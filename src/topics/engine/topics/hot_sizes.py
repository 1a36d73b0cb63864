"""How many bytes of each partition are hot: what is sealed or packed first."""

from collections.abc import Callable

from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic


class HotSizes:
    """Measures what is hot, some topics per turn: partitions by the bit length of their hot bytes."""

    def __init__(self, by_id: dict[int, Topic]) -> None:
        self._by_id = by_id
        # The next one last.
        self._left = list(reversed(by_id))
        self._by_bits: dict[int, list[Partition]] = {}
        self._bytes_by_bits: dict[int, int] = {}

    def run(self, perf: Callable[[], float], seconds: float) -> bool:
        """Measure for this long. True when all topics are measured."""
        until = perf() + seconds
        while self._left:
            if perf() > until:
                return False
            topic = self._by_id.get(self._left.pop())
            if topic is not None and topic.config.durability != "ephemeral":
                for partition in topic.partitions:
                    self._add(partition)
        return True

    def _add(self, partition: Partition) -> None:
        partition.drop_dead_hot()
        size = partition.hot_bytes
        if size:
            bits = size.bit_length()
            self._by_bits.setdefault(bits, []).append(partition)
            self._bytes_by_bits[bits] = self._bytes_by_bits.get(bits, 0) + size

    @property
    def bytes(self) -> int:
        return sum(self._bytes_by_bits.values())

    def at_least(self, size: int) -> list[Partition]:
        """The partitions with this many hot bytes, and perhaps some with fewer."""
        chosen = [bits for bits in self._by_bits if bits >= size.bit_length()]
        return [each for bits in chosen for each in self._by_bits[bits]]

    def largest(self, wanted: int) -> list[Partition]:
        """Partitions that hold about `wanted` bytes together, the larger ones first."""
        chosen: list[Partition] = []
        for bits in sorted(self._by_bits, reverse=True):
            partitions, size = self._by_bits[bits], self._bytes_by_bits[bits]
            if size >= wanted:
                return chosen + partitions[: -(-wanted * len(partitions) // size)]
            chosen += partitions
            wanted -= size
        return chosen
