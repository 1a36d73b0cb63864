"""Settings of the data directory."""

from msgspec import Struct


class StorageSettings(Struct, frozen=True):
    """Settings of the data directory. Sizes in bytes."""

    wal_file_bytes: int = 64 << 20
    segment_bytes: int = 16 << 20
    hot_bytes: int = 64 << 20
    cache_bytes: int = 32 << 20
    checkpoint_bytes: int = 64 << 20
    sync_interval_ms: int = 1000
    # A larger write to the log runs in a thread: 2 MiB take 1 to 2 ms, 64 MiB more than 50.
    max_loop_write_bytes: int = 2 << 20
    # How many records may be readable without being synced; also how many seqs a power cut skips in a disk topic.
    margin: int = 1 << 20
    # Disk space kept for deletes, in addition to what the next snapshot needs on a full disk; 0 for none.
    reserve_bytes: int = 16 << 20
    # How often all topics are visited for expired records; 0 for never.
    retention_interval_ms: int = 5000
    # Smaller segments get no files of their own: they are packed with others, or stay hot and go into the snapshot.
    min_segment_bytes: int = 1 << 20
    # How large packs become, and how many small packs, or packed segments of a partition, are merged: see `packer.py`.
    pack_bytes: int = 16 << 20
    pack_merge_count: int = 8
