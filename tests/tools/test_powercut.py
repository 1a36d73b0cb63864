"""The power-cut tool: images of cuts have exactly what a disk may have, and broken promises are found."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.powercut.block_device import CutImages, Recording
from tools.powercut.fuse_disk import RecordingDisk
from tools.powercut.history import Append, Broken, Delete, TopicHistory, call, verify
from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

BLOCK = 4096


def recorded(directory: Path) -> tuple[Recording, RecordingDisk]:
    (directory / "base").write_bytes(bytes(8 * BLOCK))
    (directory / "counter").write_bytes(bytes(8))
    disk = RecordingDisk(str(directory / "base"), str(directory / "journal"), str(directory / "counter"))
    return Recording(directory / "base", directory), disk


def test_flushed_writes_are_in_every_image_and_writes_after_the_cut_in_none(tmp_path: Path) -> None:
    recording, disk = recorded(tmp_path)
    disk.write(0, b"a" * BLOCK)
    disk.flush()
    disk.write(BLOCK, b"b" * BLOCK)
    disk.write(2 * BLOCK, b"c" * BLOCK)
    disk.close()
    assert recording.position() == 4
    assert recording.flush_positions() == [1]
    for seed in range(30):
        images = CutImages(recording, tmp_path / "durable")
        counts = images.cut(3, tmp_path / "cut", random.Random(seed))
        images.close()
        content = (tmp_path / "cut").read_bytes()
        assert content[:BLOCK] == b"a" * BLOCK
        assert set(content[BLOCK : 2 * BLOCK]) <= {ord("b"), 0}
        assert content[2 * BLOCK :] == bytes(6 * BLOCK)
        assert sum(counts.values()) == 1


def test_unflushed_write_is_kept_torn_or_dropped(tmp_path: Path) -> None:
    recording, disk = recorded(tmp_path)
    disk.write(0, b"a" * BLOCK)
    disk.close()
    seen = set()
    for seed in range(60):
        images = CutImages(recording, tmp_path / "durable")
        images.cut(1, tmp_path / "cut", random.Random(seed))
        images.close()
        seen.add({0: "dropped", BLOCK: "kept"}.get((tmp_path / "cut").read_bytes().count(b"a"), "torn"))
    assert seen == {"dropped", "kept", "torn"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url, Api(url) as api:
        call(api, "PUT", "/v0/topics/t", {})
        call(api, "POST", "/v0/topics/t", {"records": [{"data": "one", "tag": "1"}, {"data": "two", "tag": "2"}]})
        yield api


def history(durability: str = "fsync") -> TopicHistory:
    return TopicHistory("t", durability, created_position=0, appends=[Append(["one", "two"], 1, 5)])


def test_history_that_the_server_kept_is_accepted(api: Api) -> None:
    assert verify(api, history(), 10) == ({1: "one", 2: "two"}, set())


def test_missing_record_of_class_fsync_is_found(api: Api) -> None:
    call(api, "POST", "/v0/topics/t/delete", {"before_seq": 2})
    with pytest.raises(Broken, match="acknowledged seqs"):
        verify(api, history(), 10)


def test_record_that_is_missing_without_a_tombstone_is_found_in_every_class(api: Api) -> None:
    call(api, "POST", "/v0/topics/t/delete", {"before_seq": 2})
    with pytest.raises(Broken, match="without a tombstone"):
        verify(api, history("disk"), 10)


def test_deleted_record_that_came_back_is_found(api: Api) -> None:
    topic = history()
    topic.deletes.append(Delete(1, 6))
    with pytest.raises(Broken, match="came back"):
        verify(api, topic, 10)


def test_other_data_and_invented_data_are_found(api: Api) -> None:
    topic = history()
    topic.appends = [Append(["one", "two", "three"], 2, 5)]
    with pytest.raises(Broken, match="acknowledged was"):
        verify(api, topic, 10)
    topic.appends = [Append(["one"], 1, 5)]
    with pytest.raises(Broken, match="never written"):
        verify(api, topic, 10)


def test_seq_that_is_assigned_again_is_found(api: Api) -> None:
    topic = history()
    topic.appends.append(Append(["lost"], 3, 5))
    topic.deletes.append(Delete(3))
    with pytest.raises(Broken, match="assigned again"):
        verify(api, topic, 10)


def test_records_of_an_ephemeral_topic_after_a_restart_are_found(api: Api) -> None:
    with pytest.raises(Broken, match="ephemeral"):
        verify(api, history("ephemeral"), 10)
