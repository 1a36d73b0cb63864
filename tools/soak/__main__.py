"""`make soak`: mixed load for 30 minutes; writes docs/data/soak.json and docs/RELIABILITY.md.

In the first half the server is restarted, killed and gets full disks. In the second half it runs undisturbed, and the
slopes of memory, descriptors, threads and p99 are measured.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.reliability import write_page
from tools.soak.actors import Actor, GroupConsumer, JobProducer, LogWriter, Probe, Unavailable, Watcher, Worker, call
from tools.soak.checker import check_log, check_queue, check_router
from topics.testing.http import Api
from topics.testing.process import ServerProcess

ROOT = Path(__file__).resolve().parent.parent.parent
SUMMARY = ROOT / "docs" / "data" / "soak.json"
DISK_BYTES = 3 << 30
SATURATION_SECONDS = 3.0
LOAD_SHARE = 0.6
SAMPLE_SECONDS = 2.0
# Of the undisturbed half, before slopes are measured.
WARM_UP_SHARE = 0.3
EPISODES = ("restart", "kill", "full disk")
SETTINGS = {"TOPICS_RESERVE_BYTES": str(16 << 20)}


@dataclass
class Samples:
    """Measurements of the server process over time."""

    seconds: list[float] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def take(self, pid: int, times_ms: list[float]) -> None:
        status = dict([line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()])
        now = {
            "resident memory, MB": int(status["VmRSS"].split()[0]) / 1024,
            "descriptors": float(len(os.listdir(f"/proc/{pid}/fd"))),
            "threads": float(status["Threads"]),
            "p99 of a single append, ms": statistics.quantiles(times_ms, n=100)[98] if len(times_ms) > 2 else 0.0,
        }
        self.seconds.append(time.monotonic())
        for name, value in now.items():
            self.figures.setdefault(name, []).append(value)

    def slopes(self) -> dict[str, dict[str, float]]:
        """First and last tenth, and the slope per hour of a straight line through the samples after the warm-up."""
        skipped = int(len(self.seconds) * WARM_UP_SHARE)
        seconds = self.seconds[skipped:]
        found = {}
        for name, values in self.figures.items():
            kept = values[skipped:]
            tenth = max(1, len(kept) // 10)
            slope = statistics.linear_regression(seconds, kept).slope * 3600 if len(kept) > 2 else 0.0
            found[name] = {
                "first": statistics.median(kept[:tenth]),
                "last": statistics.median(kept[-tenth:]),
                "slope_per_hour": slope,
            }
        return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default 30)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="repeats the choices of a run")
    parser.add_argument("--summary", type=Path, default=SUMMARY, help="where the result is written, as JSON")
    parser.add_argument("--no-documents", action="store_true", help="print the result and write nothing")
    arguments = parser.parse_args(argv)
    with small_disk() as (directory, limited):
        summary = soak(directory, limited, arguments.minutes, arguments.seed)
    text = json.dumps(summary, indent=1) + "\n"
    print(text)
    if not arguments.no_documents:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(text, encoding="utf-8")
        write_page()
    return 1 if summary["broken"] else 0


@contextlib.contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A directory on a small filesystem of its own if this is root; otherwise a plain one, without full-disk episodes."""
    directory = Path(tempfile.mkdtemp(prefix="topics-soak-"))
    limited = os.geteuid() == 0
    if limited:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(directory)]
        limited = subprocess.run(command, check=False).returncode == 0
    if not limited:
        print("soak: no filesystem of its own can be mounted; full-disk episodes are left out", file=sys.stderr)
    try:
        yield directory, limited
    finally:
        if limited:
            subprocess.run(["umount", str(directory)], check=False)
        shutil.rmtree(directory, ignore_errors=True)


def soak(directory: Path, limited: bool, minutes: float, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    runtime = directory / "runtime"
    runtime.mkdir()
    with ServerProcess(directory / "server", **SETTINGS, TOPICS_RUNTIME_DIR=str(runtime)) as server:
        with Api(server.url) as api:
            call(api, "PUT", "/v0/topics/queue", {"type": "queue", "lease_ms": 5000})
            call(api, "PUT", "/v0/topics/disk", {})
            call(api, "PUT", "/v0/routers/soak", {"source": "disk", "dest": "copy"})
        actors = _actors(server.url, chance)
        for actor in actors:
            actor.start()
        time.sleep(SATURATION_SECONDS)
        for actor in actors:
            actor.rate = max(1.0, LOAD_SHARE * actor.operations / SATURATION_SECONDS)
        print(f"load: {sum([actor.rate for actor in actors]):,.0f} operations/s", flush=True)
        half = minutes * 30
        episodes = _disturb(server, directory, limited, half, chance)
        samples = _observe(server, actors, half)
        for actor in actors:
            actor.stop()
        for actor in actors:
            actor.join(60)
        broken = [actor.failure for actor in actors if actor.failure is not None]
        broken += _final_checks(server, actors)
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "minutes": minutes,
        "seed": seed,
        "counts": _counts(actors),
        "episodes": episodes,
        "slopes": samples.slopes(),
        "broken": broken,
    }


def _actors(url: str, chance: random.Random) -> list[Actor]:
    def seed() -> int:
        return chance.getrandbits(64)

    return [
        LogWriter(url, seed(), "disk", {}),
        LogWriter(url, seed(), "fsync", {"durability": "fsync"}),
        LogWriter(url, seed(), "memory", {"durability": "memory", "cap_records": 20_000}),
        LogWriter(url, seed(), "ephemeral", {"durability": "ephemeral", "cap_records": 20_000}),
        LogWriter(url, seed(), "ttl", {"ttl_ms": 20_000}),
        JobProducer(url, seed(), "queue"),
        Worker(url, seed(), "queue", "w1"),
        Worker(url, seed(), "queue", "w2"),
        GroupConsumer(url, seed(), "fsync"),
        Watcher(url, seed(), "disk", slow=False),
        Watcher(url, seed(), "fsync", slow=False),
        Watcher(url, seed(), "disk", slow=True),
        Probe(url, seed()),
    ]


def _disturb(
    server: ServerProcess, directory: Path, limited: bool, seconds: float, chance: random.Random
) -> dict[str, int]:
    """Restart, kill and fill the disk in turn, about twice a minute at most. Returns how often each was done."""
    done = dict.fromkeys(EPISODES, 0)
    kinds = [kind for kind in EPISODES if limited or kind != "full disk"]
    end = time.monotonic() + seconds
    pause = min(30.0, seconds / 8)
    while time.monotonic() + pause < end:
        time.sleep(pause * chance.uniform(0.5, 1.0))
        kind = kinds[sum(done.values()) % len(kinds)]
        match kind:
            case "restart":
                server.stop()
                server.start()
            case "kill":
                server.kill()
                server.start()
            case "full disk":
                _fill_disk(directory / "ballast")
                time.sleep(min(5.0, pause))
                (directory / "ballast").unlink()
        done[kind] += 1
        print(f"episode: {kind}", flush=True)
    time.sleep(max(0.0, end - time.monotonic()))
    return done


def _fill_disk(path: Path) -> None:
    block = bytes(1 << 20)
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(block)


def _observe(server: ServerProcess, actors: list[Actor], seconds: float) -> Samples:
    samples = Samples()
    (probe,) = [actor for actor in actors if isinstance(actor, Probe)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        probe.times_ms.clear()
        time.sleep(min(SAMPLE_SECONDS, max(0.1, seconds / 20)))
        samples.take(server.pid, list(probe.times_ms))
    return samples


def _final_checks(server: ServerProcess, actors: list[Actor]) -> list[str]:
    """Check everything twice: on the running server, and after a kill and a start."""
    problems = []
    for moment in ("at the end", "after a last kill"):
        if moment != "at the end":
            server.kill()
            server.start()
        with Api(server.url) as api:
            found = []
            for writer in actors:
                if isinstance(writer, LogWriter):
                    may_lose = writer.topic in ("memory", "ephemeral", "ttl")
                    found += check_log(api, writer, may_lose=may_lose)
            (producer,) = [actor for actor in actors if isinstance(actor, JobProducer)]
            found += check_queue(api, producer, [actor for actor in actors if isinstance(actor, Worker)])
            with contextlib.suppress(Unavailable):
                found += check_router(api, "disk", "copy")
            problems += [f"{moment}: {each}" for each in found]
    return problems


def _counts(actors: list[Actor]) -> dict[str, int]:
    writers = [actor for actor in actors if isinstance(actor, LogWriter)]
    return {
        "acknowledged_records": sum([len(writer.acknowledged) for writer in writers]),
        "deletes": sum([len(writer.deleted) for writer in writers]),
        "finished_jobs": sum([len(actor.finished) for actor in actors if isinstance(actor, Worker)]),
        "records_watched": sum([actor.operations for actor in actors if isinstance(actor, Watcher)]),
        "operations": sum([actor.operations for actor in actors]),
    }


if __name__ == "__main__":
    # A terminated run ends the servers and mounts that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
