"""`finish` runs all steps of a work."""

import pytest

from topics.model.steps import Steps, finish


def work(steps: list[int], error: Exception | None = None) -> Steps[str]:
    for number in range(3):
        steps.append(number)
        yield
    if error is not None:
        raise error
    return "result"


def test_all_steps_run_and_the_result_is_returned() -> None:
    steps: list[int] = []
    assert finish(work(steps)) == "result"
    assert steps == [0, 1, 2]


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="broken"):
        finish(work([], ValueError("broken")))
