"""The state table of a router."""

import pytest

from topics.engine.routers.router_state import IDLE_STATES, TRANSITIONS, RouterState, transition


def test_every_state_has_a_row_and_is_reached() -> None:
    assert set(TRANSITIONS) == set(RouterState)
    assert set().union(*TRANSITIONS.values()) == set(RouterState)


@pytest.mark.parametrize("state", set(RouterState) - {RouterState.DELETING})
def test_router_can_be_deleted_in_every_state(state: RouterState) -> None:
    assert transition(state, RouterState.DELETING) is RouterState.DELETING


def test_router_that_is_held_or_deleted_has_no_outcome_of_a_run() -> None:
    for state in IDLE_STATES:
        assert not TRANSITIONS[state] & {RouterState.BLOCKED, RouterState.BACKOFF}


@pytest.mark.parametrize("state", RouterState)
def test_transition_outside_the_table_is_an_error(state: RouterState) -> None:
    for following in set(RouterState) - TRANSITIONS[state]:
        with pytest.raises(ValueError, match=f"from {state.value} to {following.value}"):
            transition(state, following)
