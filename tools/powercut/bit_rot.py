"""Bit rot: damage each kind of file of a data directory in a random place, start a server, and read everything.

Allowed outcomes: nothing is missing; what is missing is reported (a tombstone, or an error that says that the storage is
damaged); the server refuses to start. Damage to the newest end of the log may also take the newest operations, and only
those: it looks like a write that never finished. Never allowed: a record with other data, or one that is missing
without a report.
"""

import json
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.powercut.cuts import SETTINGS
from tools.powercut.history import TopicHistory, Writer, call
from topics.testing.http import Api
from topics.testing.process import ServerEnded, ServerProcess

LOAD_SECONDS = 2.0
# Their records share files (packs).
SMALL_TOPICS = 300
OUTCOMES = ("unaffected", "reported", "refused", "newest lost", "wrong")
DAMAGES = ("one bit", "one sector of zeros", "one sector of noise", "cut short")
SECTOR_BYTES = 512
# Skipping a lost page is possible as long as the reader knows where the next one begins.
MAX_PAGES = 10_000


def run_bit_rot(per_kind: int, seed: int, progress: Callable[[str], None]) -> dict[str, Any]:
    chance = random.Random(seed)
    outcomes: dict[str, dict[str, int]] = {}
    broken: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="topics-bitrot-", dir="/dev/shm") as name:
        directory = Path(name)
        topics = [TopicHistory(f"{durability}-0", durability) for durability in ("disk", "fsync")]
        _write(directory / "origin", topics, chance)
        kinds: dict[str, list[Path]] = {}
        for path in sorted((directory / "origin" / "data").rglob("*")):
            if path.is_file() and path.stat().st_size:
                kinds.setdefault(_kind(path), []).append(path)
        for kind, files in sorted(kinds.items()):
            counts = outcomes.setdefault(kind, dict.fromkeys(OUTCOMES, 0))
            for _ in range(per_kind):
                target, damage = chance.choice(files), chance.choice(DAMAGES)
                trial = directory / "trial"
                shutil.copytree(directory / "origin", trial)
                _damage(trial / target.relative_to(directory / "origin"), damage, chance)
                outcome, what = _outcome(trial, directory, topics)
                if outcome == "newest lost" and kind != "wal":
                    outcome = "wrong"
                counts[outcome] += 1
                if outcome == "wrong":
                    broken.append({"seed": seed, "file": target.name, "damage": damage, "what": what})
                    progress(f"WRONG after {damage} in {target.name}: {what}")
                shutil.rmtree(trial)
            progress(f"bit rot in {kind}: {counts}")
    return {"seed": seed, "per_kind": per_kind, "damages": list(DAMAGES), "kinds": outcomes, "broken": broken}


def _write(directory: Path, topics: list[TopicHistory], chance: random.Random) -> None:
    """A data directory with every kind of file, of a server that was killed."""
    runtime = directory.parent / "runtime"
    runtime.mkdir()
    with ServerProcess(directory, **SETTINGS, TOPICS_RUNTIME_DIR=str(runtime)) as server:
        with Api(server.url) as api:
            for number in range(SMALL_TOPICS):
                call(api, "POST", f"/v0/topics/small-{number}", {"records": [{"data": "x" * 1000, "tag": "t"}]})
        writers = [Writer(server.url, topic, lambda: 0, chance.getrandbits(64)) for topic in topics]
        for writer in writers:
            writer.start()
        time.sleep(LOAD_SECONDS)
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join()
        server.kill()


def _kind(path: Path) -> str:
    return {"reserve": "reserve"}.get(path.name, re.sub(r".*\.", "", path.name))


def _damage(path: Path, damage: str, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    # Files of the log end with zeros that no frame uses; damage what is used.
    used = max(1, len(content.rstrip(b"\0")))
    at = chance.randrange(used)
    match damage:
        case "one bit":
            content[at] ^= 1 << chance.randrange(8)
        case "one sector of zeros":
            content[at : at + SECTOR_BYTES] = bytes(len(content[at : at + SECTOR_BYTES]))
        case "one sector of noise":
            content[at : at + SECTOR_BYTES] = chance.randbytes(len(content[at : at + SECTOR_BYTES]))
        case "cut short":
            del content[at:]
    path.write_bytes(content)


def _outcome(trial: Path, directory: Path, topics: list[TopicHistory]) -> tuple[str, str]:
    runtime = directory / "trial-runtime"
    shutil.copytree(directory / "runtime", runtime)
    try:
        with ServerProcess(trial, **SETTINGS, TOPICS_RUNTIME_DIR=str(runtime)) as server, Api(server.url) as api:
            found = [_read_topic(api, topic) for topic in topics]
            return max(found, key=lambda each: OUTCOMES.index(each[0]))
    except ServerEnded:
        return "refused", ""
    finally:
        shutil.rmtree(runtime)


def _read_topic(api: Api, topic: TopicHistory) -> tuple[str, str]:
    """The outcome for one topic, and what is wrong, if anything is."""
    expected = topic.acknowledged(0)
    found: set[int] = set()
    lost: list[tuple[int, int]] = []
    cursor = 0
    for _ in range(MAX_PAGES):
        body = json.dumps({"from_seq": cursor, "limit": 1000}).encode()
        answer = api.post(f"/v0/topics/{topic.name}/diff", body)
        page = json.loads(answer.body)
        if answer.status >= 500:
            # The rest of this topic cannot be read, and the answer says so.
            return "reported", ""
        if answer.status != 200:
            return "wrong", f"{topic.name}: {answer.status} {answer.body[:200]!r}"
        if page["tombstone"] is not None:
            lost.append((page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]))
        for record in page["records"]:
            if expected.get(record["$seq"]) != record["data"]:
                return "wrong", f"{topic.name}: seq {record['$seq']} has other data"
            found.add(record["$seq"])
        cursor = page["next_from_seq"]
        if page["caught_up"]:
            break
    deleted = [each.seq for each in topic.deletes]
    back = set(deleted) & found
    missing = set(expected) - found - set(deleted)
    silent = {seq for seq in missing if not any([first <= seq <= end for first, end in lost])}
    if not back and not silent:
        return ("reported" if missing else "unaffected"), ""
    what = f"{topic.name}: {len(silent)} records are missing without a report, {len(back)} deletes are undone"
    newest_only = min(silent, default=1 << 62) > max(found, default=0) and back <= set(
        deleted[len(deleted) - len(back) :]
    )
    return ("newest lost" if newest_only else "wrong"), what
