"""Long work on the loop: a little in each turn, all works in turn, each answered once."""

import logging
from typing import Any

import pytest

from topics.model.steps import Steps, finish
from topics.runtime.slices import SLICE_SECONDS, Slices
from topics.testing.runtime import ManualRuntime

STEP_MS = 1
STEPS_A_SLICE = round(SLICE_SECONDS * 1000 / STEP_MS)


class Work:
    """Work of some steps, each of which takes a millisecond."""

    def __init__(self, runtime: ManualRuntime, log: list[str], name: str, count: int, failure: str = "") -> None:
        self._runtime = runtime
        self._log = log
        self._name = name
        self._count = count
        self._failure = failure
        self.outcomes: list[Any] = []

    def steps(self) -> Steps[str]:
        for _ in range(self._count):
            self._log.append(self._name)
            self._runtime.clock.advance(STEP_MS)
            yield
        if self._failure:
            raise ValueError(self._failure)
        return f"{self._name} done"

    def done(self, result: Any, error: BaseException | None) -> None:
        self.outcomes.append(result if error is None else error)


def test_short_work_is_done_at_once() -> None:
    runtime, log = ManualRuntime(), list[str]()
    work = Work(runtime, log, "a", STEPS_A_SLICE - 1)
    Slices(runtime).run(work.steps(), work.done)
    assert work.outcomes == ["a done"]


def test_long_work_takes_one_slice_a_turn() -> None:
    runtime, log = ManualRuntime(), list[str]()
    slices = Slices(runtime)
    work = Work(runtime, log, "a", 3 * STEPS_A_SLICE)
    slices.run(work.steps(), work.done)
    lengths = [len(log)]
    while runtime.single_turn():
        lengths.append(len(log) - sum(lengths))
    assert lengths == [STEPS_A_SLICE] * 3 + [0]
    assert work.outcomes == ["a done"]
    assert len(slices) == 0


def test_works_share_the_slice_of_a_turn() -> None:
    runtime, log = ManualRuntime(), list[str]()
    slices = Slices(runtime)
    works = [Work(runtime, log, name, 4 * STEPS_A_SLICE) for name in "abc"]
    for work in works:
        slices.run(work.steps(), work.done)
    assert len(log) == STEPS_A_SLICE + 2, "those that come later join those that wait after one step"
    log.clear()
    while runtime.single_turn():
        assert len(log) <= STEPS_A_SLICE + 1
        if len(slices) == 3:
            assert len(set(log)) == 3
        log.clear()
    assert [work.outcomes for work in works] == [["a done"], ["b done"], ["c done"]]


def test_failure_is_passed_to_the_done_callback() -> None:
    runtime, log = ManualRuntime(), list[str]()
    slices = Slices(runtime)
    good, bad = Work(runtime, log, "good", 9), Work(runtime, log, "bad", 9, "failed on purpose")
    slices.run(bad.steps(), bad.done)
    slices.run(good.steps(), good.done)
    while runtime.single_turn():
        pass
    assert isinstance(bad.outcomes[0], ValueError)
    assert good.outcomes == ["good done"]


def test_exception_in_an_answer_does_not_stop_other_works(caplog: pytest.LogCaptureFixture) -> None:
    runtime, log = ManualRuntime(), list[str]()
    slices = Slices(runtime)
    one, other = Work(runtime, log, "one", 9), Work(runtime, log, "other", 12)

    def raises(_result: Any, _error: BaseException | None) -> None:
        raise ValueError("failed on purpose")

    slices.run(one.steps(), raises)
    slices.run(other.steps(), other.done)
    with caplog.at_level(logging.ERROR):
        while runtime.single_turn():
            pass
    assert other.outcomes == ["other done"]
    assert "failed on purpose" in caplog.text


def test_all_steps_can_be_run_at_once() -> None:
    runtime, log = ManualRuntime(), list[str]()
    assert finish(Work(runtime, log, "a", 50).steps()) == "a done"
    with pytest.raises(ValueError, match="on purpose"):
        finish(Work(runtime, log, "a", 5, "on purpose").steps())
