"""A table of states allows what its rows name, and nothing else."""

from enum import Enum

import pytest

from topics.engine.state_table import follow


class Door(Enum):
    OPEN = "open"
    CLOSED = "closed"
    LOCKED = "locked"


TABLE = {
    Door.OPEN: frozenset({Door.CLOSED}),
    Door.CLOSED: frozenset({Door.OPEN, Door.LOCKED}),
    Door.LOCKED: frozenset({Door.CLOSED}),
}


@pytest.mark.parametrize("state", Door)
@pytest.mark.parametrize("following", Door)
def test_state_is_followed_by_those_of_its_row_only(state: Door, following: Door) -> None:
    if following in TABLE[state]:
        assert follow("a door", TABLE, state, following) is following
    else:
        with pytest.raises(ValueError, match=f"a door cannot go from {state.value} to {following.value}"):
            follow("a door", TABLE, state, following)
