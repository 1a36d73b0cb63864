"""A cache holds at most its bytes."""

from topics.engine.cache import Cache


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
