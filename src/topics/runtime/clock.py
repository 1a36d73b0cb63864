"""The machine's clock."""

import time


class SystemClock:
    """The `model.Clock` that a running server is given."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def perf(self) -> float:
        return time.perf_counter()
