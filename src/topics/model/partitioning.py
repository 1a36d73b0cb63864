"""Which partition a key belongs to: the same in the server, in clients and in Spark."""

from xxhash import xxh64_intdigest


def hashed_partition(key: str, partitions: int) -> int:
    """Spark computes the same as `pmod(xxhash64(key), partitions)`."""
    value = xxh64_intdigest(key.encode(), 42)
    return (value - (1 << 64) if value >> 63 else value) % partitions
