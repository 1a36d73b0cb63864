"""`topics serve` on a disk whose syncs take SYNC_SECONDS: `python -m topics.testing.disk.slow_disk`.

For tests that nothing but the first sync is done on the event loop: a server learns from it that the disk is slow.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

SYNC_SECONDS = 0.5


def main() -> int:
    from topics.cli.main import main as run_command

    for name in ("fdatasync", "fsync"):
        setattr(os, name, _slow(getattr(os, name)))
    return run_command(["serve"])


def _slow(sync: Callable[[Any], None]) -> Callable[[Any], None]:
    def wait_and_sync(descriptor: Any) -> None:
        time.sleep(SYNC_SECONDS)
        sync(descriptor)

    return wait_and_sync


if __name__ == "__main__":
    sys.exit(main())
