"""Stage renewal: keep the stages of a running write from expiring.

Each task renews the stages of the whole write, so that tasks which finished early keep theirs while the last one runs. When
no task runs any more, the driver has the stage TTL of the server to commit.
"""

import threading
from typing import Any

from topics.model.errors import TopicsError
from topics.spark.connector.options import ServerOptions

# Delay of the first renewal, whose reply has the TTL of the server. Shorter tasks send none.
FIRST_RENEWAL_S = 1.0
# Four renewals in a TTL: some of them may fail.
RENEWALS_PER_TTL = 4


class StageRenewal:
    """Renew the stages of a producer from a thread while the block runs."""

    def __init__(self, server: ServerOptions, producer: str) -> None:
        self._server = server
        self._producer = producer
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topics-stage-renewal", daemon=True)

    def __enter__(self) -> "StageRenewal":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        # Not joined: it may be waiting for the server, and a renewal too many does no harm.
        self._ended.set()

    def _run(self) -> None:
        interval_s = FIRST_RENEWAL_S
        while not self._ended.wait(interval_s):
            try:
                with self._server.client() as client:
                    interval_s = client.renew_stages(self._producer).ttl_ms / 1000 / RENEWALS_PER_TTL
            except TopicsError:
                # The next one may succeed; if stages expire, the commit fails and names them.
                pass
