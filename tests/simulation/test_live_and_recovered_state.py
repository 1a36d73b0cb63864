"""The live state equals the state that recovery makes from the log, after every operation and for every kind of fact.

`expected_state.jsonl` holds the state after each step of the scenario. A change of an apply function that alters both the live
and the recovered state is noticed by comparing with it. Write it again after an intended change:

    TOPICS_WRITE_EXPECTED=1 python -m pytest tests/simulation/test_live_and_recovered_state.py -k expected
"""

import os
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.simulation.scenario import SETTINGS, Scenario, describe
from topics.broker.durability.recovery import replay
from topics.broker.log.apply import APPLY
from topics.broker.state import State
from topics.model.facts import Fact, HeadMoved, Leased

EXPECTED = Path(__file__).with_name("expected_state.jsonl")
FACTS = typing.get_args(Fact)
# Applied when they are decided, or about what only a restart changes: see `log/apply.py`.
RECOVERY_ONLY = {HeadMoved, Leased}


def play() -> list[tuple[str, Any]]:
    """Run the scenario. After each step the state replayed from a copy of the disk must equal the live one."""
    scenario = Scenario()
    states = []
    for step in scenario.steps():
        live = plain(describe(scenario.broker.state))
        recovered = plain(describe(replay(scenario.disk.after_kill(), SETTINGS).state))
        assert recovered == live, f"after: {step}"
        states.append((step, live))
    return states


def expected_states() -> list[Any]:
    return msgspec.json.Decoder().decode_lines(EXPECTED.read_bytes())


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def test_every_kind_of_fact_has_one_apply_function() -> None:
    assert set(APPLY) == set(FACTS)


def test_state_after_each_operation_is_as_expected_live_and_recovered() -> None:
    states = [{"step": step, "state": state} for step, state in play()]
    if os.environ.get("TOPICS_WRITE_EXPECTED"):
        EXPECTED.write_bytes(msgspec.json.Encoder().encode_lines(states))
    expected = expected_states()
    for got, want in zip(states, expected, strict=True):
        assert got == want, got["step"]


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_an_apply_function_that_does_nothing_in_recovery_is_noticed(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = APPLY[kind]

    def altered(state: State, fact: Any, *prepared: Any) -> Any:
        return None if state.replaying else original(state, fact, *prepared)

    monkeypatch.setitem(APPLY, kind, altered)
    with pytest.raises(Exception):  # noqa: B017, PT011 - a difference, or an error of the operation that follows
        play()


@pytest.mark.parametrize("kind", [kind for kind in FACTS if kind not in RECOVERY_ONLY], ids=lambda kind: kind.__name__)
def test_an_apply_function_that_does_nothing_at_all_is_noticed(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [each["state"] for each in expected_states()]
    monkeypatch.setitem(APPLY, kind, lambda *_: 0)
    with pytest.raises(Exception):  # noqa: B017, PT011 - a difference, or an error of the operation that follows
        assert [state for _, state in play()] == expected
