"""The state tables of a router and of the forwarder."""

import pytest

from topics.engine.routers.router_state import (
    FORWARDER_TRANSITIONS,
    IDLE_STATES,
    TRANSITIONS,
    ForwarderState,
    RouterState,
    forwarder_transition,
    transition,
)


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


def test_forwarder_is_held_and_released_in_two_steps_or_in_one_when_the_snapshot_fails() -> None:
    held = forwarder_transition(ForwarderState.RUNNING, ForwarderState.HELD)
    imaging = forwarder_transition(held, ForwarderState.IMAGING)
    assert forwarder_transition(imaging, ForwarderState.RUNNING) is ForwarderState.RUNNING
    assert forwarder_transition(held, ForwarderState.RUNNING) is ForwarderState.RUNNING


@pytest.mark.parametrize("state", set(ForwarderState) - {ForwarderState.STOPPED})
def test_forwarder_can_be_stopped_in_every_state_and_never_continues(state: ForwarderState) -> None:
    assert set(FORWARDER_TRANSITIONS) == set(ForwarderState)
    stopped = forwarder_transition(state, ForwarderState.STOPPED)
    with pytest.raises(ValueError, match=f"the forwarder cannot go from stopped to {state.value}"):
        forwarder_transition(stopped, state)
