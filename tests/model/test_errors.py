"""Errors have a stable code and structured context."""

from topics.model.errors import BatchTooLarge, Conflict, CorruptStorage, InvalidRequest, Throttled, TopicsError


def test_the_code_is_that_of_the_class_unless_another_is_given() -> None:
    assert BatchTooLarge("too large").code == "batch_too_large"
    assert Conflict("not empty", code="topic_not_empty").code == "topic_not_empty"
    assert Conflict.code == "topic_exists_incompatible"


def test_a_batch_that_is_too_large_is_an_invalid_request() -> None:
    assert isinstance(BatchTooLarge("too large"), InvalidRequest)


def test_a_throttled_request_has_the_time_after_which_to_retry() -> None:
    assert Throttled("busy", retry_after_ms=250).retry_after_ms == 250


def test_damage_names_the_file_and_the_offset() -> None:
    error = CorruptStorage("wal/1.wal", 96, "checksum differs")
    assert isinstance(error, TopicsError)
    assert "wal/1.wal" in str(error)
    assert "96" in str(error)
