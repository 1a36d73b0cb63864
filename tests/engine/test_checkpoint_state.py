"""The state table of a checkpoint."""

import pytest

from topics.engine.checkpoint_state import (
    LAST_TRANSITIONS,
    TRANSITIONS,
    CheckpointState,
    LastCheckpoint,
    last_transition,
    transition,
)

STEPS = [
    CheckpointState.IDLE,
    CheckpointState.SEALING,
    CheckpointState.ROTATING,
    CheckpointState.SYNCING_LOG,
    CheckpointState.TAKING_IMAGES,
    CheckpointState.SYNCING_IMAGES,
    CheckpointState.WRITING,
    CheckpointState.TRIMMING,
    CheckpointState.IDLE,
]


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(CheckpointState)


def test_checkpoint_that_works_passes_every_state_once() -> None:
    state = STEPS[0]
    for following in STEPS[1:]:
        state = transition(state, following)
    assert state is CheckpointState.IDLE
    assert set(STEPS) == set(CheckpointState)


@pytest.mark.parametrize("state", set(CheckpointState) - {CheckpointState.IDLE, CheckpointState.TAKING_IMAGES})
def test_step_that_waits_for_a_file_or_the_log_may_fail(state: CheckpointState) -> None:
    assert transition(state, CheckpointState.IDLE) is CheckpointState.IDLE


@pytest.mark.parametrize("state", CheckpointState)
def test_transition_outside_the_table_is_an_error(state: CheckpointState) -> None:
    for following in set(CheckpointState) - TRANSITIONS[state]:
        with pytest.raises(ValueError, match=f"from {state.value} to {following.value}"):
            transition(state, following)


@pytest.mark.parametrize("state", LastCheckpoint)
def test_server_that_stops_begins_its_last_checkpoint_once(state: LastCheckpoint) -> None:
    assert set(LAST_TRANSITIONS) == set(LastCheckpoint)
    if state is LastCheckpoint.BEGUN:
        assert not LAST_TRANSITIONS[state]
        with pytest.raises(ValueError, match="the last checkpoint cannot go from begun to begun"):
            last_transition(state, LastCheckpoint.BEGUN)
    else:
        assert last_transition(state, LastCheckpoint.BEGUN) is LastCheckpoint.BEGUN
