"""Dedupe keys, the cache, priorities and the tag index: each with its edge."""

import pytest

from topics.engine import tags as tags_module
from topics.engine.cache import Cache
from topics.engine.dedupe import Dedupe, KeptWrite
from topics.engine.priority import HALF_LIFE_MS, RECENT, effective_priority
from topics.engine.tags import TagIndex
from topics.model.config import TopicConfig
from topics.model.match import TagMatch
from topics.model.page import make_page
from topics.model.steps import finish

# Dedupe


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


# Cache


def test_the_cache_holds_at_most_its_bytes_and_the_oldest_leaves_first() -> None:
    cache = Cache(100)
    for key in range(12):
        cache.put(key, str(key), 10)
    assert cache.bytes == 100
    assert [cache.get(key) for key in (0, 1, 2, 11)] == [None, None, "2", "11"]


def test_a_value_too_large_is_not_kept() -> None:
    cache = Cache(80)
    cache.put("large", 1, 11)
    assert cache.get("large") is None
    cache.put("fits", 1, 10)
    assert cache.get("fits") == 1


def test_a_cache_of_nothing_keeps_nothing() -> None:
    cache = Cache(0)
    cache.put("k", 1, 1)
    assert (cache.get("k"), len(cache), cache.bytes) == (None, 0, 0)


def test_replacing_and_discarding_give_the_bytes_back() -> None:
    cache = Cache(100)
    cache.put("k", 1, 10)
    cache.put("k", 2, 5)
    assert (cache.bytes, len(cache), cache.get("k")) == (5, 1, 2)
    cache.discard("k")
    cache.discard("k")
    assert (cache.bytes, len(cache)) == (0, 0)


# Priority


def test_a_manual_priority_beats_everything() -> None:
    assert effective_priority(TopicConfig(priority=-7), 1000, 1000) == -7


def test_an_automatic_priority_halves_with_time() -> None:
    config = TopicConfig()
    assert effective_priority(config, None, 1000) == 0
    assert effective_priority(config, 1000, 1000) == RECENT
    assert effective_priority(config, 1000, 1000 + HALF_LIFE_MS) == RECENT // 2
    assert effective_priority(config, 1000, 0) == RECENT, "a clock that jumped back is no reason to overflow"
    assert effective_priority(TopicConfig(auto_priority=False), 1000, 1000) == 0


# Tags


def indexed(*tags: str) -> TagIndex:
    """Records 1, 2, 3 ... with these tags; "" for none."""
    index = TagIndex()
    for seq, tag in enumerate(tags, 1):
        if tag:
            index.add(make_page(seq, 1, 0, b"1", tags=b'"%b"' % tag.encode()))
    return index


def found_in(index: TagIndex, text: str, prefix: bool, bound: int = 99) -> list[int]:
    found = bytearray(100)
    finish(index.find(TagMatch(text, prefix), 0, bound, found))
    return [seq for seq, byte in enumerate(found) if byte]


@pytest.mark.parametrize(
    ("text", "prefix", "bound", "found"),
    [
        ("a", False, 99, [1, 4]),
        ("a", False, 4, [1]),
        ("a", False, 1, []),
        ("a", True, 99, [1, 2, 4, 5]),
        ("a", True, 5, [1, 2, 4]),
        ("", True, 99, [1, 2, 4, 5, 6]),
        ("", False, 99, []),
        ("ab", True, 99, [2, 5]),
        ("z", True, 99, []),
        ("é", True, 99, [6]),
    ],
)
def test_tags_are_found_exactly_and_by_prefix(text: str, prefix: bool, bound: int, found: list[int]) -> None:
    index = indexed("a", "ab", "", "a", "abc", "éx")
    assert found_in(index, text, prefix, bound) == found


def test_an_index_asked_for_a_prefix_still_takes_new_tags() -> None:
    index = indexed("a", "c")
    assert found_in(index, "", True) == [1, 2]
    index.add(make_page(3, 2, 0, b"1\x001", tags=b'"b"\0"a"'))
    assert found_in(index, "", True) == [1, 2, 3, 4]
    assert sorted([name for name, _ in index.entries(1)]) == [b'"a"', b'"b"', b'"c"']


def test_forgetting_and_pruning_drop_only_what_is_gone() -> None:
    index = indexed("a", "a", "b", "a", "c")
    finish(index.forget(TagMatch("a", False), lambda seq: seq == 4))
    assert found_in(index, "a", False) == [4]
    index.gone(make_page(1, 2, 0, b"1\x001", tags=b'"a"\0"a"'))
    index.gone(make_page(3, 2, 0, b"1\x001", tags=b'"b"\0"a"'))
    assert sorted(index.entries(5)) == [(b'"c"', 5)], "what is gone is not sealed, though it is listed for now"
    finish(index.tidy())
    assert found_in(index, "", True) == [5]
    assert len(index) == 1
    index.add(make_page(6, 1, 0, b"1", tags=b'"a"'))
    assert found_in(index, "", True) == [5, 6]


def test_names_in_many_blocks_are_found_and_those_out_of_use_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags_module, "BLOCK_NAMES", 4)
    index = indexed(*[f"t{number * 7 % 40:02d}" for number in range(40)])
    for start in range(0, 40, 10):
        expected = [seq for seq in range(1, 41) if (seq - 1) * 7 % 40 // 10 == start // 10]
        assert found_in(index, f"t{start // 10}", True) == expected
    finish(index.forget(TagMatch("t", True), lambda seq: seq == 7))
    for seq in range(41, 60):
        index.add(make_page(seq, 1, 0, b"1", tags=b'"new%d"' % seq))
        assert found_in(index, "", True) == [7, *range(41, seq + 1)]


def test_index_may_change_between_the_steps_of_a_search() -> None:
    index = indexed(*[f"t{number}" for number in range(50)], *["same"] * 20)
    found = bytearray(200)
    search = index.find(TagMatch("", True), 0, 71, found)
    dropping = index.forget(TagMatch("", True), lambda seq: seq > 60)
    seq = 71
    for _ in search:
        next(dropping, None)
        index.add(make_page(seq, 1, 0, b"1", tags=b'"same"'))
        seq += 1
    finish(dropping)
    assert all(found[61:71])
    assert not any(found[71:])
    assert found_in(index, "same", False) == list(range(61, seq))
