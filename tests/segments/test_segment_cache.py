"""The cache keeps open files and reports each damage once."""

from topics.segments.segment_cache import Damage, SegmentCache
from topics.testing.disk.fake_disk import FakeDisk

DAMAGE = Damage("segments/a.arrow", 8, "checksum differs", 1, 0, 1, 9)


def test_damage_is_reported_once_and_ends_with_its_segment() -> None:
    cache = SegmentCache(FakeDisk(), 1000)
    found: list[Damage] = []
    gone: list[Damage] = []
    cache.on_damage, cache.on_damage_gone = found.append, gone.append
    cache.add_damage("a", DAMAGE)
    cache.add_damage("a", DAMAGE)
    assert found == [DAMAGE]
    cache.forget_damage("a")
    cache.forget_damage("a")
    assert (gone, cache.damage) == ([DAMAGE], {})


def test_only_a_repeated_read_is_worth_caching() -> None:
    cache = SegmentCache(FakeDisk(), 1000)
    assert not cache.is_repeated_read("a", 1, 10)
    assert not cache.is_repeated_read("a", 2, 10)
    assert cache.is_repeated_read("a", 1, 10)
