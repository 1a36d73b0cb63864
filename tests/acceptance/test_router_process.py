"""A process that is killed while its routers forward: readers of the dests go on where they were, and miss nothing."""

import threading
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_consume_process import Process
from tests.acceptance.topic import TopicApi, succeeded
from topics.testing.http import Api

DESTS = {"disk": "disk", "fsync": "fsync", "far": "disk"}
ROUNDS = 3


class Reader(threading.Thread):
    """Follows a dest until the server is gone, and keeps all it sees."""

    def __init__(self, url: str, name: str, seen: dict[int, Any]) -> None:
        super().__init__(daemon=True)
        self.url, self.topic, self.seen = url, name, seen

    def run(self) -> None:
        with Api(self.url) as api:
            cursor = max(self.seen, default=0)
            while True:
                try:
                    found = TopicApi(api, self.topic).diff(cursor, wait_ms=1000, limit=1000)
                except (OSError, HTTPException, AssertionError):
                    return
                self.seen.update({record["$seq"]: record for record in found["records"]})
                cursor = found["next_from_seq"]


def write(url: str, start: int, acked: list[int], enough: threading.Event) -> None:
    with Api(url) as api:
        number = start
        while True:
            records = [{"data": f"{each}:{'x' * 100}"} for each in range(number, number + 20)]
            try:
                if api.post("/v0/topics/s", {"records": records}).status not in (200, 201):
                    return
            except (OSError, HTTPException):
                return
            acked += range(number, number + 20)
            number += 20
            if number > start + 800:
                enough.set()


def test_copies_survive_kill_9_with_their_seqs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICS_SEGMENT_BYTES", "40000")
    monkeypatch.setenv("TOPICS_CHECKPOINT_BYTES", "150000")
    process = Process(tmp_path)
    seen: dict[str, dict[int, Any]] = {name: {} for name in DESTS}
    acked: list[int] = []
    try:
        for name, durability in DESTS.items():
            TopicApi(process.api, name).configure(durability=durability)
        for source, dest in (("s", "disk"), ("s", "fsync"), ("disk", "far")):
            succeeded(process.api.put(f"/v0/routers/{source}-{dest}", {"source": source, "dest": dest}))
        for turn in range(ROUNDS):
            url = process.api.url
            enough = threading.Event()
            readers = [Reader(url, name, seen[name]) for name in DESTS]
            writer = threading.Thread(target=write, args=(url, turn * 1_000_000, acked, enough))
            for thread in (*readers, writer):
                thread.start()
            assert enough.wait(60)
            process.kill()
            for thread in (*readers, writer):
                thread.join(60)
            process = Process(tmp_path)
            for name, before in seen.items():
                now = {record["$seq"]: record for record in TopicApi(process.api, name).read_all(limit=1000)}
                assert {seq: now.get(seq) for seq in before} == before, name
        for source, dest in (("s", "disk"), ("s", "fsync"), ("disk", "far")):
            for _ in range(10_000):
                if not succeeded(process.api.get(f"/v0/routers/{source}-{dest}"))["lag"]:
                    break
        source = [record["data"] for record in TopicApi(process.api, "s").read_all(limit=1000)]
        assert {int(data.partition(":")[0]) for data in source} >= set(acked)
        for name in DESTS:
            copies = [record["data"] for record in TopicApi(process.api, name).read_all(limit=1000)]
            assert copies == source, name
            assert len(seen[name]) > 500
    finally:
        process.kill()
