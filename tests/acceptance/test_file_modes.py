"""What a server writes to its data directory is for its own user alone."""

import os
from pathlib import Path

from tests.acceptance.topic import TopicApi
from topics.testing.http import Api
from topics.testing.process import ServerProcess


def open_to_others(root: Path) -> list[str]:
    """Everything below the root that group or others may read, write or enter."""
    return [str(path) for path in sorted(root.rglob("*")) if path.stat().st_mode & 0o077]


def test_data_files_are_0600_and_directories_0700_also_where_an_earlier_version_left_them_open(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        settings = {"TOPICS_SEGMENT_BYTES": "4096", "TOPICS_HOT_BYTES": "8192", "TOPICS_CHECKPOINT_BYTES": "8192"}
        with ServerProcess(tmp_path, **settings) as server:
            with Api(server.url) as api:
                topic = TopicApi(api, "a")
                for _ in range(40):
                    topic.append("x" * 1000)
            assert server.stop() == 0
            assert {path.name for path in server.data_dir.iterdir()} >= {"wal", "segments", "snapshots", "LOCK"}
            assert server.data_dir.stat().st_mode & 0o777 == 0o700
            assert open_to_others(server.data_dir) == []
            for path in server.data_dir.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
            server.data_dir.chmod(0o755)
            server.start()
            directories = [path for path in server.data_dir.iterdir() if path.is_dir()]
            assert [path.name for path in directories if path.stat().st_mode & 0o077] == []
            assert server.data_dir.stat().st_mode & 0o777 == 0o755, "a directory that was there keeps its mode"
    finally:
        os.umask(before)
