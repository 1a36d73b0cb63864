"""Block-level power cuts: run a server on a recorded disk, cut at random positions, start again, check."""

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.powercut.block_device import CutImages, Recording, make_image, mounted
from tools.powercut.history import CLASSES, EPHEMERAL_MARK, Broken, TopicHistory, Writer, verify
from topics.testing.http import Api
from topics.testing.process import ServerEnded, ServerProcess

CUTS_PER_RUN = 25
LOAD_SECONDS = 2.0
TOPICS_PER_CLASS = 2
# Small files: segments, snapshots and log files are begun and removed all the time.
SETTINGS = {
    "TOPICS_WAL_FILE_BYTES": str(1 << 20),
    "TOPICS_SEGMENT_BYTES": str(128 << 10),
    "TOPICS_HOT_BYTES": str(256 << 10),
    "TOPICS_CHECKPOINT_BYTES": str(1 << 20),
    "TOPICS_RESERVE_BYTES": str(1 << 20),
    "TOPICS_UNSYNCED_RECORDS": "2000",
}

# What was acknowledged before a cut, and which of these seqs it took.
Survivors = tuple[dict[int, str], set[int]]


def run_cuts(cuts: int, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Make this many cuts. Each run of the server begins on the image of a cut of the run before it."""
    chance = random.Random(seed)
    topics = [
        TopicHistory(f"{durability}-{number}", durability)
        for durability in CLASSES
        for number in range(TOPICS_PER_CLASS)
    ]
    totals = {durability: {"cuts": 0, "acknowledged": 0, "lost_and_reported": 0} for durability in CLASSES}
    writes = {"kept": 0, "torn": 0, "dropped": 0}
    broken: list[dict[str, Any]] = []
    done = runs = 0
    with tempfile.TemporaryDirectory(prefix="topics-powercut-", dir="/dev/shm") as name:
        directory = Path(name)
        base = directory / "base"
        make_image(base)
        while done < cuts:
            recording = Recording(base, directory)
            first, last = _recorded_run(recording, directory, topics, chance)
            runs += 1
            positions = _positions(recording, first, last, min(CUTS_PER_RUN, cuts - done), chance)
            images = CutImages(recording, directory / "durable")
            chosen = chance.choice(positions)
            kept: dict[str, Survivors] = {}
            for position in positions:
                counts = images.cut(position, directory / "cut", chance)
                for kind, count in counts.items():
                    writes[kind] += count
                if position == chosen and not kept:
                    shutil.copyfile(directory / "cut", directory / "next")
                try:
                    found = _verified(directory, topics, position, totals)
                except Broken as error:
                    broken.append({"seed": seed, "run": runs, "position": position, "what": str(error)})
                    progress(f"BROKEN at position {position} of run {runs}: {error}")
                    found = {topic.name: (topic.acknowledged(position), set()) for topic in topics}
                if position == chosen and not kept:
                    kept = found
                done += 1
                progress(f"cut {done} of {cuts}: position {position} of {last}, {counts}")
            images.close()
            shutil.move(directory / "next", base)
            for topic in topics:
                topic.rebase(*kept[topic.name], chosen)
    return {
        "seed": seed,
        "runs": runs,
        "cuts": done,
        "unflushed_writes": writes,
        "classes": totals,
        "broken": broken,
    }


def _positions(recording: Recording, first: int, last: int, number: int, chance: random.Random) -> list[int]:
    """Where to cut: half of the cuts anywhere, half right before a flush, where most is not yet on the disk."""
    flushes = [at for at in recording.flush_positions() if first <= at <= last]
    near = [chance.choice(flushes) for _ in range(number // 2)] if flushes else []
    return sorted(near + [chance.randint(first, last) for _ in range(number - len(near))])


def _recorded_run(
    recording: Recording, directory: Path, topics: list[TopicHistory], chance: random.Random
) -> tuple[int, int]:
    """Run a server under load on the recorded disk and kill it. Returns the range of positions to cut at."""
    with recording.mounted():
        first = recording.position()
        with _server(recording.mountpoint, directory) as server:
            # Without writers of class fsync there are few flushes, and more is lost by a cut.
            with_fsync = chance.random() < 0.5
            writers = [
                Writer(server.url, topic, recording.position, chance.getrandbits(64))
                for topic in topics
                if with_fsync or topic.durability != "fsync"
            ]
            for writer in writers:
                writer.start()
            time.sleep(LOAD_SECONDS)
            last = recording.position()
            for writer in writers:
                writer.stopping.set()
            for writer in writers:
                writer.join()
            failures = [writer.failure for writer in writers if writer.failure is not None]
            if failures:
                raise Broken(f"a request failed while the power was on: {failures[0]}")
            server.kill()
        _remove_runtime(directory)
    return first, last


def _server(mountpoint: Path, directory: Path) -> ServerProcess:
    """A server whose data is on the mounted disk. Its marker in memory does not survive a cut."""
    runtime = directory / "runtime"
    runtime.mkdir(exist_ok=True)
    return ServerProcess(mountpoint, **SETTINGS, TOPICS_RUNTIME_DIR=str(runtime))


def _remove_runtime(directory: Path) -> None:
    shutil.rmtree(directory / "runtime", ignore_errors=True)


def _verified(
    directory: Path, topics: list[TopicHistory], position: int, totals: dict[str, dict[str, int]]
) -> dict[str, Survivors]:
    """Start a server on the image of a cut and check every topic. Returns what was acknowledged before the cut."""
    if EPHEMERAL_MARK.encode() in (directory / "cut").read_bytes():
        raise Broken("a payload of an ephemeral topic is on the disk")
    found: dict[str, Survivors] = {}
    with mounted(directory / "cut", directory / "checked"):
        try:
            with _server(directory / "checked", directory) as server, Api(server.url) as api:
                for topic in topics:
                    acknowledged, lost = found[topic.name] = verify(api, topic, position)
                    totals[topic.durability]["acknowledged"] += len(acknowledged)
                    totals[topic.durability]["lost_and_reported"] += len(lost)
                server.stop()
        except ServerEnded as error:
            raise Broken(f"the server does not start: {str(error)[-500:]}") from None
        finally:
            _remove_runtime(directory)
    for durability in totals:
        totals[durability]["cuts"] += 1
    return found
