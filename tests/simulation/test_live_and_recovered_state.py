"""The live state equals the state replayed from the log, after every turn and for every kind of fact.

The comparison is also made in the random histories of `test_log.py`, `test_queues.py` and `test_interleaved_requests.py`.

`expected_state.jsonl` holds the state after each step of the scenario. A change of an apply function that alters both the live
and the replayed state is noticed by comparing with it. Write it again after an intended change:

    TOPICS_WRITE_EXPECTED=1 python -m pytest tests/simulation/test_live_and_recovered_state.py -k expected
"""

import os
import re
import typing
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.simulation.live_and_replayed import compare, describe
from tests.simulation.scenario import SETTINGS, Scenario
from topics.broker.durability.recovery import replay
from topics.broker.log.apply import APPLY
from topics.broker.state import State
from topics.model.facts import Appended, ChangesMarked, Fact, HeadMoved, Leased, Repaired
from topics.testing.disk.fake_disk import FakeDisk

EXPECTED = Path(__file__).with_name("expected_state.jsonl")
FACTS = typing.get_args(Fact)
# Applied when they are decided, or about what only a restart changes: see `broker/log/apply.py`.
RECOVERY_ONLY = {HeadMoved, Leased}
# `ts` is not kept; the scenario repairs without segments, which `tests/maintenance` does with them.
# `Appended.key` is only in logs of version 1, which tests/acceptance/test_old_directories.py reads.
WITHOUT_EFFECT = {(Appended, "key"), (ChangesMarked, "ts"), (Repaired, "segments")}


class Moment(typing.NamedTuple):
    """What a step of the scenario leaves behind."""

    step: str
    live: Any
    disk: FakeDisk
    now_ms: int
    # The kinds of facts that a replay of the disk applies.
    kinds: set[type]


def play() -> list[tuple[str, Any]]:
    """Run the scenario, comparing the live and the replayed state after every turn. Return the state after each step."""
    scenario = Scenario(after_turn=lambda scenario: _compare(scenario, "in the middle of a step"))
    return [(step, _compare(scenario, f"after: {step}")) for step in scenario.steps()]


def play_live(expected: list[Any]) -> None:
    """Run the scenario and compare the live state with the expected one after each step."""
    scenario = Scenario()
    for step, want in zip(scenario.steps(), expected, strict=True):
        assert without_tokens(describe(scenario.broker.state, scenario.runtime.now_ms())) == want, step


def _compare(scenario: Scenario, when: str) -> Any:
    return plain(compare(scenario.broker, scenario.disk, SETTINGS, scenario.runtime.now_ms(), when))


@cache
def moments() -> list[Moment]:
    """The scenario without comparisons, and a copy of its disk after each step."""
    scenario = Scenario()
    found = []
    for step in scenario.steps():
        disk, now_ms = scenario.disk.after_kill(), scenario.runtime.now_ms()
        kinds: set[type] = set()
        with pytest.MonkeyPatch.context() as patch:
            for kind, function in APPLY.items():
                patch.setitem(APPLY, kind, _seen(kinds, kind, function))
            replay(disk, SETTINGS)
        found.append(Moment(step, plain(describe(scenario.broker.state, now_ms)), disk, now_ms, kinds))
    return found


def _seen(kinds: set[type], kind: type, function: Any) -> Any:
    def apply(*arguments: Any) -> Any:
        kinds.add(kind)
        return function(*arguments)

    return apply


def is_noticed(kind: type) -> bool:
    """Whether a replay with the altered apply function of this kind of fact differs after one of the steps, or fails."""
    for moment in moments():
        if kind in moment.kinds:
            try:
                replayed = plain(describe(replay(moment.disk, SETTINGS).state, moment.now_ms))
            except Exception:  # noqa: BLE001 - any error is a difference
                return True
            if replayed != moment.live:
                return True
    return False


def expected_states() -> list[Any]:
    return msgspec.json.Decoder().decode_lines(EXPECTED.read_bytes())


def plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def without_tokens(value: Any) -> Any:
    """Replace the tokens of leases, which are random."""
    return msgspec.json.decode(re.sub(rb'"[0-9a-f]{16}"', b'"token"', msgspec.json.encode(value)))


def changes(value: Any) -> list[Any]:
    """Other values of the same type, for one field of a fact. None if there is nothing to change."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, str):
        return [value + "x"]
    if isinstance(value, bytes):
        return [value[:-8]] if len(value) >= 8 else [value + b"1"]
    if isinstance(value, list | tuple):
        fewer = [type(value)(value[:-1])] if value else []
        return [*fewer, *[type(value)([*value[:-1], each]) for each in (changes(value[-1]) if value else [])]]
    if isinstance(value, msgspec.Struct):
        return [
            structs.replace(value, **{field: each})
            for field in value.__struct_fields__
            for each in changes(getattr(value, field))
        ]
    return []


def test_every_kind_of_fact_has_one_apply_function() -> None:
    assert set(APPLY) == set(FACTS)


def test_the_scenario_writes_every_kind_of_fact() -> None:
    assert set().union(*[moment.kinds for moment in moments()]) == set(FACTS)


def test_state_after_each_operation_is_as_expected_live_and_replayed() -> None:
    states = [{"step": step, "state": without_tokens(state)} for step, state in play()]
    if os.environ.get("TOPICS_WRITE_EXPECTED"):
        EXPECTED.write_bytes(msgspec.json.Encoder().encode_lines(states))
    expected = expected_states()
    for got, want in zip(states, expected, strict=True):
        assert got == want, got["step"]


def test_the_comparison_finds_no_difference_without_an_alteration() -> None:
    assert not any([is_noticed(kind) for kind in FACTS])


@pytest.mark.parametrize("kind", FACTS, ids=lambda kind: kind.__name__)
def test_an_apply_function_that_does_nothing_in_replay_is_noticed(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    moments()
    monkeypatch.setitem(APPLY, kind, lambda *_: None)
    assert is_noticed(kind)


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field) for kind in FACTS for field in kind.__struct_fields__ if (kind, field) not in WITHOUT_EFFECT],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_an_apply_function_that_reads_another_value_of_a_field_is_noticed(
    kind: type, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments()
    original = APPLY[kind]
    attempts = 0

    def altered(state: State, fact: Any) -> Any:
        nonlocal attempts
        others = changes(getattr(fact, field))
        attempts = max(attempts, len(others))
        if number < len(others):
            fact = structs.replace(fact, **{field: others[number]})
        return original(state, fact)

    monkeypatch.setitem(APPLY, kind, altered)
    number = 0
    while not is_noticed(kind):
        number += 1
        assert number < attempts, f"no change of {field} is noticed"


@pytest.mark.parametrize("kind", [kind for kind in FACTS if kind not in RECOVERY_ONLY], ids=lambda kind: kind.__name__)
def test_an_apply_function_that_does_nothing_at_all_is_noticed(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [each["state"] for each in expected_states()]
    monkeypatch.setitem(APPLY, kind, lambda *_: 0)
    with pytest.raises(Exception):  # noqa: B017, PT011 - a difference, or an error of the operation that follows
        play_live(expected)
