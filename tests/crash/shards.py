"""Directories as earlier versions wrote them, with the log spread over several shards."""

from typing import Any

import msgspec

from topics.model.facts import Appended
from topics.storage.log.frame import Frame, decode, encode_append, encode_facts, read_frames
from topics.storage.log.wal import (
    HEADER_BYTES,
    ROOT,
    Header,
    decode_header,
    directory,
    encode_header,
    file_numbers,
    file_path,
)
from topics.storage.snapshots.snapshot import read_snapshot, snapshot_numbers, write_snapshot
from topics.storage.snapshots.snapshot_format import decode_header as decode_snapshot_header
from topics.storage.snapshots.snapshot_format import encode_image
from topics.testing.disk.fake_disk import FakeDisk


def spread_log(disk: FakeDisk, shards: int) -> FakeDisk:
    """Distribute the frames of the one log over `shards` shards, each topic's frames to the same one. Everything is synced."""
    last: dict[int, list[int]] = {}
    before: dict[int, dict[int, int]] = {}
    for number in file_numbers(disk, 0):
        view = disk.open(file_path(0, number)).map()
        header = decode_header(view)
        if header is None:
            # Reserved and not begun.
            disk.remove(file_path(0, number))
            continue
        if not last:
            last = {shard: [header.previous_lsn] for shard in range(shards)}
        before[number] = {shard: lsns[-1] for shard, lsns in last.items()}
        contents = {
            shard: [
                encode_header(Header(shard, number, lsns[-1], lsns[-1], header.boot_id, header.margin, header.lineage)),
            ]
            for shard, lsns in last.items()
        }
        for frame in read_frames(view, HEADER_BYTES):
            shard = _shard_of(frame, shards)
            lsns = last[shard]
            contents[shard].append(_encoded(frame, max([lsn for lsn in lsns if lsn <= frame.synced], default=lsns[0])))
            lsns.append(frame.lsn)
        size = len(view)
        del view
        for shard, parts in contents.items():
            _write(disk, shard, number, parts, size)
    disk.sync_directory(ROOT)
    for number in snapshot_numbers(disk):
        head, *sections = read_snapshot(disk, number)
        image = decode_snapshot_header(head)
        first = image.cut[0]
        image = msgspec.structs.replace(
            image, cut=dict.fromkeys(last, first), lsns=before[first], shards=list(range(shards))
        )
        write_snapshot(disk, number, [encode_image(image), *map(bytes, sections)])
    return disk


def _shard_of(frame: Frame, shards: int) -> int:
    facts: list[Any] = decode(frame)
    topic_ids = [fact.topic_id for fact in facts if hasattr(fact, "topic_id")]
    return topic_ids[0] % shards if topic_ids else 0


def _encoded(frame: Frame, synced: int) -> bytes:
    facts = decode(frame)
    if len(facts) == 1 and isinstance(facts[0], Appended):
        fact = facts[0]
        return encode_append(frame.lsn, synced, fact.topic_id, fact.partition, fact.page)
    return encode_facts(frame.lsn, synced, facts)


def _write(disk: FakeDisk, shard: int, number: int, parts: list[bytes], size: int) -> None:
    if not disk.exists(directory(shard)):
        disk.make_directory(directory(shard))
    path = file_path(shard, number)
    if disk.exists(path):
        disk.remove(path)
    file = disk.open(path, create=True)
    file.write_at(0, parts)
    if size > sum(map(len, parts)):
        file.allocate(size)
    file.sync_data()
    file.close()
    disk.sync_directory(directory(shard))
