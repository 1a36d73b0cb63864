"""Defaults of the data directory."""

from topics.model.storage_settings import StorageSettings


def test_defaults_are_within_each_other() -> None:
    settings = StorageSettings()
    assert settings.min_segment_bytes <= settings.segment_bytes <= settings.hot_bytes
    assert settings.max_loop_write_bytes <= settings.wal_file_bytes
    assert settings.margin > 0
