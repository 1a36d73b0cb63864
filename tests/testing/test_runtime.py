"""The runtime that a test runs step by step: order, turns, and work of threads."""

from topics.testing.runtime import ManualRuntime


def test_nothing_runs_before_the_test_runs_it_and_then_in_order() -> None:
    runtime = ManualRuntime()
    done: list[str] = []
    runtime.call_soon(lambda: done.append("first"))
    runtime.call_soon(lambda: runtime.call_soon(lambda: done.append("added")))
    runtime.call_soon(lambda: done.append("second"))
    assert done == []
    runtime.run()
    assert done == ["first", "second", "added"]


def test_single_turn_leaves_what_was_added_meanwhile_to_the_next() -> None:
    runtime = ManualRuntime()
    done: list[str] = []
    runtime.call_soon(lambda: runtime.call_soon(lambda: done.append("added")))
    assert (runtime.single_turn(), done) == (1, [])
    assert (runtime.single_turn(), done) == (1, ["added"])
    assert runtime.single_turn() == 0


def test_timer_runs_when_the_clock_has_reached_it_and_not_after_cancel() -> None:
    runtime = ManualRuntime()
    done: list[str] = []
    runtime.call_later(10, lambda: done.append("kept"))
    runtime.call_later(10, lambda: done.append("cancelled")).cancel()
    runtime.run()
    runtime.clock.advance(9)
    assert done == []
    runtime.clock.advance(1)
    assert done == ["kept"]
    assert runtime.now_ms() == runtime.clock.now_ms()
    assert runtime.perf() == runtime.clock.perf()


def test_work_of_a_thread_runs_when_it_is_finished_and_its_result_arrives_in_a_later_turn() -> None:
    runtime = ManualRuntime()
    steps: list[object] = []
    error = OSError("no disk")

    def fail() -> None:
        raise error

    runtime.run_in_thread("storage", lambda: steps.append("work") or 7, lambda *outcome: steps.append(outcome))
    runtime.run_in_thread("storage", fail, lambda *outcome: steps.append(outcome))
    runtime.turn()
    assert (steps, runtime.waiting_aside) == ([], 2)
    runtime.finish_one()
    assert (steps, runtime.waiting_aside) == (["work"], 1)
    runtime.run()
    assert steps == ["work", (7, None), (None, error)]


def test_work_that_the_test_takes_is_not_run() -> None:
    runtime = ManualRuntime()
    done: list[object] = []
    runtime.run_in_thread("storage", lambda: 7, lambda *outcome: done.append(outcome))
    work, finished = runtime.take_thread_work()
    runtime.run()
    assert done == []
    finished(work(), None)
    assert done == [(7, None)]
