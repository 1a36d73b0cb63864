"""The tag index of hot records."""

import pytest

from topics.engine.partitions import tags as tags_module
from topics.engine.partitions.tags import TagIndex
from topics.model.records.match import TagMatch
from topics.model.records.page import make_page
from topics.model.steps import finish


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
