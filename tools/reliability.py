"""Write docs/RELIABILITY.md from the summaries of `make powercut` and `make soak`."""

import json
from pathlib import Path
from typing import Any

from tools.marked import write_marked

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data"
PAGE = ROOT / "docs" / "RELIABILITY.md"

HEAD = """# Reliability

This page is generated from `docs/data/powercut.json` and `docs/data/soak.json` by `make powercut` and `make soak`. Both can be repeated by
anyone with root on a Linux machine. `docs/GUARANTEES.md` names the test of each promise; `make crash` tries every step of scripted runs on
a simulated disk.

## What is promised

| class | acknowledged after | lost by kill -9 | lost by a power cut |
|---|---|---|---|
| ephemeral | apply | every record; head and configuration stay | the same |
| memory, disk | write | nothing acknowledged | the unsynced tail; readers get its range as a tombstone, its seqs are not assigned again |
| fsync | fdatasync | nothing acknowledged | nothing acknowledged |

## What is not promised

- A disk that reports a flush as done before the data is durable. Class fsync is as good as the disk's flush.
- More than one damaged place at a time. A damaged record is never served as another one, but it is lost unless the log still has it.
- Damage to the newest end of the log: it looks like a write that never finished, so the newest operations can be lost without a report.
- A copy of the data directory that is started beside or after the original: see docs/GUARANTEES.md.
"""


def write_page() -> None:
    """Write the page, and the counts in the README, from the summaries that exist."""
    text = HEAD
    powercut, soak = _load("powercut"), _load("soak")
    if powercut is not None:
        text += _power_cuts(powercut) + _bit_rot(powercut)
    if soak is not None:
        text += _soak(soak)
    PAGE.write_text(text, encoding="utf-8")
    write_marked(ROOT / "README.md", "counts", counts())


def counts() -> str:
    """The counts of our own runs, for the README."""
    powercut, soak = _load("powercut"), _load("soak")
    lines = []
    if powercut is not None:
        cuts, rot = powercut["power_cuts"], powercut["bit_rot"]
        fsync = cuts["classes"]["fsync"]
        damaged = rot["per_kind"] * len(rot["kinds"])
        wrong = sum([each["wrong"] for each in rot["kinds"].values()])
        lines.append(
            f"- {cuts['cuts']} power cuts of a recorded disk: {fsync['acknowledged']:,} acknowledged records of class `fsync` were checked, "
            f"{fsync['lost_and_reported']} were lost. Broken promises: {len(cuts['broken'])}."
        )
        lines.append(f"- {damaged} damaged files: {wrong} times a record was wrong, or missing without a report.")
    if soak is not None:
        found = ", ".join([f"{value:,} {name.replace('_', ' ')}" for name, value in soak["counts"].items()])
        lines.append(
            f"- A soak of {soak['minutes']:g} minutes with kills and full disks: {found}. Broken promises: {len(soak['broken'])}."
        )
    return "\n".join(lines) + "\n"


def _load(name: str) -> dict[str, Any] | None:
    path = DATA / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _power_cuts(summary: dict[str, Any]) -> str:
    cuts = summary["power_cuts"]
    writes = cuts["unflushed_writes"]
    rows = "".join(
        [
            f"| {name} | {counts['cuts']} | {counts['acknowledged']:,} | {counts['lost_and_reported']:,} |\n"
            for name, counts in cuts["classes"].items()
        ]
    )
    return f"""
## Power cuts

Method: the server runs on ext4 on a loop device. The file behind the loop device is a FUSE filesystem of ours (`tools/powercut/fuse_disk.py`) that
records every write and every flush of the block device. Writers append, create topics and delete, and note the position of the recording after each
acknowledgement. A cut at a position gives an image with everything before the last flush and, of the writes after it, a random choice: whole,
absent, or some of their sectors. Half of the cuts are right before a flush. The image is mounted (ext4 replays its journal), a server is started on it and every
topic is read and compared. The next run begins on such an image, so that recovery is cut as well.

Run of {summary["date"]}, seed {cuts["seed"]}: {cuts["cuts"]} cuts in {cuts["runs"]} runs; of the writes that were not flushed {writes["kept"]:,} were kept, {writes["torn"]:,} torn and
{writes["dropped"]:,} dropped. Broken promises: {len(cuts["broken"])}.

| class | cuts | acknowledged records checked | lost and reported |
|---|---|---|---|
{rows}
Checked after each cut: no acknowledged record of class fsync is missing and no deleted one is back; what other classes lost is the newest part and is
reported; no record has data that was never written; no acknowledged seq is assigned again; no payload of class ephemeral is on the disk.
{_broken(cuts["broken"])}"""


def _bit_rot(summary: dict[str, Any]) -> str:
    rot = summary["bit_rot"]
    rows = "".join(
        [
            f"| `{kind}` | {counts['unaffected']} | {counts['reported']} | {counts['refused']} | {counts['newest lost']} | {counts['wrong']} |\n"
            for kind, counts in rot["kinds"].items()
        ]
    )
    return f"""
## Bit rot

Method: one file of a data directory is damaged in a random used place ({", ".join(rot["damages"])}), {rot["per_kind"]} times for each kind of file (seed
{rot["seed"]}); then a server is started and reads everything.

| file | nothing missing | damage reported | start refused | newest operations lost | wrong or silent |
|---|---|---|---|---|---|
{rows}{_broken(rot["broken"])}"""


def _soak(summary: dict[str, Any]) -> str:
    slopes = "".join(
        [
            f"| {name} | {each['first']:,.1f} | {each['last']:,.1f} | {each['slope_per_hour']:+,.2f} |\n"
            for name, each in summary["slopes"].items()
        ]
    )
    counts = ", ".join([f"{value:,} {name.replace('_', ' ')}" for name, value in summary["counts"].items()])
    episodes = ", ".join([f"{value} {name}" for name, value in summary["episodes"].items()])
    return f"""
## Soak

Method: appends of all classes, deletes, TTL, caps, workers, routers, consumer groups, fast and slow watchers, with restarts, kills and episodes of a
full disk (`tools/soak`). Every acknowledged operation is written down and compared at the end.

Run of {summary["date"]}, {summary["minutes"]:g} minutes, seed {summary["seed"]}: {counts}. Episodes: {episodes}. Broken promises: {len(summary["broken"])}.

| | after warm-up | at the end | slope per hour |
|---|---|---|---|
{slopes}{_broken(summary["broken"])}"""


def _broken(found: list[Any]) -> str:
    if not found:
        return ""
    return "\nBroken:\n\n" + "".join([f"- {each if isinstance(each, str) else each['what']}\n" for each in found[:20]])
