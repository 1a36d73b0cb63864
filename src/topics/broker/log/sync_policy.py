"""When a commit is synced, and where the sync runs. Pure: counters in, decisions out.

must_sync     whether a write waits for a sync before it is applied
SyncPolicy    whether a sync runs on the loop or in the thread, whether a write waits for more writers, and whether
              zeros are written ahead of the frames
"""

from topics.engine.partitions.partition import Partition
from topics.model.config import TopicConfig

# A write waits for more writers when at least MIN_BATCH_WRITERS shared the last one: for one turn, and with a sync for
# up to MAX_BATCH_TURNS turns, as long as each turn brings another writer.
MIN_BATCH_WRITERS = 4
MAX_BATCH_TURNS = 8
# This many fast syncs in a row move syncs to the loop. After a slow one it takes the larger number.
MIN_FAST_SYNCS = 16
MIN_FAST_SYNCS_AFTER_SLOW = 1000
FAST_SECONDS = 0.001
SLOW_SECONDS = 0.005
# A sync of more data, or beside other work on the disk, never runs on the loop: it took 5 to 80 ms.
MAX_LOOP_SYNC_BYTES = 1 << 20
# This many syncs in a row that a request waits for, each of at most this many bytes, make writing zeros ahead worthwhile.
MIN_SMALL_SYNCS = 8
MAX_SMALL_SYNC_BYTES = 64 << 10


def must_sync(config: TopicConfig, partition: Partition) -> bool:
    """Whether records of the partition are applied only after a sync.

    The first record of a partition is synced whatever the class. So a partition that recovery finds empty has never
    assigned a seq, and none is assigned twice.
    """
    return config.durability == "fsync" or not partition.head_seq


class SyncPolicy:
    """Decides from the last writes and syncs."""

    __slots__ = ("_small_syncs", "_turns_waited", "_waiters_seen", "_writers", "fast_syncs")

    def __init__(self) -> None:
        # How many of the last light syncs were fast; negative after a slow one.
        self.fast_syncs = 0
        # Requests that shared the last write. For the next write: how many wait for a sync, and how many turns it waited.
        self._writers = 0
        self._waiters_seen = 0
        self._turns_waited = 0
        self._small_syncs = 0

    @property
    def syncs_are_fast(self) -> bool:
        return self.fast_syncs >= MIN_FAST_SYNCS

    # Waiting for more writers

    def delays_write(self) -> bool:
        """Whether a write without a sync waits for one more turn. Asked once for each write.

        16 writers of single records: 12.5 share a write instead of 8.5, and each costs 4 to 6 % less.
        """
        if self._writers < MIN_BATCH_WRITERS:
            return False
        self._turns_waited = 1
        return True

    def delays_sync(self, waiters: int) -> bool:
        """Whether a write with a sync waits for one more turn. 64 writers: 50 to 55 share a sync, 32 without."""
        if self._writers < MIN_BATCH_WRITERS or self._turns_waited >= MAX_BATCH_TURNS:
            return False
        if waiters <= self._waiters_seen and self._turns_waited:
            return False
        self._waiters_seen = waiters
        self._turns_waited += 1
        return True

    def start_write(self) -> None:
        self._turns_waited = self._waiters_seen = 0

    def count_write(self, writers: int) -> None:
        self._writers = writers

    # Syncs

    def start_sync(self, size: int, *, awaited: bool) -> bool:
        """Count a sync of `size` bytes that is about to start. Returns whether zeros are to be written ahead."""
        self._small_syncs = self._small_syncs + 1 if awaited and size <= MAX_SMALL_SYNC_BYTES else 0
        return self._small_syncs >= MIN_SMALL_SYNCS

    def is_light(self, size: int, disk_jobs: int) -> bool:
        """Whether the sync is small and has the disk to itself."""
        return not disk_jobs and size <= MAX_LOOP_SYNC_BYTES

    def count_sync(self, seconds: float, *, wrote_zeros: bool) -> None:
        """Count a light sync. One that wrote zeros as well and took a little longer proves nothing."""
        if seconds < FAST_SECONDS:
            self.fast_syncs += 1
        elif seconds >= SLOW_SECONDS:
            self.fast_syncs = MIN_FAST_SYNCS - MIN_FAST_SYNCS_AFTER_SLOW
        elif not wrote_zeros:
            self.fast_syncs = 0
