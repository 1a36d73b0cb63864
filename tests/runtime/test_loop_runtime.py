"""The runtime of a server: threads do not block the loop, and end when they are stopped."""

import asyncio
import threading

from topics.runtime.loop_runtime import LoopRuntime


def test_work_in_a_thread_does_not_block_the_loop_or_other_threads() -> None:
    async def play() -> list[str]:
        runtime = LoopRuntime(asyncio.get_running_loop())
        done = asyncio.Event()
        order: list[str] = []
        released = threading.Event()

        def ended(result: str, _: BaseException | None) -> None:
            order.append(result)
            if len(order) == 3:
                done.set()

        def blocked() -> str:
            assert released.wait(10)
            return "blocked"

        runtime.run_in_thread("one", blocked, ended)
        runtime.run_in_thread("other", lambda: "free", lambda result, error: (ended(result, error), release()))

        def release() -> None:
            order.append("loop")
            released.set()

        await asyncio.wait_for(done.wait(), 10)
        runtime.stop()
        return order

    assert asyncio.run(play()) == ["free", "loop", "blocked"]


def test_stopped_threads_end() -> None:
    async def play() -> list[threading.Thread]:
        runtime = LoopRuntime(asyncio.get_running_loop())
        done = asyncio.Event()
        threads: list[threading.Thread] = []
        runtime.run_in_thread("stopping", lambda: threads.append(threading.current_thread()), lambda *_: done.set())
        await asyncio.wait_for(done.wait(), 10)
        runtime.stop()
        return threads

    (thread,) = asyncio.run(play())
    thread.join(10)
    assert not thread.is_alive()
