"""The rule of every table of states: a state is followed only by those that its row names."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)


def follow(subject: str, table: Mapping[State, frozenset[State]], state: State, following: State) -> State:
    """Return the following state. Raises ValueError if the table does not allow it: that is a bug of the caller."""
    if following not in table[state]:
        raise ValueError(f"{subject} cannot go from {state.value} to {following.value}")
    return following
