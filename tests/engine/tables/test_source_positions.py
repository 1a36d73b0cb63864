"""Changes that were sent before are recognised by the position of their source."""

from topics.engine.tables.source_positions import SourcePositions
from topics.model.facts import ChangesMarked
from topics.model.tables.change import Change, Defaults, decode_changes


def change(position: int, row: int = 1) -> Change:
    body = b'[{"op":"update","key":{"id":%d},"after":{"id":%d},"position":%d}]' % (row, row, position)
    return decode_changes(body, Defaults(1), 1000).changes[0]


def positions_at(*changes: Change) -> SourcePositions:
    positions = SourcePositions()
    for each in changes:
        assert each.position is not None
        positions.apply(ChangesMarked(1, each.source, list(each.position), each.digest, 0))
    return positions


def test_changes_up_to_the_last_position_are_duplicates() -> None:
    positions = positions_at(change(10))
    found = positions.find_new(1, [change(9), change(10), change(11)])
    assert (len(found.fresh), found.duplicates) == (1, 2)


def test_another_change_at_the_same_position_is_new() -> None:
    positions = positions_at(change(10))
    assert positions.find_new(1, [change(10, row=2)]).duplicates == 0


def test_positions_of_a_topic_are_kept_in_a_snapshot_and_forgotten_with_the_topic() -> None:
    restored = SourcePositions()
    restored.restore(positions_at(change(10)).capture())
    assert restored.find_new(1, [change(10)]).duplicates == 1
    restored.forget(1)
    assert restored.find_new(1, [change(10)]).duplicates == 0
