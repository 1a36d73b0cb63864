"""A client that never reads beside a writer that never stops."""

from pathlib import Path
from statistics import median

import pytest

from tests.acceptance.test_watch import stuck_client, watch
from topics.testing.http import Api
from topics.testing.process import ServerProcess

PAYLOAD = b'{"records":[{"data":"%b"}]}' % (b"x" * 100_000)
MEGABYTES = 100
# What the log itself needs goes up and down by some twenty megabytes, so medians are compared; a queue would hold a hundred.
SAMPLES = 5
GROWTH_MOST = 50


def rss_mb(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


@pytest.mark.slow
def test_memory_stays_flat_beside_a_stuck_client(tmp_path: Path) -> None:
    settings = {"TOPICS_SLOW_CONSUMER_TIMEOUT_MS": "600000", "TOPICS_HOT_BYTES": str(8 << 20)}
    with ServerProcess(tmp_path, **settings) as server, Api(server.url) as api:
        api.put("/v0/topics/a", {"cap_bytes": 4 << 20})
        # One that lags on a topic of its own, which loses nothing, and one that falls off the end of a small one.
        for name in ("a", "b"):
            assert api.post(f"/v0/topics/{name}", PAYLOAD).status in (200, 201)
        with (
            stuck_client(api, watch(api, {"topics": {"a": {}}})["stream_url"]),
            stuck_client(api, watch(api, {"topics": {"b": {}}})["stream_url"]),
        ):
            figures = []
            for _ in range(2 * SAMPLES):
                for _ in range(MEGABYTES * 10 // 2 // SAMPLES):
                    assert api.post("/v0/topics/a", PAYLOAD).status == 200
                    assert api.post("/v0/topics/b", PAYLOAD).status == 200
                figures.append(rss_mb(server.pid))
    assert median(figures[SAMPLES:]) - median(figures[:SAMPLES]) < GROWTH_MOST
