"""What consumers and producers need of asyncio. `topics.client.sync.concurrency` has the same for threads."""

import asyncio
import functools
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
Event = asyncio.Event
Condition = asyncio.Condition
sleep = asyncio.sleep


class Stopped(Exception):
    """A wait was ended by `Interrupt.stop`."""


class StopSignals:
    """SIGTERM and SIGINT as requests to stop, unless the program handles them itself or this is not the main thread.

    After the first SIGINT the next one does what `second_interrupt` says, by default what it did before `listen`.
    """

    def __init__(self, stop: Callable[[], None], second_interrupt: signal.Handlers | None = None) -> None:
        self._stop = stop
        self._second_interrupt = second_interrupt
        self._loop: asyncio.AbstractEventLoop | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Handle the signals until `unlisten`."""
        if threading.current_thread() is not threading.main_thread() or self._loop is not None:
            return
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if _is_default(handler):
                self._previous[number] = handler
                self._loop.add_signal_handler(number, self._received, number)

    def unlisten(self) -> None:
        """Leave the signals as they were."""
        for number, handler in self._previous.items():
            self._restore(number, handler)
        self._previous = {}
        self._loop = None

    def _received(self, number: signal.Signals) -> None:
        self._stop()
        if number == signal.SIGINT:
            handler = self._previous[number] if self._second_interrupt is None else self._second_interrupt
            self._restore(number, handler)

    def _restore(self, number: signal.Signals, handler: Any) -> None:
        assert self._loop is not None
        self._loop.remove_signal_handler(number)
        signal.signal(number, handler)


def _is_default(handler: Any) -> bool:
    """Whether the handler is that of Python or of `asyncio.run`, which sets one of its own for SIGINT."""
    if isinstance(handler, functools.partial):
        return isinstance(getattr(handler.func, "__self__", None), asyncio.Runner)
    return handler in (signal.SIG_DFL, signal.default_int_handler)


class Interrupt:
    """A request to stop, by a call or a signal. `guard` ends at once when it comes; other code looks at `stopped`."""

    def __init__(self) -> None:
        self.stopped = False
        self._waiting: asyncio.Task[Any] | None = None
        self._signals = StopSignals(self.stop)

    def stop(self) -> None:
        """End the guarded wait, and all later ones."""
        self.stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def guard(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """The result of the call. Raises Stopped when it is interrupted."""
        self._check()
        task = asyncio.ensure_future(function(*arguments))
        self._waiting = task
        try:
            return await task
        except asyncio.CancelledError:
            if self.stopped and task.cancelled():
                raise Stopped from None
            task.cancel()
            raise
        finally:
            self._waiting = None

    def _check(self) -> None:
        if self.stopped:
            raise Stopped

    def listen(self) -> None:
        """Stop at SIGTERM and at the first SIGINT."""
        self._signals.listen()

    def unlisten(self) -> None:
        """Leave the signals as they were."""
        self._signals.unlisten()


class Background:
    """A task beside the caller, until it ends or is stopped."""

    def __init__(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        self._task: asyncio.Task[None] = asyncio.ensure_future(function(*arguments))

    async def join(self) -> None:
        """Wait until it has ended."""
        await asyncio.gather(self._task, return_exceptions=True)


async def wait_event(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait for the event; False when the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def wait_condition(condition: asyncio.Condition, timeout_s: float | None) -> None:
    """Wait until the condition is notified or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            await condition.wait()
    except TimeoutError:
        pass
