"""What consumers and producers need of threads. `topics.client.asynchronous.concurrency` has the same for asyncio."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
Event = threading.Event
Condition = threading.Condition
sleep = time.sleep


class Stopped(Exception):
    """A wait was ended by `Interrupt.stop`."""


class Interrupt:
    """A request to stop, by a call or a signal. `guard` ends at once when it comes; other code looks at `stopped`.

    Only a signal ends a guarded call at once. `stop` from another thread takes effect when the call returns.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._guarded = False
        self._previous: dict[signal.Signals, Any] = {}

    def stop(self) -> None:
        """End the guarded wait when it returns, and all later ones."""
        self.stopped = True

    def guard(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of the call. Raises Stopped when it is interrupted."""
        self._guarded = True
        try:
            if self.stopped:
                raise Stopped
            return function(*arguments)
        finally:
            self._guarded = False

    def listen(self) -> None:
        """Stop at SIGTERM and at the first SIGINT, unless the program handles them or this is not the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                self._previous[number] = handler
                signal.signal(number, self._received)

    def unlisten(self) -> None:
        """Leave the signals as they were."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        if number == signal.SIGINT:
            # The second one raises KeyboardInterrupt, also while a message is handled.
            signal.signal(number, self._previous[signal.SIGINT])
        if self._guarded:
            # Python restarts an interrupted read unless its handler raises.
            raise Stopped


class Background:
    """A thread beside the caller, until it ends. It does not keep the process alive."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        self._thread = threading.Thread(target=function, args=arguments, name="topics-client", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()


def wait_event(event: threading.Event, timeout_s: float | None) -> bool:
    """Wait for the event; False when the time is over."""
    return event.wait(timeout_s)


def wait_condition(condition: threading.Condition, timeout_s: float | None) -> None:
    """Wait until the condition is notified or the time is over."""
    condition.wait(timeout_s)
