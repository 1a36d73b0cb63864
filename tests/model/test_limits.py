"""Limits of a request and of the server."""

from topics.model.limits import Limits


def test_defaults_are_within_each_other() -> None:
    limits = Limits()
    assert limits.default_limit <= limits.max_limit
    assert limits.max_record_bytes <= limits.max_body_bytes
    assert limits.answer_bytes <= limits.answer_bytes_max
    assert limits.max_sse_connections_per_key <= limits.max_sse_connections


def test_no_limit_is_negative() -> None:
    limits = Limits()
    assert all(getattr(limits, name) >= 0 for name in Limits.__struct_fields__)
