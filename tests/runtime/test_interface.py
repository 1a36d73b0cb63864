"""What the broker relies on holds for the runtime of a server and for that of the tests."""

import asyncio
from collections.abc import Callable

import pytest

from topics.runtime.interface import Runtime
from topics.runtime.loop_runtime import LoopRuntime
from topics.testing.runtime import ManualRuntime

Scenario = Callable[[Runtime, list[object]], None]


def on_a_loop(scenario: Scenario, events: int) -> list[object]:
    found: list[object] = []

    async def play() -> None:
        runtime = LoopRuntime(asyncio.get_running_loop())
        complete = asyncio.Event()

        class Found(list[object]):
            def append(self, event: object) -> None:
                found.append(event)
                if len(found) == events:
                    complete.set()

        scenario(runtime, Found())
        await asyncio.wait_for(complete.wait(), 10)
        runtime.stop()

    asyncio.run(play())
    return found


def by_hand(scenario: Scenario, events: int) -> list[object]:
    found: list[object] = []
    runtime = ManualRuntime()
    scenario(runtime, found)
    runtime.run()
    runtime.clock.advance(10)
    runtime.run()
    return found


@pytest.fixture(params=[on_a_loop, by_hand])
def play(request: pytest.FixtureRequest) -> Callable[[Scenario, int], list[object]]:
    found: Callable[[Scenario, int], list[object]] = request.param
    return found


def test_callbacks_run_later_and_in_order(play: Callable[[Scenario, int], list[object]]) -> None:
    def scenario(runtime: Runtime, found: list[object]) -> None:
        runtime.call_soon(lambda: found.append("first"))
        runtime.call_soon(lambda: found.append("second"))
        found.append("caller")

    assert play(scenario, 3) == ["caller", "first", "second"]


def test_work_of_one_thread_runs_in_order_and_its_exception_is_passed_on(
    play: Callable[[Scenario, int], list[object]],
) -> None:
    def fails() -> None:
        raise ValueError("failed")

    def scenario(runtime: Runtime, found: list[object]) -> None:
        runtime.run_in_thread("one", lambda: 1, lambda result, error: found.append((result, error)))
        runtime.run_in_thread("one", fails, lambda result, error: found.append((result, str(error))))

    assert play(scenario, 2) == [(1, None), (None, "failed")]


def test_a_timer_can_be_cancelled(play: Callable[[Scenario, int], list[object]]) -> None:
    def scenario(runtime: Runtime, found: list[object]) -> None:
        runtime.call_later(1, lambda: found.append("cancelled")).cancel()
        runtime.call_later(5, lambda: found.append("called"))

    assert play(scenario, 1) == ["called"]
