"""The partition of a key is the same in the server, in clients and in Spark."""

import pytest

from topics.model.partitioning import hashed_partition


@pytest.mark.parametrize("key", ["", "a", "user-42", "é", "x" * 100])
def test_a_key_has_one_partition_within_the_topic(key: str) -> None:
    for partitions in (1, 3, 16):
        partition = hashed_partition(key, partitions)
        assert 0 <= partition < partitions
        assert hashed_partition(key, partitions) == partition
    assert hashed_partition(key, 1) == 0


def test_keys_are_spread_over_all_partitions() -> None:
    counts = [0] * 8
    for number in range(8000):
        counts[hashed_partition(f"key-{number}", 8)] += 1
    assert min(counts) > 800
