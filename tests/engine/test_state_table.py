"""A table of states allows what its rows name, and nothing else."""

from enum import Enum

import pytest

from topics.engine.state_table import follow


class Step(Enum):
    FIRST = "first"
    SECOND = "second"
    THIRD = "third"


TABLE = {
    Step.FIRST: frozenset({Step.SECOND}),
    Step.SECOND: frozenset({Step.FIRST, Step.THIRD}),
    Step.THIRD: frozenset({Step.SECOND}),
}


@pytest.mark.parametrize("state", Step)
@pytest.mark.parametrize("following", Step)
def test_state_is_followed_by_those_of_its_row_only(state: Step, following: Step) -> None:
    if following in TABLE[state]:
        assert follow("a step", TABLE, state, following) is following
    else:
        with pytest.raises(ValueError, match=f"a step cannot go from {state.value} to {following.value}"):
            follow("a step", TABLE, state, following)
