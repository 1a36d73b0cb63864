"""A config change is merged, clamped and checked as a whole."""

import msgspec
import pytest

from topics.model.config import DEFAULT_CONFIG, ConfigChange, TopicConfig, merged
from topics.model.errors import Conflict, InvalidRequest


def change(**fields: object) -> ConfigChange:
    return msgspec.convert(fields, ConfigChange)


def merge(base: TopicConfig = DEFAULT_CONFIG, *, exists: bool = True, **fields: object) -> TopicConfig:
    return merged("topic", base, change(**fields), exists=exists)


def test_a_change_of_nothing_changes_nothing() -> None:
    base = TopicConfig(ttl_ms=5, durability="memory", priority=7)
    assert merge(base) == base


def test_only_named_fields_change() -> None:
    base = TopicConfig(ttl_ms=5, cap_records=6)
    assert merge(base, cap_records=7) == msgspec.structs.replace(base, cap_records=7)


@pytest.mark.parametrize(
    ("base", "fields", "expected"),
    [
        ("disk", {"durable": True}, "fsync"),
        ("fsync", {"durable": False}, "disk"),
        ("memory", {"durable": False}, "disk"),
        ("memory", {}, "memory"),
        ("memory", {"durable": True, "durability": "ephemeral"}, "ephemeral"),
        ("fsync", {"durability": "disk"}, "disk"),
    ],
)
def test_durability_and_durable_always_agree(base: str, fields: dict[str, object], expected: str) -> None:
    config = merge(merge(durability=base), **fields)
    assert (config.durability, config.durable) == (expected, expected == "fsync")


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("priority", -1001, -1000),
        ("priority", -1000, -1000),
        ("priority", 1000, 1000),
        ("priority", 1001, 1000),
        ("lease_ms", 99, 100),
        ("lease_ms", 100, 100),
        ("lease_ms", 86_400_000, 86_400_000),
        ("lease_ms", 86_400_001, 86_400_000),
        ("claim_jitter_ms", 5000, 5000),
        ("claim_jitter_ms", 5001, 5000),
        ("ttl_ms", 2**64 - 1, 2**64 - 1),
    ],
)
def test_both_sides_of_every_clamp(field: str, value: int, kept: int) -> None:
    assert getattr(merge(**{field: value}), field) == kept


@pytest.mark.parametrize("field", ["ttl_ms", "cap_records", "cap_bytes", "idempotency_window_ms", "max_deliveries"])
def test_a_number_over_64_bits_is_refused(field: str) -> None:
    with pytest.raises(InvalidRequest):
        merge(**{field: 2**64})


def test_the_type_of_an_existing_topic_stays() -> None:
    assert merge(type="log").type == "log"
    with pytest.raises(Conflict):
        merge(type="queue")
    assert merge(exists=False, type="queue").type == "queue"


@pytest.mark.parametrize("name", ["topic", "", "a b", "-x", "a" * 256])
def test_a_dead_letter_topic_is_another_topic_with_a_valid_name(name: str) -> None:
    with pytest.raises(InvalidRequest):
        merge(dead_letter=name)
    assert merge(dead_letter="topic2").dead_letter == "topic2"
    assert merge(merge(dead_letter="topic2"), dead_letter=None).dead_letter is None
