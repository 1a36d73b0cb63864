"""The table of job states: transitions that it does not have are refused."""

import pytest

from topics.engine.leases.job_state import TRANSITIONS, IllegalTransition, JobEvent, JobState, check_transition


def test_exactly_the_transitions_of_the_table_are_allowed() -> None:
    for state in JobState:
        for event in JobEvent:
            if (state, event) in TRANSITIONS:
                check_transition(7, state, event)
            else:
                with pytest.raises(IllegalTransition, match=f"job 7 is {state.value}: {event.value}"):
                    check_transition(7, state, event)


def test_every_state_can_be_reached_from_a_fresh_job_and_can_end() -> None:
    reached, found = {JobState.FRESH}, {JobState.FRESH}
    while found:
        found = {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached
        reached |= found
    assert reached == set(JobState)
    assert all(TRANSITIONS[state, JobEvent.FORGET] is JobState.GONE for state in JobState)


def test_a_job_that_is_gone_stays_gone() -> None:
    assert {after for (before, _), after in TRANSITIONS.items() if before is JobState.GONE} == {JobState.GONE}
