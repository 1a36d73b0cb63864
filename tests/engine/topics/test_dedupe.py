"""Idempotency keys are found within their window."""

from topics.engine.topics.dedupe import Dedupe
from topics.model.images import KeptWrite


def test_a_key_is_found_until_its_window_is_over() -> None:
    dedupe = Dedupe()
    write = KeptWrite(0, 5, 2, 1000)
    dedupe.keep("k", write)
    assert dedupe.find("k", 1000, 100) == write
    assert dedupe.find("k", 1099, 100) == write
    assert dedupe.find("k", 1100, 100) is None
    assert dedupe.find("other", 1000, 100) is None


def test_expired_keys_are_let_go_and_a_key_used_again_is_young() -> None:
    dedupe = Dedupe()
    for ts, key in [(1000, "a"), (1010, "b"), (1020, "a")]:
        dedupe.keep(key, KeptWrite(0, ts, 1, ts))
    dedupe.expire(1110, 100)
    assert [key for key, _ in dedupe.all()] == ["a"]
    assert len(dedupe) == 1
    dedupe.expire(1119, 100)
    assert len(dedupe) == 1
    dedupe.expire(1120, 100)
    assert len(dedupe) == 0


def test_snapshot_holds_the_keys_whose_window_is_not_over_and_restores_their_order() -> None:
    dedupe = Dedupe()
    for ts, key in [(1000, "a"), (1010, "b"), (1020, "c")]:
        dedupe.keep(key, KeptWrite(0, ts, 1, ts))
    image = dedupe.image(1105, 100)
    assert [key for key, _ in image] == ["b", "c"]
    restored = Dedupe()
    restored.restore(image)
    assert restored.find("b", 1105, 100) == KeptWrite(0, 1010, 1, 1010)
    restored.expire(1115, 100)
    assert [key for key, _ in restored.all()] == ["c"]
